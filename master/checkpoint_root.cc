#include "master/checkpoint_root.h"

#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tessera::master {
namespace {

constexpr char kKey[] = "cluster";  // in the state log

std::string FileOf(const std::string& folder) { return absl::StrCat(folder, "/CLUSTER"); }

// The cluster that has claimed the root; empty: none.
absl::StatusOr<std::string> ClusterOf(FileSystem& files, const std::string& folder) {
  absl::StatusOr<std::string> content = ReadWholeFile(files, FileOf(folder));
  if (absl::IsNotFound(content.status())) return "";
  if (!content.ok()) return content.status();
  return std::string(absl::StripAsciiWhitespace(*content));
}

std::string NewCluster() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

}  // namespace

absl::StatusOr<CheckpointRoot> FindRoot(FileSystem& files, const std::string& folder,
                                        StateLog& log) {
  TESSERA_RETURN_IF_ERROR(WithContext(files.CreateFolder(folder), "checkpoint root"));
  const absl::StatusOr<std::string> known = log.Get(kKey);
  if (absl::IsNotFound(known.status())) return CheckpointRoot{folder, NewCluster(), false};
  TESSERA_RETURN_IF_ERROR(known.status());
  CheckpointRoot root = {folder, *known, true};
  const absl::Status claim = CheckClaim(files, root);
  if (absl::IsUnavailable(claim)) return absl::FailedPreconditionError(claim.message());
  TESSERA_RETURN_IF_ERROR(claim);
  return root;
}

absl::Status Claim(FileSystem& files, const CheckpointRoot& root, StateLog& log) {
  if (root.claimed) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const std::string before, ClusterOf(files, root.folder));
  if (!before.empty()) {
    SPDLOG_INFO("{} was that of cluster {}, and is that of {} now, whose state knew of none",
                root.folder, before, root.cluster);
  }
  // In this order, so that a state that knows of a claim finds the file.
  TESSERA_RETURN_IF_ERROR(
      WriteFileAtomically(files, FileOf(root.folder), absl::StrCat(root.cluster, "\n")));
  return log.Apply({{kKey, root.cluster}});
}

absl::Status CheckClaim(FileSystem& files, const CheckpointRoot& root) {
  if (root.cluster.empty()) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const std::string cluster, ClusterOf(files, root.folder));
  if (cluster.empty() || cluster == root.cluster) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      FileOf(root.folder), " names cluster ", cluster, ", and this one is ", root.cluster,
      ": another master has begun with the same --checkpoint-root, and both would write into the "
      "same folders; give each cluster a root of its own, or stop the other one and write ",
      root.cluster, " into the file"));
}

}  // namespace tessera::master
