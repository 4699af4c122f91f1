#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/commands.h"
#include "client/data_generator.h"
#include "common/file_system.h"
#include "common/process/number_flags.h"

namespace tessera::client {
namespace {

struct Generate {
  ClickDataOptions options;
  uint64_t samples = 200000;
  OutputOption output;
};

void Run(const Generate& generate, CommandContext& context) {
  ClickDataOptions options = generate.options;
  options.train = generate.samples;
  if (options.validation == 0) options.validation = std::max<uint64_t>(1, generate.samples / 8);
  if (options.test == 0) options.test = std::max<uint64_t>(1, generate.samples / 8);
  const bool live = DisplayOn(context.err).terminal;
  const auto splits =
      GenerateClickData(options, PosixFileSystem(), [&](uint64_t done, uint64_t total) {
        if (live) {
          std::fprintf(context.err, "\r%s of %s samples",
                       ShortNumber(static_cast<double>(done)).c_str(),
                       ShortNumber(static_cast<double>(total)).c_str());
        }
      });
  if (live) std::fprintf(context.err, "\r\x1b[K");
  if (!splits.ok()) return context.Fail(splits.status());
  if (generate.output.json()) {
    nlohmann::json object = {{"folder", options.folder}};
    for (const ClickSplit& split : *splits) {
      object["splits"][split.name] = {{"path", split.path},
                                      {"samples", split.samples},
                                      {"clicks", split.clicks},
                                      {"best_auc", split.best_auc},
                                      {"best_logloss", split.best_logloss}};
    }
    return context.Print(object);
  }
  std::string text;
  for (const ClickSplit& split : *splits) {
    absl::StrAppend(&text, absl::StrFormat("%-12s%9d samples, %5.1f%% clicks, best possible AUC "
                                           "%.4f and log loss %.4f  %s\n",
                                           split.name, split.samples,
                                           100.0 * static_cast<double>(split.clicks) /
                                               static_cast<double>(split.samples),
                                           split.best_auc, split.best_logloss, split.path));
  }
  absl::StrAppend(&text, "next: tessera local deploy/jobs/quickstart.yaml --data ", options.folder,
                  " --truth ", options.folder, "/truth.json");
  context.Print(text);
}

}  // namespace

void AddData(CLI::App& app, CommandContext& context) {
  CLI::App* parent = app.add_subcommand("data", "Make data to train on");
  parent->require_subcommand(1);
  parent->footer("Example:\n  tessera data generate --out data");
  CLI::App* command =
      parent->add_subcommand("generate", "Write click data from a truth that is known");
  const auto generate = std::make_shared<Generate>();
  command->add_option("--out", generate->options.folder, "folder to write to, created if need be")
      ->required();
  command->add_option("--samples", generate->samples, "samples to train on")
      ->transform(WholeNumber(kMostSamples, /*least=*/1))
      ->capture_default_str();
  // 0 stands for an eighth of --samples.
  generate->options.validation = 0;
  generate->options.test = 0;
  command
      ->add_option("--validation", generate->options.validation,
                   "samples to validate with; 0: an eighth of --samples")
      ->transform(WholeNumber(kMostSamples));
  command
      ->add_option("--test", generate->options.test,
                   "samples to test with; 0: an eighth of --samples")
      ->transform(WholeNumber(kMostSamples));
  command->add_option("--seed", generate->options.model.seed, "the same seed gives the same bytes")
      ->transform(WholeNumber())
      ->capture_default_str();
  command->add_flag("--force", generate->options.force,
                    "overwrite files of the same names that are not the generator's");
  generate->output.Add(*command);
  command->footer(
      R"(Writes train.csv, validation.csv, test.csv (label, d0.. dense, c0.. ids) and truth.json, which says how well
any model could do on them.

Examples:
  tessera data generate --out data
  tessera data generate --out small --samples 20000 --seed 7)");
  command->callback([generate, &context] { Run(*generate, context); });
  AddDataBehaviour(*parent, context);
}

}  // namespace tessera::client
