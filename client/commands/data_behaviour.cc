#include "absl/strings/str_cat.h"
#include "client/behaviour_data.h"
#include "client/commands/commands.h"
#include "client/data_generator.h"
#include "common/file_system.h"
#include "common/process/number_flags.h"

namespace tessera::client {
namespace {

struct Behaviour {
  BehaviourDataOptions options;
  OutputOption output;
};

void Run(const Behaviour& behaviour, CommandContext& context) {
  const BehaviourDataOptions& options = behaviour.options;
  if (absl::Status status = GenerateBehaviourData(options, PosixFileSystem()); !status.ok()) {
    return context.Fail(status);
  }
  if (behaviour.output.json()) {
    return context.Print(nlohmann::json({{"folder", options.folder},
                                         {"train", options.train},
                                         {"validation", options.validation},
                                         {"test", options.test}}));
  }
  context.Print(absl::StrCat(
      options.train, " samples to train on, ", options.validation, " to validate with, ",
      options.test, " to test with, in ", options.folder,
      "\nnext: tessera local deploy/jobs/behaviour-din.yaml ", "--data ", options.folder));
}

}  // namespace

void AddDataBehaviour(CLI::App& parent, CommandContext& context) {
  CLI::App* command = parent.add_subcommand(
      "behaviour", "Write what users with histories did, for sequences, several tasks and ranking");
  const auto behaviour = std::make_shared<Behaviour>();
  BehaviourDataOptions& options = behaviour->options;
  command->add_option("--out", options.folder, "folder to write to, created if need be")
      ->required();
  command->add_option("--samples", options.train, "samples to train on")
      ->transform(WholeNumber(kMostSamples, /*least=*/1))
      ->capture_default_str();
  command->add_option("--validation", options.validation, "samples to validate with")
      ->transform(WholeNumber(kMostSamples, /*least=*/1))
      ->capture_default_str();
  command->add_option("--test", options.test, "samples to test with")
      ->transform(WholeNumber(kMostSamples, /*least=*/1))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "the same seed gives the same bytes")
      ->transform(WholeNumber())
      ->capture_default_str();
  command->add_flag("--force", options.force, "overwrite files of the same names");
  behaviour->output.Add(*command);
  command->footer(
      R"(Writes train.csv, validation.csv and test.csv with the columns click, buy, stars, kind, weight, user, item, category,
history and categories; the last two are ids parted by '|', the latest last.

Example:
  tessera data behaviour --out behaviour-data)");
  command->callback([behaviour, &context] { Run(*behaviour, context); });
}

}  // namespace tessera::client
