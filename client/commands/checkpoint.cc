#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/commands.h"
#include "client/job_json.h"
#include "common/checkpoint/digest.h"
#include "common/checkpoint/manifest.h"
#include "common/file_system.h"
#include "common/status_macros.h"

namespace tessera::client {
namespace {

using nlohmann::json;

json ManifestJson(const v1::CheckpointManifest& manifest) {
  json tables = json::array();
  for (const v1::CheckpointTable& table : manifest.tables()) {
    tables.push_back({{"name", table.spec().name()},
                      {"dim", table.spec().dim()},
                      {"slot_floats", table.slot_floats()},
                      {"rows", table.rows()},
                      {"dense", table.dense()}});
  }
  json files = json::array();
  for (const v1::CheckpointFile& file : manifest.files()) {
    files.push_back(
        {{"name", file.name()}, {"bytes", file.bytes()}, {"checksum", file.checksum()}});
  }
  json evaluations = json::array();
  for (const v1::Evaluation& evaluation : manifest.evaluations()) {
    evaluations.push_back({{"split", evaluation.split()},
                           {"epoch", evaluation.epoch()},
                           {"step", evaluation.step()},
                           {"metrics", MetricsJson(evaluation)}});
  }
  return {{"job_id", manifest.job_id()},
          {"step", manifest.step()},
          {"epoch", manifest.position().epoch()},
          {"unix_ms", manifest.unix_ms()},
          {"version", manifest.version()},
          {"partitions", manifest.partition_count()},
          {"tables", tables},
          {"files", files},
          {"evaluations", evaluations}};
}

std::string ManifestText(const v1::CheckpointManifest& manifest) {
  std::string text = absl::StrCat(
      "job ", manifest.job_id(), ", step ", manifest.step(), ", written by version ",
      manifest.version(), " at ",
      absl::FormatTime(absl::FromUnixMillis(manifest.unix_ms()), absl::LocalTimeZone()),
      "\ntables\n");
  for (const v1::CheckpointTable& table : manifest.tables()) {
    absl::StrAppend(&text,
                    absl::StrFormat("  %-20s %10d rows of %d floats and %d of the optimizer\n",
                                    table.spec().name(), table.rows(), table.spec().dim(),
                                    table.slot_floats()));
  }
  absl::StrAppend(&text, "files\n");
  for (const v1::CheckpointFile& file : manifest.files()) {
    absl::StrAppend(&text, absl::StrFormat("  %-24s %12d bytes  %s\n", file.name(), file.bytes(),
                                           file.checksum()));
  }
  if (manifest.evaluations_size() > 0) {
    const v1::Evaluation& last = manifest.evaluations(manifest.evaluations_size() - 1);
    absl::StrAppend(&text, "last evaluation: ", last.split(), " ", MetricsText(last), "\n");
  }
  return text;
}

struct Folder {
  std::string path;
  OutputOption output;
};

void Digest(const Folder& folder, CommandContext& context) {
  const absl::StatusOr<std::string> digest = DigestCheckpoint(PosixFileSystem(), folder.path);
  if (!digest.ok()) return context.Fail(digest.status());
  if (folder.output.json()) return context.Print(json{{"digest", *digest}});
  context.Print(*digest);
}

void List(const Folder& folder, CommandContext& context) {
  absl::StatusOr<std::vector<std::string>> names = PosixFileSystem().List(folder.path);
  if (!names.ok()) return context.Fail(names.status());
  const auto checkpoints = ListCheckpoints(PosixFileSystem(), folder.path);
  if (!checkpoints.ok()) return context.Fail(checkpoints.status());
  if (folder.output.json()) {
    json list = json::array();
    for (const CheckpointName& checkpoint : *checkpoints) {
      list.push_back({{"name", checkpoint.name}, {"step", checkpoint.step}});
    }
    return context.Print(json{{"checkpoints", list}});
  }
  if (checkpoints->empty()) {
    return context.Print(
        absl::StrCat("no checkpoints in ", folder.path,
                     "; expected the folder of a job, with folders step-... in it"));
  }
  for (const CheckpointName& checkpoint : *checkpoints) {
    context.Print(absl::StrCat(checkpoint.name, "  step ", checkpoint.step));
  }
}

void Verify(const Folder& folder, CommandContext& context) {
  const auto manifest = VerifyCheckpoint(PosixFileSystem(), folder.path);
  if (!manifest.ok()) return context.Fail(manifest.status());
  uint64_t bytes = 0;
  for (const v1::CheckpointFile& file : manifest->files()) bytes += file.bytes();
  if (folder.output.json()) {
    return context.Print(json{{"sound", true},
                              {"step", manifest->step()},
                              {"files", manifest->files_size()},
                              {"bytes", bytes}});
  }
  context.Print(absl::StrCat("sound: step ", manifest->step(), ", ", manifest->files_size(),
                             " files, ", bytes, " bytes"));
}

void Inspect(const Folder& folder, CommandContext& context) {
  const auto manifest = ReadManifest(PosixFileSystem(), folder.path);
  if (!manifest.ok()) return context.Fail(manifest.status());
  if (folder.output.json()) return context.Print(ManifestJson(*manifest));
  context.Print(ManifestText(*manifest));
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
  AddFolderCommand(*parent, context, "list", "List the checkpoints in a job's folder, newest first",
                   R"(Example:
  tessera checkpoint list checkpoints/clicks-1)",
                   List);
  AddFolderCommand(*parent, context, "verify", "Read every file and compare its checksum",
                   R"(Exit code 1 and the name of the file where one is damaged.

Example:
  tessera checkpoint verify checkpoints/clicks-1/step-000000000500)",
                   Verify);
  AddFolderCommand(*parent, context, "inspect", "Show what the manifest says",
                   R"(Example:
  tessera checkpoint inspect checkpoints/clicks-1/step-000000000500 --output json)",
                   Inspect);
}

}  // namespace tessera::client
