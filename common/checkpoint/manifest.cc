#include "common/checkpoint/manifest.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/checkpoint/checksum.h"
#include "common/failpoint.h"
#include "common/status_macros.h"
#include "google/protobuf/util/json_util.h"

namespace tessera {
namespace {

// The oldest format version that can express the manifest.
uint32_t FormatVersionOf(const v1::CheckpointManifest& manifest) {
  for (const v1::OpenWindow& open : manifest.position().open()) {
    if (open.end_batch() > 0) return 4;
  }
  return manifest.sightings().empty() ? 2 : 3;
}

// No manifest comes near this size; a larger file is none.
constexpr uint64_t kMaxManifestBytes = uint64_t{256} << 20;

// The text is the manifest as JSON without its last brace, then 16 hex digits between these two
// strings: the checksum of all bytes before them. The checksum covers bytes, not a message printed
// again, because the order in which maps are printed is not fixed.
constexpr absl::string_view kBeforeChecksum = ",\n \"checksum\": \"";
constexpr absl::string_view kAfterChecksum = "\"\n}\n";
constexpr size_t kSealBytes = kBeforeChecksum.size() + 16 + kAfterChecksum.size();

std::string Seal(absl::string_view body) {
  return absl::StrCat(kBeforeChecksum, ChecksumText(Checksum64Of(body)), kAfterChecksum);
}

absl::Status FromProtobuf(const google::protobuf::util::Status& status) {
  return status.ok() ? absl::OkStatus() : absl::InvalidArgumentError(status.ToString());
}

std::string ManifestPath(const std::string& folder) {
  return absl::StrCat(folder, "/", kManifestName);
}

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat(path, ": damaged: ", what, "; go on from an earlier checkpoint"));
}

bool IsPlainName(absl::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == absl::string_view::npos;
}

absl::Status VerifyFile(FileSystem& fs, const std::string& folder,
                        const v1::CheckpointFile& expected, KeepGoing keep_going) {
  if (!IsPlainName(expected.name())) {
    return Damaged(ManifestPath(folder),
                   absl::StrCat("\"", expected.name(), "\" is not a file name"));
  }
  const std::string path = absl::StrCat(folder, "/", expected.name());
  absl::StatusOr<std::unique_ptr<ReadableFile>> file = fs.Open(path);
  if (absl::IsNotFound(file.status())) return MissingFile(fs, path);
  TESSERA_RETURN_IF_ERROR(file.status());
  if ((*file)->Size() != expected.bytes()) {
    return Damaged(path, absl::StrCat("it has ", (*file)->Size(), " bytes, the manifest says ",
                                      expected.bytes()));
  }
  std::string buffer(1 << 20, '\0');
  Checksum64 checksum;
  for (uint64_t offset = 0; offset < expected.bytes(); offset += buffer.size()) {
    TESSERA_RETURN_IF_ERROR(keep_going());
    const size_t n = std::min<uint64_t>(buffer.size(), expected.bytes() - offset);
    TESSERA_RETURN_IF_ERROR((*file)->Read(offset, absl::Span<char>(buffer.data(), n)));
    checksum.Add(absl::string_view(buffer.data(), n));
  }
  if (const std::string found = ChecksumText(checksum.Value()); found != expected.checksum()) {
    return Damaged(
        path, absl::StrCat("its checksum is ", found, ", the manifest says ", expected.checksum()));
  }
  return absl::OkStatus();
}

}  // namespace

std::string CheckpointFolderName(uint64_t step, uint32_t number) {
  const std::string name = absl::StrFormat("step-%012d", step);
  return number == 1 ? name : absl::StrCat(name, "-", number);
}

std::optional<CheckpointName> ParseCheckpointFolder(const std::string& name) {
  CheckpointName checkpoint = {.name = name, .step = 0, .number = 1};
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
  if (parts.size() < 2 || parts.size() > 3 || !absl::SimpleAtoi(parts[1], &checkpoint.step)) {
    return std::nullopt;
  }
  if (parts.size() == 3 && !absl::SimpleAtoi(parts[2], &checkpoint.number)) return std::nullopt;
  if (name != CheckpointFolderName(checkpoint.step, checkpoint.number)) return std::nullopt;
  return checkpoint;
}

absl::Status WriteManifest(FileSystem& fs, const std::string& folder,
                           v1::CheckpointManifest manifest) {
  manifest.set_format_version(FormatVersionOf(manifest));
  manifest.clear_checksum();
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string body;
  TESSERA_RETURN_IF_ERROR(WithContext(
      FromProtobuf(google::protobuf::util::MessageToJsonString(manifest, &body, options)),
      "manifest to JSON"));
  // The format version is set, so a field precedes the comma.
  if (!absl::EndsWith(body, "\n}\n")) {
    return absl::InternalError("a manifest as JSON does not end as expected");
  }
  body.resize(body.size() - 3);
  body += Seal(body);

  TESSERA_RETURN_IF_ERROR(Failpoint("checkpoint.manifest"));
  // Syncs the row files' names before the manifest's, and the folder's own name after it.
  TESSERA_RETURN_IF_ERROR(fs.SyncFolder(folder));
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(fs, ManifestPath(folder), body));
  const std::string parent = std::filesystem::path(folder).parent_path().string();
  return fs.SyncFolder(parent.empty() ? "." : parent);
}

