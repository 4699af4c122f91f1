#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/work.pb.h"
#include "worker/data/data_source.h"
#include "zlib.h"
#include "zstd.h"

namespace tessera::worker {

// A folder of the test's own with a data root and a scratch folder in it, removed at the end.
class DataFolder {
 public:
  DataFolder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = absl::StrCat(::testing::TempDir(), "/tessera-data-", ::getpid(), "-", test->name());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(root());
    std::filesystem::create_directories(scratch());
  }
  ~DataFolder() { std::filesystem::remove_all(path_); }

  std::string root() const { return path_ + "/data"; }
  std::string scratch() const { return path_ + "/scratch"; }
  void Write(const std::string& name, const std::string& content) const {
    const std::filesystem::path path = root() + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }
  DataSource::Options options() const { return {.data_root = root(), .scratch_folder = scratch()}; }

 private:
  std::string path_;
};

inline v1::DataSpec ParseSpec(const std::string& text) {
  v1::DataSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

inline std::unique_ptr<DataSource> OpenSource(const DataFolder& folder, const std::string& spec) {
  auto source = DataSource::Open(ParseSpec(spec), folder.options(), PosixFileSystem());
  EXPECT_TRUE(source.ok()) << source.status();
  return source.ok() ? *std::move(source) : nullptr;
}

inline v1::RecordRange Range(const v1::FileRecords& file, uint64_t begin, uint64_t end) {
  v1::RecordRange range;
  range.set_path(file.path());
  range.set_begin(begin);
  range.set_end(end);
  range.set_file_bytes(file.bytes());
  return range;
}

// All records of the files that `pattern` matches.
inline absl::StatusOr<DataSource::Records> ReadAll(DataSource& source, const std::string& pattern) {
  auto files = source.Count({pattern});
  if (!files.ok()) return files.status();
  std::vector<v1::RecordRange> ranges;
  for (const v1::FileRecords& file : *files) ranges.push_back(Range(file, 0, file.records()));
  return source.Read(ranges);
}

// One gzip member.
inline std::string Gzip(const std::string& text) {
  z_stream z = {};
  EXPECT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  packed.resize(z.total_out);
  deflateEnd(&z);
  return packed;
}

// One zstd frame, with a checksum of its content.
inline std::string Zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  const size_t n = ZSTD_compress2(context, packed.data(), packed.size(), text.data(), text.size());
  ZSTD_freeCCtx(context);
  EXPECT_FALSE(ZSTD_isError(n));
  packed.resize(n);
  return packed;
}

inline void ExpectSameBatch(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.size, b.size);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.dense, b.dense);
  ASSERT_EQ(a.sparse.size(), b.sparse.size());
  for (size_t c = 0; c < a.sparse.size(); ++c) {
    EXPECT_EQ(a.sparse[c].offsets, b.sparse[c].offsets);
    EXPECT_EQ(a.sparse[c].keys, b.sparse[c].keys);
    EXPECT_EQ(a.sparse[c].weights, b.sparse[c].weights);
  }
}

}  // namespace tessera::worker
