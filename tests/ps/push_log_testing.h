#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ps/push_log/push_log.h"
#include "ps/push_log/push_log_reader.h"
#include "tests/common/fault_file_system.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {

inline constexpr char kLogFolder[] = "logs/job-1/1";

// One push log on a file system in memory.
class PushLogHarness {
 protected:
  static v1::PushLogHead Head(const char* cut) {
    v1::PushLogHead head;
    if (cut != nullptr) head.set_cut(cut);
    return head;
  }
  PushLog::Options Options(bool fsync = false, uint64_t max_bytes = 0) {
    PushLog::Options options;
    options.files = &files_;
    options.folder = kLogFolder;
    options.fsync = fsync;
    options.max_bytes = max_bytes;
    options.kept_free = 0;
    return options;
  }
  std::unique_ptr<PushLog> Create(bool fsync = false, uint64_t max_bytes = 0) {
    auto log = PushLog::Create(Options(fsync, max_bytes), Head(""));
    EXPECT_OK(log);
    return *std::move(log);
  }
  static absl::Status Append(PushLog& log, int n) {
    return log.Append(push_log::Kind::kPush, absl::StrCat("text ", n),
                      std::string(8 * (n % 5), char('a' + n % 26)));
  }
  // The texts of all records from a cut on, and how reading ended.
  absl::StatusOr<std::vector<std::string>> Read(const char* cut = "") {
    auto reader = PushLogReader::Open(files_, kLogFolder, cut);
    if (!reader.ok()) return reader.status();
    std::vector<std::string> texts;
    while (true) {
      auto record = (*reader)->Next();
      if (!record.ok()) return record.status();
      if (!record->has_value()) return texts;
      texts.push_back((*record)->text);
    }
  }
  static std::vector<std::string> Texts(int begin, int end) {
    std::vector<std::string> texts;
    for (int n = begin; n < end; ++n) texts.push_back(absl::StrCat("text ", n));
    return texts;
  }
  static std::string Path(int segment) {
    return absl::StrCat(kLogFolder, "/", push_log::SegmentName(segment));
  }

  static std::string Spare() { return absl::StrCat(kLogFolder, "/", push_log::kSpare); }

  uint64_t UsedBytes() const {
    uint64_t bytes = 0;
    for (const std::string& path : files_.Files()) bytes += files_.Content(path).size();
    return bytes;
  }

  FaultFileSystem files_;
};

}  // namespace tessera::ps
