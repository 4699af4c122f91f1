#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/commands/commands.h"
#include "client/job_json.h"
#include "common/config/job_to_yaml.h"

namespace tessera::client {
namespace {

struct Describe {
  std::string job_id;
  MasterOption master;
  OutputOption output;
  bool spec = false;
};

std::string Moment(int64_t unix_ms) {
  if (unix_ms == 0) return "not yet";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(unix_ms),
                          absl::LocalTimeZone());
}

std::string MiB(uint64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string JobText(const v1::JobStatus& job) {
  std::string text = SummaryText(job);
  absl::StrAppend(&text, "  now         ", ProgressLine(job), "\n");
  if (const std::string nodes = NodesLine(job); !nodes.empty()) {
    absl::StrAppend(&text, "  processes   ", nodes, "\n");
  }
  absl::StrAppend(&text, "  created     ", Moment(job.created_unix_ms()), "\n",  //
                  "  started     ", Moment(job.started_unix_ms()), "\n",         //
                  "  finished    ", Moment(job.finished_unix_ms()), "\n",        //
                  "  restarts    ", job.restarts(), "\n");
  if (job.has_suspending()) {
    const std::string& by = job.suspending().preempted_by();
    absl::StrAppend(&text, "  suspending  at its next barrier, since ",
                    Moment(job.suspending().since_unix_ms()),
                    by.empty() ? "" : absl::StrCat(", for ", by), "\n");
  }
  if (job.has_worker_scaling()) {
    absl::StrAppend(&text, "  workers     to go from ", job.worker_scaling().from(), " to ",
                    job.worker_scaling().to(), "\n");
  }
  if (job.spec().priority() != 0) {
    absl::StrAppend(&text, "  priority    ", job.spec().priority(), "\n");
  }
  if (!job.spec().team().empty()) {
    absl::StrAppend(&text, "  team        ", job.spec().team(), "\n");
  }
  if (job.rows() > 0) {
    absl::StrAppend(&text, "  rows        ", job.rows(), ", ", MiB(job.row_bytes()), "\n");
  }
  if (job.has_scaling()) {
    const v1::Scaling& scaling = job.scaling();
    absl::StrAppend(&text, "  moving      from ", scaling.from(), " to ", scaling.to(), " ps, ",
                    scaling.phase(), "; ", scaling.partitions(), " partitions, ", scaling.rows(),
                    " rows, ", MiB(scaling.bytes()), " copied so far\n");
  }
  if (job.shares_size() > 0) {
    absl::StrAppend(&text, "  partitions  ",
                    absl::StrJoin(job.shares(), ", ",
                                  [](std::string* out, const v1::PsShare& share) {
                                    absl::StrAppend(out, share.name(), " ", share.partitions());
                                  }),
                    "\n");
  }
  if (job.bad_records() > 0) absl::StrAppend(&text, "  bad records ", job.bad_records(), "\n");
  if (job.set_aside_records() > 0) {
    absl::StrAppend(&text, "  set aside   ", job.set_aside_records(),
                    " records of batches that could not be trained\n");
  }
  if (job.lost_steps() > 0) {
    absl::StrAppend(&text, "  lost        what at most ", job.lost_steps(),
                    " steps pushed to a ps that returned to a checkpoint alone\n");
  }
  if (job.evaluations_size() > 0) absl::StrAppend(&text, "evaluations\n");
  for (const v1::Evaluation& evaluation : job.evaluations()) {
    absl::StrAppend(&text,
                    absl::StrFormat("  epoch %3d  step %7d  %-10s %s%s\n", evaluation.epoch(),
                                    evaluation.step(), evaluation.split(), MetricsText(evaluation),
                                    evaluation.best() ? "  best" : ""));
  }
  if (job.nodes_size() > 0) absl::StrAppend(&text, "processes\n");
  for (const v1::NodeStatus& node : job.nodes()) {
    absl::StrAppend(&text, absl::StrFormat("  %-14s %-5s %-22s %6d MiB  %s\n", node.name(),
                                           node.alive() ? "live" : "lost", node.address(),
                                           node.resident_bytes() >> 20, node.doing()));
  }
  if (job.events_size() > 0) absl::StrAppend(&text, "events\n");
  for (const v1::Event& event : job.events()) {
    absl::StrAppend(&text, "  ", Moment(event.unix_ms()), "  ", event.message(), "\n");
  }
  return text;
}

void Run(const Describe& describe, CommandContext& context) {
  const absl::StatusOr<v1::JobStatus> job = describe.master.Client(context)->Get(describe.job_id);
  if (!job.ok()) return context.Fail(job.status());
  if (describe.output.json()) {
    return context.Print(describe.spec ? SpecJson(job->spec()) : JobJson(*job));
  }
  context.Print(describe.spec ? JobToYaml(job->spec()) : JobText(*job));
}

}  // namespace

void AddDescribe(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("describe", "Say all that is known about one job");
  const auto describe = std::make_shared<Describe>();
  command->add_option("JOB", describe->job_id, "the job's id, as `tessera list` shows it")
      ->required();
  describe->master.Add(*command, context);
  describe->output.Add(*command);
  command->add_flag("--spec", describe->spec,
                    "print the job alone, as it was submitted: as YAML, or with --output json "
                    "as the object that is \"spec\" of the whole");
  command->footer(R"(Examples:
  tessera describe clicks-1
  tessera describe clicks-1 --spec > again.yaml
  tessera describe clicks-1 --output json)");
  command->callback([describe, &context] { Run(*describe, context); });
}

}  // namespace tessera::client
