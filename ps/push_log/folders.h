#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/file_system.h"

// Where a ps keeps the push logs of a job, below its folder for all push logs.
namespace tessera::ps::push_log {

inline std::string JobFolder(absl::string_view root, absl::string_view job_id) {
  return absl::StrCat(root, "/", job_id);
}
// Folder of the log at one generation.
inline std::string GenerationFolder(absl::string_view root, absl::string_view job_id,
                                    uint64_t generation) {
  return absl::StrCat(JobFolder(root, job_id), "/", generation);
}
// Folder of the log of what a ps received from others before the generation began.
inline constexpr char kReceived[] = ".received";
inline std::string ReceivedFolder(absl::string_view root, absl::string_view job_id,
                                  uint64_t generation) {
  return absl::StrCat(GenerationFolder(root, job_id, generation), kReceived);
}

// The cluster that all logs of the job were opened for (OpenJobRequest.cluster); empty: a log does
// not say it or cannot be read, or they say different ones.
std::string ClusterOf(FileSystem& files, absl::string_view root, absl::string_view job_id);

// Removes the logs of generations before that one, those of what was received for it and before,
// and the job's folder if it is empty then. The error is that of the first that stays behind.
absl::Status RemoveLogsBefore(FileSystem& files, absl::string_view root, absl::string_view job_id,
                              uint64_t generation);

}  // namespace tessera::ps::push_log
