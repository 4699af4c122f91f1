#include "common/checkpoint/prune.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

// Last component of a path that may end in "/".
std::string FolderName(std::string path) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  return std::filesystem::path(path).filename().string();
}

struct Findings {
  std::string newest_sound;
  std::string best;
};

absl::StatusOr<Findings> Look(FileSystem& fs, const std::string& job_folder,
                              const std::vector<CheckpointName>& checkpoints,
                              KeepGoing keep_going) {
  Findings findings;
  bool readable = false;
  std::string reasons;
  for (const CheckpointName& checkpoint : checkpoints) {
    const std::string folder = absl::StrCat(job_folder, "/", checkpoint.name);
    if (!readable) {
      if (const auto manifest = ReadManifest(fs, folder); manifest.ok()) {
        readable = true;
        findings.best = FolderName(manifest->position().best_checkpoint());
      }
    }
    const absl::Status status = VerifyCheckpoint(fs, folder, keep_going).status();
    if (status.ok()) {
      findings.newest_sound = checkpoint.name;
      return findings;
    }
    // The caller stops, or the disk cannot be read now: neither says anything about the checkpoint.
    if (!absl::IsDataLoss(status)) return status;
    absl::StrAppend(&reasons, "; ", status.message());
  }
  return absl::FailedPreconditionError(
      absl::StrCat(job_folder, ": none of its ", checkpoints.size(),
                   " checkpoints is sound, so nothing is removed", reasons));
}

}  // namespace

absl::StatusOr<std::vector<PruneStep>> PlanPrune(FileSystem& fs, const std::string& job_folder,
                                                 const PruneOptions& options,
                                                 KeepGoing keep_going) {
  if (options.keep == 0) {
    return absl::InvalidArgumentError("keep is 0, expected at least 1");
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(job_folder));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<CheckpointName> checkpoints,
                           ListCheckpoints(fs, job_folder));
  TESSERA_ASSIGN_OR_RETURN(const Findings findings, Look(fs, job_folder, checkpoints, keep_going));
  std::vector<PruneStep> plan;
  std::vector<CheckpointName> folders;
  for (const std::string& name : names) {
    if (const auto folder = ParseCheckpointFolder(name)) folders.push_back(*folder);
  }
  std::sort(folders.rbegin(), folders.rend());
  const std::optional<CheckpointName> sound = ParseCheckpointFolder(findings.newest_sound);
  for (const CheckpointName& folder : folders) {
    const std::string& name = folder.name;
    const auto committed = std::find_if(checkpoints.begin(), checkpoints.end(),
                                        [&](const CheckpointName& c) { return c.name == name; });
    PruneStep& step = plan.emplace_back();
    step.name = name;
    if (committed == checkpoints.end()) {
      // A job that returned to a checkpoint before a damaged one may be writing a folder older than
      // the damaged one.
      step.remove = options.job_stopped || (sound.has_value() && folder < *sound);
      step.reason = step.remove ? "half-written: it has no manifest"
                                : "it has no manifest, and may be a checkpoint being written";
    } else if (static_cast<uint64_t>(committed - checkpoints.begin()) < options.keep) {
      step.reason = absl::StrCat("among the newest ", options.keep);
    } else if (name == findings.newest_sound) {
      step.reason = "the newest that is sound";
    } else if (name == findings.best) {
      step.reason = "the best by its evaluation";
    } else {
      step.remove = true;
      step.reason = absl::StrCat("older than the newest ", options.keep);
    }
  }
  return plan;
}

absl::Status Prune(FileSystem& fs, const std::string& job_folder,
                   const std::vector<PruneStep>& plan, KeepGoing keep_going) {
  for (auto step = plan.rbegin(); step != plan.rend(); ++step) {
    if (!step->remove) continue;
    TESSERA_RETURN_IF_ERROR(keep_going());
    TESSERA_RETURN_IF_ERROR(RemoveCheckpoint(fs, absl::StrCat(job_folder, "/", step->name)));
  }
  return fs.SyncFolder(job_folder);
}

}  // namespace tessera
