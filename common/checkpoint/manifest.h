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
// names them. It exists if and only if its manifest verifies. FORMAT.md describes the bytes. A
// second checkpoint of a step, cut while the first is still in use, is "step-<12 digits>-2", and so
// on.
inline constexpr char kManifestName[] = "MANIFEST.json";
// The newest format version that this build reads and writes; a manifest is written in the oldest
// that can express it. Version 1 has no layers, 2 no sightings, 3 no windows open in parts.
inline constexpr uint32_t kManifestFormatVersion = 4;

std::string CheckpointFolderName(uint64_t step, uint32_t number = 1);
struct CheckpointName {
  std::string name;  // of the checkpoint's folder in the job's folder
  uint64_t step = 0;
  uint32_t number = 1;  // number within the step, from 1

  // Orders checkpoints as they were cut.
  bool operator<(const CheckpointName& other) const {
    return step != other.step ? step < other.step : number < other.number;
  }
};
// nullopt: `name` is not the name of a checkpoint's folder.
std::optional<CheckpointName> ParseCheckpointFolder(const std::string& name);

// All files in the manifest, of rows and of sightings. The pointers are valid while the manifest
// lives.
std::vector<const v1::CheckpointFile*> FilesOf(const v1::CheckpointManifest& manifest);

// Commits a checkpoint; the row files must be written and synced before. Sets format_version and
// checksum. OK: the checkpoint is durable. Before that there is no checkpoint.
absl::Status WriteManifest(FileSystem& fs, const std::string& folder,
                           v1::CheckpointManifest manifest);

// NOT_FOUND: no such folder, or no manifest in it, so no checkpoint. DATA_LOSS: the manifest is
// damaged. FAILED_PRECONDITION: this build does not read its format version.
absl::StatusOr<v1::CheckpointManifest> ReadManifest(FileSystem& fs, const std::string& folder);

// ReadManifest, then reads every file completely and checks existence, size and checksum. DATA_LOSS
// names the file. Call it before a checkpoint is loaded: only this finds a sound file that belongs
// to another checkpoint. Calls `keep_going` before every MiB.
absl::StatusOr<v1::CheckpointManifest> VerifyCheckpoint(FileSystem& fs, const std::string& folder,
                                                        KeepGoing keep_going = absl::OkStatus);

// The error for a file of a checkpoint that its manifest names and that is not there: DATA_LOSS.
// Says whether the manifest is gone by now, too, as when the checkpoint was removed while it was
// read.
absl::Status MissingFile(FileSystem& fs, const std::string& path);

// Removes the manifest first, so that an interrupted call leaves no damaged checkpoint behind. If
// `folder` is a link, removes only the link. OK if there is no such folder.
absl::Status RemoveCheckpoint(FileSystem& fs, const std::string& folder);

// The checkpoints that have a manifest, damaged or not, newest first. Empty if the job's folder
// does not exist.
absl::StatusOr<std::vector<CheckpointName>> ListCheckpoints(FileSystem& fs,
                                                            const std::string& job_folder);

}  // namespace tessera
