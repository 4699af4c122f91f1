#include "master/actions/checkpoint_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_file_reader.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"

namespace tessera::master {
namespace {

// One form for all spellings of a folder.
std::string Plain(const std::string& path) {
  return (std::filesystem::path(path) / "").lexically_normal().string();
}

// Whether the two have a row file in common. A link to a file of the checkpoint before has its
// name. Files without rows are left out: all of one name are alike.
bool ShareRows(const v1::CheckpointManifest& a, const v1::CheckpointManifest& b) {
  std::set<std::tuple<std::string, uint64_t, std::string>> files;
  const auto has_rows = [](const v1::CheckpointFile& file) {
    return std::any_of(file.rows().begin(), file.rows().end(), [](uint64_t n) { return n > 0; });
  };
  for (const v1::CheckpointFile& file : a.files()) {
    if (has_rows(file)) files.emplace(file.name(), file.bytes(), file.checksum());
  }
  return std::any_of(b.files().begin(), b.files().end(), [&](const v1::CheckpointFile& file) {
    return files.contains({file.name(), file.bytes(), file.checksum()});
  });
}

}  // namespace

ActionResult CheckpointFiles::Find(const FindCheckpoint& find, KeepGoing keep_going) const {
  ActionResult result = FindSound(find, keep_going);
  // What is missing is not lost if it is the root that is not there.
  if (!absl::IsNotFound(result.status)) return result;
  const absl::Status claim = root_.CheckClaim();
  if (!claim.ok()) result.status = claim;
  return result;
}

ActionResult CheckpointFiles::FindSound(const FindCheckpoint& find, KeepGoing keep_going) const {
  ActionResult result;
  const auto try_folder = [&](const std::string& folder) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const std::string path, PathBelow(root_.folder(), folder));
    TESSERA_ASSIGN_OR_RETURN(result.manifest, VerifyCheckpoint(files_, path, keep_going));
    result.folder = folder;
    // A master that died while committing may have left a manifest that a power cut would remove.
    return find.own || find.folder.empty() ? MakeDurable(path) : absl::OkStatus();
  };
  if (!find.folder.empty()) {
    result.status = try_folder(find.folder);
    return result;
  }
  if (root_.IsAnothers()) {
    result.status = absl::NotFoundError(
        absl::StrCat(root_.folder(), " is another cluster's, and this one has written none there"));
    return result;
  }
  absl::StatusOr<std::string> job_folder = PathBelow(root_.folder(), find.job_folder);
  if (!job_folder.ok()) {
    result.status = job_folder.status();
    return result;
  }
  absl::StatusOr<std::vector<CheckpointName>> names = ListCheckpoints(files_, *job_folder);
  if (!names.ok()) {
    result.status = names.status();
    return result;
  }
  absl::Status unreadable;
  for (const CheckpointName& name : *names) {
    if (result.status = keep_going(); !result.status.ok()) return result;
    const std::string folder = absl::StrCat(find.job_folder, "/", name.name);
    if (std::count(find.damaged.begin(), find.damaged.end(), folder) > 0) continue;
    result.status = try_folder(folder);
    if (result.status.ok()) return result;
    if (IsRetryable(result.status)) {
      unreadable.Update(result.status);
    } else if (absl::IsDataLoss(result.status)) {
      result.damaged.push_back(folder);
    } else {
      return result;
    }
    result.skipped.push_back(absl::StrCat(folder, ": ", result.status.message()));
  }
  result.status = !unreadable.ok()
                      ? unreadable
                      : absl::NotFoundError(absl::StrCat("no sound checkpoint in ", find.job_folder,
                                                         " below ", root_.folder()));
  return result;
}

absl::Status CheckpointFiles::MakeDurable(const std::string& folder) const {
  TESSERA_RETURN_IF_ERROR(files_.SyncFolder(folder));
  TESSERA_RETURN_IF_ERROR(files_.SyncFolder(std::filesystem::path(folder).parent_path().string()));
  return files_.SyncFolder(root_.folder());
}

absl::Status CheckpointFiles::Begin(const std::string& folder) const {
  TESSERA_ASSIGN_OR_RETURN(const std::string path, PathBelow(root_.folder(), folder));
  TESSERA_RETURN_IF_ERROR(Failpoint("master.checkpoint.begin"));
  TESSERA_RETURN_IF_ERROR(root_.MayWrite());
  TESSERA_RETURN_IF_ERROR(RemoveCheckpoint(files_, path));
  TESSERA_RETURN_IF_ERROR(files_.CreateFolder(path));
  // The job's folder may be new. Writing the manifest makes its content durable.
  return files_.SyncFolder(root_.folder());
}

