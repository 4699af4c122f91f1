#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/keep_going.h"
#include "tessera/v1/checkpoint.pb.h"

namespace tessera {

// A checkpoint is a folder "step-<12 digits>" in its job's folder: row files, and the manifest that
// names them. It exists if and only if its manifest verifies. FORMAT.md has the bytes. Another one
// of a step, cut while the first is still relied upon, is "step-<12 digits>-2", and so on.
inline constexpr char kManifestName[] = "MANIFEST.json";
// The newest that is written, and read; a manifest says the oldest that has all it says. Version 1
// has no layers, 2 no sightings, 3 no windows that are open in parts.
inline constexpr uint32_t kManifestFormatVersion = 4;

std::string CheckpointFolderName(uint64_t step, uint32_t number = 1);
struct CheckpointName {
  std::string name;  // of the folder in the job's folder
  uint64_t step = 0;
  uint32_t number = 1;  // of those of the step

  // The order in which they were cut.
  bool operator<(const CheckpointName& other) const {
    return step != other.step ? step < other.step : number < other.number;
  }
};
// nullopt: not the name of a checkpoint's folder.
std::optional<CheckpointName> ParseCheckpointFolder(const std::string& name);

// All that the manifest names, of rows and of sightings. They live as long as it.
std::vector<const v1::CheckpointFile*> FilesOf(const v1::CheckpointManifest& manifest);

// Commits: the row files must be written and synced before. Sets format_version and checksum; when
// it returns OK the checkpoint is durable, before that there is none.
absl::Status WriteManifest(FileSystem& fs, const std::string& folder,
                           v1::CheckpointManifest manifest);

// NOT_FOUND: no manifest, so no checkpoint. DATA_LOSS: it is damaged. FAILED_PRECONDITION: a format
// version that this build does not read.
absl::StatusOr<v1::CheckpointManifest> ReadManifest(FileSystem& fs, const std::string& folder);

// ReadManifest, and then reads every file whole: existence, size, checksum. DATA_LOSS names the
// file. For use before a checkpoint is loaded: a file that is sound in itself but belongs to
// another checkpoint is found only here. `keep_going` is asked before every MiB.
absl::StatusOr<v1::CheckpointManifest> VerifyCheckpoint(FileSystem& fs, const std::string& folder,
                                                        KeepGoing keep_going = absl::OkStatus);

// Its manifest before the rest: what is cut short leaves no damaged checkpoint behind. Of a link
// to one that lies elsewhere the link. Nothing where there is no such folder.
absl::Status RemoveCheckpoint(FileSystem& fs, const std::string& folder);

// Those that have a manifest, damaged or not, newest first. Empty where the job's folder is not
// there.
absl::StatusOr<std::vector<CheckpointName>> ListCheckpoints(FileSystem& fs,
                                                            const std::string& job_folder);

}  // namespace tessera
