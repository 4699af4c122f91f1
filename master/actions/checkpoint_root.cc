#include "master/actions/checkpoint_root.h"

#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tessera::master {
namespace {

// In the state log.
constexpr char kKey[] = "cluster";
constexpr char kClaimingKey[] = "claiming";
constexpr char kFromKey[] = "claiming_from";
constexpr char kNextJobKey[] = "next_job";  // as in job_table.cc

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

absl::StatusOr<std::unique_ptr<CheckpointRoot>> CheckpointRoot::Open(FileSystem* files,
                                                                     std::string folder,
                                                                     StateLog* log) {
  TESSERA_RETURN_IF_ERROR(WithContext(files->CreateFolder(folder), "checkpoint root"));
  absl::StatusOr<std::string> known = log->Get(kKey);
  const bool claimed = known.ok();
  // The file may name the cluster already.
  if (absl::IsNotFound(known.status())) known = log->Get(kClaimingKey);
  if (absl::IsNotFound(known.status())) known = NewCluster();
  TESSERA_RETURN_IF_ERROR(known.status());
  const absl::Status numbered = log->Get(kNextJobKey).status();
  if (!absl::IsNotFound(numbered)) TESSERA_RETURN_IF_ERROR(numbered);
  TESSERA_ASSIGN_OR_RETURN(const std::string owner, ClusterOf(*files, folder));
  // Jobs that are still to be numbered leave out the folders that are there now.
  absl::StatusOr<std::string> from = owner;
  if (numbered.ok()) from = log->Get(kFromKey);
  if (absl::IsNotFound(from.status())) from = "";
  TESSERA_RETURN_IF_ERROR(from.status());
  std::unique_ptr<CheckpointRoot> root(new CheckpointRoot(
      files, std::move(folder), *std::move(known), claimed, *std::move(from), log));
  if (!claimed) return root;
  const absl::Status ours = root->CheckOwner(owner);
  // Another's root is to be given back by a person; one that is not mounted may come.
  if (!ours.ok() && !owner.empty()) return absl::FailedPreconditionError(ours.message());
  TESSERA_RETURN_IF_ERROR(ours);
  return root;
}

absl::Status CheckpointRoot::Claim() {
  absl::MutexLock lock(&mu_);
  if (claimed_ || log_ == nullptr) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const std::string before, ClusterOf(files_, folder_));
  if (!before.empty() && before != cluster_ && before != from_) {
    return absl::UnavailableError(absl::StrCat(
        FileOf(folder_), " names cluster ", before, ", and this one is ", cluster_,
        ", which had jobs before it saw that: folders of the other one may have their names; give "
        "each cluster a --checkpoint-root of its own"));
  }
  // In this order, so that a state that knows of a claim finds the file, and a file that names a
  // cluster finds a state that knows the name.
  TESSERA_RETURN_IF_ERROR(log_->Apply({{kClaimingKey, cluster_}, {kFromKey, from_}}));
  TESSERA_RETURN_IF_ERROR(
      WriteFileAtomically(files_, FileOf(folder_), absl::StrCat(cluster_, "\n")));
  if (!before.empty() && before != cluster_) {
    SPDLOG_INFO("{} was that of cluster {}, and is that of {} now, whose state knew of none",
                folder_, before, cluster_);
  }
  TESSERA_RETURN_IF_ERROR(log_->Apply({{kKey, cluster_}}));
  claimed_ = true;
  return absl::OkStatus();
}

absl::Status CheckpointRoot::MayWrite() {
  TESSERA_RETURN_IF_ERROR(Claim());
  return CheckClaim();
}

absl::Status CheckpointRoot::CheckClaim() const {
  {
    absl::MutexLock lock(&mu_);
    if (!claimed_) return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string owner, ClusterOf(files_, folder_));
  return CheckOwner(owner);
}

bool CheckpointRoot::IsAnothers() const {
  {
    absl::MutexLock lock(&mu_);
    if (claimed_ || log_ == nullptr) return false;
  }
  const absl::StatusOr<std::string> owner = ClusterOf(files_, folder_);
  return owner.ok() && !owner->empty() && *owner != cluster_;
}

absl::Status CheckpointRoot::CheckOwner(const std::string& owner) const {
  if (owner == cluster_) return absl::OkStatus();
  if (owner.empty()) {
    return absl::UnavailableError(
        absl::StrCat(folder_,
                     " has no file CLUSTER, and this cluster has written one there: is its file "
                     "system mounted? If the folder was moved or emptied on purpose, write ",
                     cluster_, " into that file"));
  }
  return absl::UnavailableError(absl::StrCat(
      FileOf(folder_), " names cluster ", owner, ", and this one is ", cluster_,
      ": another master has begun with the same --checkpoint-root, and both would write into the "
      "same folders; give each cluster a root of its own, or stop the other one and write ",
      cluster_, " into the file"));
}

}  // namespace tessera::master
