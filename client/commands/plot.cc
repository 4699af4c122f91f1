#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/chart.h"
#include "client/commands/commands.h"
#include "client/curves.h"
#include "client/job_json.h"
#include "common/file_system.h"
#include "common/status_macros.h"

namespace tessera::client {
namespace {

struct Plot {
  std::vector<std::string> jobs;
  MasterOption master;
  std::string output = "curves.html";
  std::string by = "steps";
};

absl::StatusOr<nlohmann::json> JobOf(const std::string& job, JobClient& client) {
  if (!absl::EndsWith(job, ".json")) {
    TESSERA_ASSIGN_OR_RETURN(const v1::JobStatus status, client.Get(job));
    return JobJson(status);
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(PosixFileSystem(), job));
  nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(job,
                     ": expected one JSON object, as `tessera describe JOB --output json` "
                     "prints it and `tessera local` leaves it in its --work-dir"));
  }
  return object;
}

void Run(const Plot& plot, CommandContext& context) {
  const absl::Status named = CheckOutputFile(
      plot.output, "the page; `tessera describe JOB --output json` prints a job as an object");
  if (!named.ok()) return context.Fail(named);
  const std::unique_ptr<JobClient> client = plot.master.Client(context);
  std::vector<nlohmann::json> jobs;
  for (const std::string& job : plot.jobs) {
    absl::StatusOr<nlohmann::json> object = JobOf(job, *client);
    if (!object.ok()) return context.Fail(object.status());
    jobs.push_back(*std::move(object));
  }
  const CurveAxis axis = plot.by == "samples"   ? CurveAxis::kSamples
                         : plot.by == "minutes" ? CurveAxis::kMinutes
                                                : CurveAxis::kSteps;
  const absl::StatusOr<std::string> page = CurvesPage(jobs, axis);
  if (!page.ok()) return context.Fail(page.status());
  const absl::Status written = WriteOutput(plot.output, *page);
  if (!written.ok()) return context.Fail(written);
  context.Print(absl::StrCat("wrote ", plot.output, "; open it in a browser"));
}

}  // namespace

void AddPlot(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("plot", "Draw how jobs have learned, for a browser");
  const auto plot = std::make_shared<Plot>();
  command
      ->add_option(
          "JOB", plot->jobs,
          absl::StrCat("a job's id, as `tessera list` shows it, or a file NAME.json; up to ",
                       kChartColors, " side by side"))
      ->required();
  command->add_option("--output", plot->output, "the page; replaced if it is there")
      ->capture_default_str();
  command->add_option("--by", plot->by, "what the curves run along; minutes are those of training")
      ->check(CLI::IsMember({"steps", "samples", "minutes"}))
      ->capture_default_str();
  plot->master.Add(*command, context);
  command->footer(
      R"(Writes one HTML page, without scripts: every metric of the validation split, loss and AUC in training, speed, what
happened to the jobs and, of several, what differs in their specs. Of a job that trains it shows what there is so far.
A file is a job that `tessera describe JOB --output json` has printed, or the one that `tessera local` leaves in its
--work-dir.

Examples:
  tessera plot clicks-1 --output clicks.html
  tessera plot clicks-1 clicks-2 --by samples
  tessera plot run-a/clicks-1.json run-b/clicks-1.json --by minutes)");
  command->callback([plot, &context] { Run(*plot, context); });
}

}  // namespace tessera::client
