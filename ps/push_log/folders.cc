#include "ps/push_log/folders.h"

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"

namespace tessera::ps::push_log {

absl::Status RemoveLogsBefore(FileSystem& files, absl::string_view root, absl::string_view job_id,
                              uint64_t generation) {
  const std::string folder = JobFolder(root, job_id);
  const auto names = files.List(folder);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(names.status());
  absl::Status removed;
  for (const std::string& name : *names) {
    absl::string_view digits = name;
    const bool received = absl::ConsumeSuffix(&digits, kReceived);
    uint64_t of = 0;
    if (!absl::SimpleAtoi(digits, &of) || of > generation) continue;
    if (of == generation && !received) continue;
    removed.Update(files.Remove(absl::StrCat(folder, "/", name)));
  }
  // A later generation's log may have been begun meanwhile.
  removed.Update(files.RemoveIfEmpty(folder));
  return removed;
}

}  // namespace tessera::ps::push_log
