#include "ps/push_log/folders.h"

#include <memory>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "ps/push_log/push_log_reader.h"

namespace tessera::ps::push_log {

std::string ClusterOf(FileSystem& files, absl::string_view root, absl::string_view job_id) {
  const std::string folder = JobFolder(root, job_id);
  std::string cluster;
  for (const std::string& name : files.List(folder).value_or(std::vector<std::string>())) {
    uint64_t generation = 0;
    if (!absl::SimpleAtoi(name, &generation)) continue;  // what was received for one
    const auto last = PushLogReader::OpenAt(files, absl::StrCat(folder, "/", name), UINT64_MAX);
    if (!last.ok()) return "";
    const std::string& of = (*last)->head().opened().cluster();
    if (of.empty() || (!cluster.empty() && of != cluster)) return "";
    cluster = of;
  }
  return cluster;
}

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
