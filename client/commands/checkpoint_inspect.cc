#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/checkpoint_commands.h"
#include "client/job_json.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "common/file_system.h"
#include "common/job/defaults.h"
#include "common/job/string_key.h"
#include "common/partition.h"
#include "common/process/number_flags.h"
#include "common/status_macros.h"

namespace tessera::client {
namespace {

using nlohmann::json;

struct Inspect {
  std::string folder;
  std::string table;
  std::vector<uint64_t> keys;
  std::string column;
  std::vector<std::string> values;  // of `column`
  OutputOption output;
};

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
  for (const v1::CheckpointFile* file : FilesOf(manifest)) {
    files.push_back(
        {{"name", file->name()}, {"bytes", file->bytes()}, {"checksum", file->checksum()}});
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
          {"samples", manifest.position().samples()},
          {"next_window", manifest.position().next_window()},
          {"best_checkpoint", manifest.position().best_checkpoint()},
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
      "\nposition: epoch ", manifest.position().epoch(), ", window ",
      manifest.position().next_window(), ", ", manifest.position().samples(),
      " samples trained\ntables\n");
  for (const v1::CheckpointTable& table : manifest.tables()) {
    absl::StrAppend(&text,
                    absl::StrFormat("  %-20s %10d rows of %d floats and %d of the optimizer\n",
                                    table.spec().name(), table.rows(), table.spec().dim(),
                                    table.slot_floats()));
  }
  absl::StrAppend(&text, "files\n");
  for (const v1::CheckpointFile* file : FilesOf(manifest)) {
    absl::StrAppend(&text, absl::StrFormat("  %-24s %12d bytes  %s\n", file->name(), file->bytes(),
                                           file->checksum()));
  }
  if (manifest.evaluations_size() > 0) {
    const v1::Evaluation& last = manifest.evaluations(manifest.evaluations_size() - 1);
    absl::StrAppend(&text, "last evaluation: ", last.split(), " ", MetricsText(last), "\n");
  }
  return text;
}

struct Row {
  std::optional<std::string> value;  // of a column of strings, if the row was asked for by value
  uint64_t key = 0;
  bool found = false;
  uint32_t frequency = 0;
  uint64_t last_step = 0;
  std::vector<float> embedding;
  std::vector<float> slots;
};

// The hash of the key space of a column of strings.
absl::StatusOr<uint64_t> KeySpaceHash(const v1::JobSpec& spec, const std::string& name) {
  std::vector<std::string> names;
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    if (column.role() != v1::SPARSE || column.type() != v1::STRING) continue;
    if (column.name() == name) return NameHash(KeySpaceOf(column));
    names.push_back(column.name());
  }
  return absl::NotFoundError(absl::StrCat("--column ", name, ": the job's columns of strings are ",
                                          names.empty() ? "none" : absl::StrJoin(names, ", "),
                                          "; of others --key takes the ids themselves"));
}

absl::StatusOr<std::vector<Row>> ReadRows(const Inspect& inspect) {
  TESSERA_ASSIGN_OR_RETURN(v1::CheckpointManifest read,
                           ReadManifest(PosixFileSystem(), inspect.folder));
  TESSERA_ASSIGN_OR_RETURN(
      const auto reader,
      CheckpointReader::Open(PosixFileSystem(), inspect.folder, std::move(read)));
  TESSERA_ASSIGN_OR_RETURN(const TableIndex table, reader->FindTable(inspect.table));
  const v1::CheckpointManifest& manifest = reader->manifest();
  const uint32_t dim = manifest.tables(static_cast<int>(table.value())).spec().dim();
  std::vector<Row> rows;
  for (const uint64_t key : inspect.keys) rows.emplace_back().key = key;
  if (!inspect.values.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const uint64_t space, KeySpaceHash(manifest.spec(), inspect.column));
    for (const std::string& value : inspect.values) {
      Row& row = rows.emplace_back();
      row.value = value;
      row.key = StringKey(space, value);
    }
  }
  for (Row& row : rows) {
    TESSERA_ASSIGN_OR_RETURN(const PartitionRows partition,
                             reader->Read(table, PartitionOf(row.key, manifest.partition_count())));
    const std::optional<uint64_t> place = partition.Find(row.key);
    if (!place.has_value()) continue;
    const absl::Span<const float> values = partition.values(*place);
    row.found = true;
    row.frequency = partition.frequency(*place);
    row.last_step = partition.last_step(*place);
    row.embedding.assign(values.begin(), values.begin() + dim);
    row.slots.assign(values.begin() + dim, values.end());
  }
  return rows;
}