absl::Status CheckpointFiles::Commit(const WriteCheckpoint& write,
                                     absl::Span<const v1::WriteCheckpointResponse> parts) const {
  TESSERA_ASSIGN_OR_RETURN(const std::string folder, PathBelow(root_.folder(), write.folder));
  v1::CheckpointManifest manifest = write.manifest;
  for (const v1::WriteCheckpointResponse& part : parts) {
    for (int t = 0; t < part.rows_size() && t < manifest.tables_size(); ++t) {
      v1::CheckpointTable* table = manifest.mutable_tables(t);
      table->set_rows(table->rows() + part.rows(t));
    }
    if (part.has_sightings()) *manifest.add_sightings() = part.sightings();
    for (const v1::CheckpointFile& file : part.files()) {
      *manifest.add_files() = file;
      // Reads the slots as they were written; also checks that the master sees the ps's file.
      absl::StatusOr<std::unique_ptr<RowFileReader>> reader =
          RowFileReader::Open(files_, absl::StrCat(folder, "/", file.name()));
      if (absl::IsNotFound(reader.status())) {
        TESSERA_RETURN_IF_ERROR(root_.CheckClaim());
        return absl::FailedPreconditionError(
            absl::StrCat(reader.status().message(),
                         ": a ps has written it, and the master does not see it; give the master "
                         "and all ps the same shared folder as --checkpoint-root"));
      }
      TESSERA_RETURN_IF_ERROR(reader.status());
      for (int t = 0; t < part.slot_floats_size() && t < manifest.tables_size(); ++t) {
        manifest.mutable_tables(t)->set_slot_floats(part.slot_floats(t));
      }
      for (const row_file::IndexEntry& block : (*reader)->blocks()) {
        if (block.table >= static_cast<uint32_t>(manifest.tables_size())) continue;
        if (block.floats_per_row == 0) continue;
        v1::CheckpointTable* table = manifest.mutable_tables(static_cast<int>(block.table));
        table->set_slot_floats(block.floats_per_row - table->spec().dim());
      }
    }
  }
  TESSERA_RETURN_IF_ERROR(WriteManifest(files_, folder, std::move(manifest)));
  PassFailpoint("master.checkpoint.committed");
  return absl::OkStatus();
}

void CheckpointFiles::Prune(const PruneCheckpoints& prune,
                            const std::vector<std::string>& starts) const {
  std::vector<std::string> keep = prune.keep_besides;
  keep.insert(keep.end(), starts.begin(), starts.end());
  if (const absl::Status status = TryPrune(prune, keep); !status.ok()) {
    SPDLOG_WARN("old checkpoints stay behind: {}", std::string(status.message()));
  }
}

absl::Status CheckpointFiles::TryPrune(const PruneCheckpoints& prune,
                                       const std::vector<std::string>& keep) const {
  TESSERA_ASSIGN_OR_RETURN(const std::string job_folder,
                           PathBelow(root_.folder(), prune.job_folder));
  TESSERA_ASSIGN_OR_RETURN(std::vector<CheckpointName> committed,
                           ListCheckpoints(files_, job_folder));
  std::erase_if(committed, [&](const CheckpointName& name) {
    const std::string folder = absl::StrCat(prune.job_folder, "/", name.name);
    return std::count(prune.damaged.begin(), prune.damaged.end(), folder) > 0;
  });
  std::set<std::string> kept;
  for (const std::string& folder : keep) {
    // Users spell a folder in several ways, "./demo-1/step-000000000010/".
    absl::StatusOr<std::string> path = PathBelow(root_.folder(), folder);
    if (path.ok()) kept.insert(Plain(*path));
  }
  size_t steps = 0;
  for (size_t i = 0; i < committed.size(); ++i) {
    // Of several checkpoints of one step only the newest counts.
    if (i > 0 && committed[i].step == committed[i - 1].step) continue;
    if (++steps > prune.keep) break;
    kept.insert(Plain(absl::StrCat(job_folder, "/", committed[i].name)));
  }
  const std::string newest = absl::StrCat(root_.folder(), "/", prune.folder);
  kept.insert(Plain(newest));
  TESSERA_ASSIGN_OR_RETURN(const std::string apart, FindApart(newest, committed));
  if (!apart.empty()) kept.insert(Plain(apart));
  // Also removes folders without a manifest, left by tries that were cut short.
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.List(job_folder));
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, "step-")) continue;
    if (kept.contains(Plain(absl::StrCat(job_folder, "/", name)))) continue;
    PassFailpoint("master.checkpoint.prune");
    TESSERA_RETURN_IF_ERROR(RemoveCheckpoint(files_, absl::StrCat(job_folder, "/", name)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckpointFiles::FindApart(
    const std::string& folder, const std::vector<CheckpointName>& committed) const {
  const std::filesystem::path path(folder);
  const std::optional<CheckpointName> name = ParseCheckpointFolder(path.filename().string());
  if (!name.has_value()) return absl::InternalError(folder + ": no checkpoint's name");
  TESSERA_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, ReadManifest(files_, folder));
  for (const CheckpointName& other : committed) {
    // The job has gone back behind later ones.
    if (!(other < *name)) continue;
    const std::string before = (path.parent_path() / other.name).string();
    const absl::StatusOr<v1::CheckpointManifest> of_other = ReadManifest(files_, before);
    if (IsRetryable(of_other.status())) return of_other.status();
    if (of_other.ok() && !ShareRows(manifest, *of_other)) return before;
  }
  return std::string();
}

void CheckpointFiles::Drop(const std::string& folder) const {
  const absl::StatusOr<std::string> path = PathBelow(root_.folder(), folder);
  // Nothing was begun there, and the folder may be another's.
  if (!root_.MayWrite().ok()) return;
  const absl::Status removed = path.ok() ? RemoveCheckpoint(files_, *path) : path.status();
  if (!removed.ok()) {
    SPDLOG_WARN("a failed checkpoint stays behind: {}", std::string(removed.message()));
  }
}

}  // namespace tessera::master
