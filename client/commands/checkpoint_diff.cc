#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/checkpoint_commands.h"
#include "common/checkpoint/diff.h"
#include "common/file_system.h"

namespace tessera::client {
namespace {

using nlohmann::json;

struct Diff {
  std::string first;
  std::string second;
  OutputOption output;
};

json KeysJson(const TableDifference::Keys& keys) {
  return {{"rows", keys.count}, {"first_keys", keys.first}};
}

std::string KeysText(const char* what, const TableDifference::Keys& keys) {
  if (keys.count == 0) return "";
  return absl::StrCat("  ", keys.count, " ", what, ": keys ", absl::StrJoin(keys.first, ", "),
                      keys.count > keys.first.size() ? ", ..." : "", "\n");
}

std::string TableText(const TableDifference& table) {
  if (!table.shape.empty()) return absl::StrCat(table.name, ": ", table.shape, "\n");
  std::string text = absl::StrCat(table.name, ": ", table.same, " rows are the same");
  if (table.other_metadata > 0) {
    absl::StrAppend(&text, ", ", table.other_metadata, " of them with another frequency or step");
  }
  return absl::StrCat(text, "\n", KeysText("differ", table.different),
                      KeysText("only in the first", table.only_first),
                      KeysText("only in the second", table.only_second));
}

void Run(const Diff& diff, CommandContext& context) {
  const UntilInterrupted keep_going(context);
  const auto tables = DiffCheckpoints(PosixFileSystem(), diff.first, diff.second, keep_going);
  if (!tables.ok()) return context.Fail(tables.status());
  const bool equal =
      std::all_of(tables->begin(), tables->end(), [](const auto& t) { return t.equal(); });
  if (!equal) context.exit_code = kExitDiffers;
  json list = json::array();
  std::string text;
  for (const TableDifference& table : *tables) {
    list.push_back({{"name", table.name},
                    {"equal", table.equal()},
                    {"shape", table.shape},
                    {"same_rows", table.same},
                    {"other_metadata_rows", table.other_metadata},
                    {"different", KeysJson(table.different)},
                    {"only_in_first", KeysJson(table.only_first)},
                    {"only_in_second", KeysJson(table.only_second)}});
    text += TableText(table);
  }
  if (diff.output.json()) return context.Print(json{{"equal", equal}, {"tables", list}});
  context.Print(absl::StrCat(text, equal ? "equal" : "not equal"));
}

}  // namespace

void AddCheckpointDiff(CLI::App& parent, CommandContext& context) {
  CLI::App* command = parent.add_subcommand("diff", "Compare two checkpoints row by row");
  const auto diff = std::make_shared<Diff>();
  command->add_option("FOLDER", diff->first)->required();
  command->add_option("OTHER", diff->second)->required();
  diff->output.Add(*command);
  command->footer(
      R"(Verifies both on the way. They are equal if every table has the same shape, keys, embeddings and slots, to the last
bit, whatever number of ps wrote them; frequencies and last steps are counted apart, as in digests.

Exit codes: 0 equal, 4 not equal, 1 one is damaged, 3 there is none.

Example:
  tessera checkpoint diff checkpoints/clicks-1/step-000000000500 checkpoints/clicks-2/step-000000000500)");
  command->callback([diff, &context] { Run(*diff, context); });
}

}  // namespace tessera::client