std::string Floats(const std::vector<float>& values) {
  std::string text;
  for (const float value : values) absl::StrAppend(&text, " ", absl::StrFormat("%.9g", value));
  return text;
}

void PrintRows(const Inspect& inspect, const std::vector<Row>& rows, CommandContext& context) {
  json list = json::array();
  std::string text;
  for (const Row& row : rows) {
    json& object = list.emplace_back(json{{"key", row.key}, {"found", row.found}});
    if (row.value.has_value()) {
      object["value"] = *row.value;
      absl::StrAppend(&text, "\"", *row.value, "\", ");
    }
    absl::StrAppend(&text, "key ", row.key, ": ");
    if (!row.found) {
      context.exit_code = kExitNotFound;
      absl::StrAppend(&text, "no row\n");
      continue;
    }
    object.update({{"frequency", row.frequency},
                   {"last_step", row.last_step},
                   {"embedding", row.embedding},
                   {"slots", row.slots}});
    absl::StrAppend(&text, "frequency ", row.frequency, ", last step ", row.last_step,
                    "\n  embedding", Floats(row.embedding), "\n");
    if (!row.slots.empty()) absl::StrAppend(&text, "  slots    ", Floats(row.slots), "\n");
  }
  if (inspect.output.json()) {
    context.Print(json{{"table", inspect.table}, {"rows", list}});
  } else {
    context.Print(text);
  }
}

void Run(const Inspect& inspect, CommandContext& context) {
  if (!inspect.keys.empty() || !inspect.values.empty()) {
    const auto rows = ReadRows(inspect);
    if (!rows.ok()) return context.Fail(rows.status());
    return PrintRows(inspect, *rows, context);
  }
  if (!inspect.table.empty()) {
    return context.Fail(absl::InvalidArgumentError(
        absl::StrCat("--table ", inspect.table, " needs --key, or --column and --value")));
  }
  const auto manifest = ReadManifest(PosixFileSystem(), inspect.folder);
  if (!manifest.ok()) return context.Fail(manifest.status());
  if (inspect.output.json()) return context.Print(ManifestJson(*manifest));
  context.Print(ManifestText(*manifest));
}

}  // namespace

void AddCheckpointInspect(CLI::App& parent, CommandContext& context) {
  CLI::App* command =
      parent.add_subcommand("inspect", "Show what the manifest says, or rows by their keys");
  const auto inspect = std::make_shared<Inspect>();
  command->add_option("FOLDER", inspect->folder)->required();
  CLI::Option* table = command->add_option("--table", inspect->table, "of the rows to show");
  command
      ->add_option("--key", inspect->keys,
                   "show the row of this key, with its slots; may be repeated")
      ->transform(WholeNumber())
      ->needs(table);
  CLI::Option* column =
      command->add_option("--column", inspect->column, "of strings: whose values to show");
  CLI::Option* values = command->add_option(
      "--value", inspect->values, "show the row of this value of --column; may be repeated");
  values->needs(table)->needs(column);
  column->needs(values);
  inspect->output.Add(*command);
  command->footer(
      R"(Slots are the optimizer's, in the order that the ps keeps them in a row. Exit code 3 where a key has no row. Each row is checked
against the checksum of its partition's rows in their own file; that the files are those of the manifest is for `tessera
checkpoint verify` to say, which reads them whole.

Examples:
  tessera checkpoint inspect checkpoints/clicks-1/step-000000000500 --output json
  tessera checkpoint inspect checkpoints/clicks-1/step-000000000500 --table embedding --key 7 --key 8
  tessera checkpoint inspect FOLDER --table embedding --column tags --value sale)");
  command->callback([inspect, &context] { Run(*inspect, context); });
}

}  // namespace tessera::client