absl::StatusOr<v1::CheckpointManifest> ReadManifest(FileSystem& fs, const std::string& folder) {
  const std::string path = ManifestPath(folder);
  absl::StatusOr<std::unique_ptr<ReadableFile>> opened = fs.Open(path);
  if (absl::IsNotFound(opened.status())) {
    if (absl::IsNotFound(fs.List(folder).status())) {
      return absl::NotFoundError(absl::StrCat(folder, ": no such folder"));
    }
    return absl::NotFoundError(absl::StrCat(folder, ": no checkpoint: it has no ", kManifestName,
                                            ", which is written last and removed first"));
  }
  TESSERA_RETURN_IF_ERROR(opened.status());
  const std::unique_ptr<ReadableFile> file = *std::move(opened);
  if (file->Size() < kSealBytes || file->Size() > kMaxManifestBytes) {
    return Damaged(path, absl::StrCat("it has ", file->Size(), " bytes"));
  }
  std::string text(file->Size(), '\0');
  TESSERA_RETURN_IF_ERROR(file->Read(0, absl::MakeSpan(text)));
  const absl::string_view body(text.data(), text.size() - kSealBytes);
  if (absl::string_view(text).substr(body.size()) != Seal(body)) {
    return Damaged(path, "its checksum differs, or it is cut off");
  }
  v1::CheckpointManifest manifest;
  google::protobuf::util::JsonParseOptions options;
  // Checks the version first: a newer manifest may have fields that this build does not know.
  for (const bool ignore_unknown_fields : {true, false}) {
    options.ignore_unknown_fields = ignore_unknown_fields;
    manifest.Clear();
    const absl::Status parsed =
        FromProtobuf(google::protobuf::util::JsonStringToMessage(text, &manifest, options));
    if (!parsed.ok()) return Damaged(path, parsed.message());
    if (manifest.format_version() == 0 || manifest.format_version() > kManifestFormatVersion) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, ": has manifest format ", manifest.format_version(), ", this build reads 1 to ",
          kManifestFormatVersion, "; use the version of tessera that wrote it, ",
          manifest.version().empty() ? "unknown" : manifest.version()));
    }
  }
  return manifest;
}

std::vector<const v1::CheckpointFile*> FilesOf(const v1::CheckpointManifest& manifest) {
  std::vector<const v1::CheckpointFile*> files;
  for (const auto* some : {&manifest.files(), &manifest.sightings()}) {
    for (const v1::CheckpointFile& file : *some) files.push_back(&file);
  }
  return files;
}

absl::StatusOr<v1::CheckpointManifest> VerifyCheckpoint(FileSystem& fs, const std::string& folder,
                                                        KeepGoing keep_going) {
  TESSERA_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, ReadManifest(fs, folder));
  for (const v1::CheckpointFile* file : FilesOf(manifest)) {
    TESSERA_RETURN_IF_ERROR(VerifyFile(fs, folder, *file, keep_going));
  }
  return manifest;
}

absl::Status MissingFile(FileSystem& fs, const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (absl::IsNotFound(fs.Open(ManifestPath(folder)).status())) {
    return absl::DataLossError(absl::StrCat(path, ": missing, and so is ", kManifestName,
                                            " by now: the checkpoint was removed while it was "
                                            "read; take another"));
  }
  return absl::DataLossError(
      absl::StrCat(path, ": missing, but the manifest names it; go on from an earlier checkpoint"));
}

absl::Status RemoveCheckpoint(FileSystem& fs, const std::string& folder) {
  if (fs.IsLink(folder)) return fs.Remove(folder);
  TESSERA_RETURN_IF_ERROR(fs.Remove(absl::StrCat(folder, "/", kManifestName)));
  const absl::Status synced = fs.SyncFolder(folder);
  if (absl::IsNotFound(synced)) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(synced);
  return fs.Remove(folder);
}

absl::StatusOr<std::vector<CheckpointName>> ListCheckpoints(FileSystem& fs,
                                                            const std::string& job_folder) {
  const absl::StatusOr<std::vector<std::string>> names = fs.List(job_folder);
  std::vector<CheckpointName> checkpoints;
  if (absl::IsNotFound(names.status())) return checkpoints;
  TESSERA_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const std::optional<CheckpointName> checkpoint = ParseCheckpointFolder(name);
    if (!checkpoint.has_value()) continue;
    const absl::Status opened = fs.Open(ManifestPath(absl::StrCat(job_folder, "/", name))).status();
    if (absl::IsNotFound(opened)) continue;
    checkpoints.push_back(*checkpoint);
  }
  std::sort(checkpoints.rbegin(), checkpoints.rend());
  return checkpoints;
}

}  // namespace tessera
