#include "ps/push_log/folders.h"

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace tessera::ps::push_log {

void RemoveLogsBefore(FileSystem& files, absl::string_view root, absl::string_view job_id,
                      uint64_t generation) {
  const std::string folder = JobFolder(root, job_id);
  const auto names = files.List(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    absl::string_view digits = name;
    const bool received = absl::ConsumeSuffix(&digits, kReceived);
    uint64_t of = 0;
    if (!absl::SimpleAtoi(digits, &of) || of > generation) continue;
    if (of == generation && !received) continue;
    files.Remove(absl::StrCat(folder, "/", name)).IgnoreError();
  }
}

}  // namespace tessera::ps::push_log
