#include <optional>

#include "absl/strings/str_cat.h"
#include "client/commands/checkpoint_commands.h"
#include "client/commands/commands.h"
#include "common/checkpoint/digest.h"
#include "common/checkpoint/manifest.h"
#include "common/file_system.h"
#include "common/status_macros.h"

namespace tessera::client {
namespace {

using nlohmann::json;

struct Folder {
  std::string path;
  OutputOption output;
};

void Digest(const Folder& folder, CommandContext& context) {
  const UntilInterrupted keep_going(context);
  const absl::StatusOr<std::string> digest =
      DigestCheckpoint(PosixFileSystem(), folder.path, keep_going);
  if (!digest.ok()) return context.Fail(digest.status());
  if (folder.output.json()) return context.Print(json{{"digest", *digest}});
  context.Print(*digest);
}

struct Listed {
  std::string name;              // below the folder asked for
  std::optional<uint64_t> step;  // none: of a folder that cannot be listed
  absl::StatusOr<v1::CheckpointManifest> manifest;
};

absl::Status ListJob(const std::string& folder, const std::string& prefix,
                     std::vector<Listed>& list) {
  TESSERA_ASSIGN_OR_RETURN(const auto checkpoints, ListCheckpoints(PosixFileSystem(), folder));
  for (const CheckpointName& checkpoint : checkpoints) {
    Listed& listed = list.emplace_back();
    listed.name = prefix + checkpoint.name;
    listed.step = checkpoint.step;
    listed.manifest = ReadManifest(PosixFileSystem(), absl::StrCat(folder, "/", checkpoint.name));
  }
  return absl::OkStatus();
}

// The checkpoints of a job's folder, or of all jobs below a root.
absl::StatusOr<std::vector<Listed>> ListFolder(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const auto names, PosixFileSystem().List(folder));
  std::vector<Listed> list;
  TESSERA_RETURN_IF_ERROR(ListJob(folder, "", list));
  if (!list.empty()) return list;
  for (const std::string& name : names) {
    const absl::Status listed =
        ListJob(absl::StrCat(folder, "/", name), absl::StrCat(name, "/"), list);
    if (!listed.ok()) list.push_back({name, std::nullopt, listed});
  }
  return list;
}

uint64_t Bytes(const v1::CheckpointManifest& manifest) {
  uint64_t bytes = 0;
  for (const v1::CheckpointFile* file : FilesOf(manifest)) bytes += file->bytes();
  return bytes;
}

void List(const Folder& folder, CommandContext& context) {
  const auto checkpoints = ListFolder(folder.path);
  if (!checkpoints.ok()) return context.Fail(checkpoints.status());
  json list = json::array();
  std::string text;
  for (const Listed& listed : *checkpoints) {
    json object = {{"name", listed.name}};
    text += listed.name;
    if (listed.step.has_value()) {
      object["step"] = *listed.step;
      absl::StrAppend(&text, "  step ", *listed.step);
    }
    if (listed.manifest.ok()) {
      object["bytes"] = Bytes(*listed.manifest);
      object["unix_ms"] = listed.manifest->unix_ms();
      absl::StrAppend(
          &text, "  ", Bytes(*listed.manifest), " bytes  ",
          absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(listed.manifest->unix_ms()),
                           absl::LocalTimeZone()),
          "\n");
    } else {
      object["error"] = std::string(listed.manifest.status().message());
      absl::StrAppend(&text, "  ", listed.manifest.status().message(), "\n");
    }
    list.push_back(std::move(object));
  }
  if (folder.output.json()) return context.Print(json{{"checkpoints", list}});
  if (checkpoints->empty()) {
    return context.Print(absl::StrCat(
        "no checkpoints in ", folder.path,
        "; expected the folder of a job, with folders step-... in it, or one of jobs"));
  }
  context.Print(text);
}

void Verify(const Folder& folder, CommandContext& context) {
  const UntilInterrupted keep_going(context);
  // A digest reads every row: sound files may still not be all the files.
  const auto digest = DigestCheckpoint(PosixFileSystem(), folder.path, keep_going);
  if (!digest.ok()) return context.Fail(digest.status());
  const auto manifest = ReadManifest(PosixFileSystem(), folder.path);
  if (!manifest.ok()) return context.Fail(manifest.status());
  if (folder.output.json()) {
    return context.Print(json{{"sound", true},
                              {"step", manifest->step()},
                              {"files", manifest->files_size()},
                              {"bytes", Bytes(*manifest)}});
  }
  context.Print(absl::StrCat("sound: step ", manifest->step(), ", ", manifest->files_size(),
                             " files, ", Bytes(*manifest), " bytes"));
}

void AddFolderCommand(CLI::App& parent, CommandContext& context, const std::string& name,
                      const std::string& description, const std::string& footer,
                      void (*run)(const Folder&, CommandContext&)) {
  CLI::App* command = parent.add_subcommand(name, description);
  const auto folder = std::make_shared<Folder>();
  command->add_option("FOLDER", folder->path)->required();
  folder->output.Add(*command);
  command->footer(footer);
  command->callback([folder, run, &context] { run(*folder, context); });
}

}  // namespace

void AddCheckpoint(CLI::App& app, CommandContext& context) {
  CLI::App* parent = app.add_subcommand("checkpoint", "Look at checkpoints on this machine's disk");
  parent->require_subcommand(1);
  parent->footer(R"(Examples:
  tessera checkpoint list checkpoints/clicks-1
  tessera checkpoint verify checkpoints/clicks-1/step-000000000500)");
  AddFolderCommand(
      *parent, context, "digest", "Print one hash over every row, slot and parameter",
      R"(Verifies the checkpoint on the way. The same model gives the same digest, whatever number of parameter
servers wrote it: two runs of one sync job are compared so.

Example:
  tessera checkpoint digest checkpoints/clicks-1/step-000000000500)",
      Digest);
  AddFolderCommand(
      *parent, context, "list",
      "List the checkpoints of a job, newest first, or of all jobs by name",
      R"(Reads manifests only; `verify` reads all. A manifest or a job's folder that cannot be read has a line that says why.

Examples:
  tessera checkpoint list checkpoints/clicks-1
  tessera checkpoint list checkpoints --output json)",
      List);
  AddFolderCommand(*parent, context, "verify",
                   "Read every file and row, and compare checksums and counts",
                   R"(Exit code 1 and the name of the file where one is damaged or missing.

Example:
  tessera checkpoint verify checkpoints/clicks-1/step-000000000500)",
                   Verify);
  AddCheckpointInspect(*parent, context);
  AddCheckpointDiff(*parent, context);
  AddCheckpointExpiry(*parent, context);
  AddCheckpointPrune(*parent, context);
}

}  // namespace tessera::client
