#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/commands/commands.h"
#include "client/job_json.h"
#include "common/job/defaults.h"

namespace tessera::client {
namespace {

struct List {
  MasterOption master;
  OutputOption output;
  bool nodes = false;
};

std::string JobsText(const std::vector<v1::JobStatus>& jobs) {
  if (jobs.empty()) return "no jobs; `tessera submit JOB.yaml` hands one in";
  size_t width = 4;
  for (const v1::JobStatus& job : jobs) width = std::max(width, job.job_id().size());
  std::string text = absl::StrFormat("%-*s  %-11s %9s %10s  %-26s %7s\n", static_cast<int>(width),
                                     "JOB", "STATE", "EPOCH", "STEP", "LAST METRICS", "AGE");
  for (const v1::JobStatus& job : jobs) {
    const std::string metrics =
        job.evaluations_size() == 0 ? "" : MetricsText(job.evaluations(job.evaluations_size() - 1));
    const double age =
        absl::ToDoubleSeconds(absl::Now() - absl::FromUnixMillis(job.created_unix_ms()));
    absl::StrAppend(
        &text,
        absl::StrFormat("%-*s  %-11s %9s %10d  %-26s %7s", static_cast<int>(width), job.job_id(),
                        StateName(job.state()),
                        IsTraining(job.task()) ? absl::StrCat(job.epoch(), "/", job.epochs()) : "-",
                        job.step(), metrics, ShortDuration(age)));
    if (!job.reason().empty()) absl::StrAppend(&text, "  ", job.reason());
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string NodesText(const v1::ClusterStatus& cluster) {
  if (cluster.nodes().empty()) return "no processes have joined the master";
  std::string text = absl::StrFormat("%-14s %-7s %-6s %-22s %10s %10s  %s\n", "NAME", "KIND",
                                     "ALIVE", "ADDRESS", "MEMORY", "ROWS", "DOING");
  for (const v1::NodeStatus& node : cluster.nodes()) {
    absl::StrAppend(&text, absl::StrFormat("%-14s %-7s %-6s %-22s %6d MiB %10d  %s\n", node.name(),
                                           node.kind() == v1::PS ? "ps" : "worker",
                                           node.alive() ? "yes" : "no", node.address(),
                                           node.resident_bytes() >> 20, node.rows(), node.doing()));
  }
  return text;
}

void Run(const List& list, CommandContext& context) {
  const std::unique_ptr<JobClient> client = list.master.Client(context);
  if (list.nodes) {
    const absl::StatusOr<v1::ClusterStatus> cluster = client->GetCluster();
    if (!cluster.ok()) return context.Fail(cluster.status());
    if (!list.output.json()) return context.Print(NodesText(*cluster));
    nlohmann::json nodes = nlohmann::json::array();
    for (const v1::NodeStatus& node : cluster->nodes()) nodes.push_back(NodeJson(node));
    return context.Print(nlohmann::json{{"version", cluster->version()}, {"nodes", nodes}});
  }
  const absl::StatusOr<std::vector<v1::JobStatus>> jobs = client->List();
  if (!jobs.ok()) return context.Fail(jobs.status());
  if (!list.output.json()) return context.Print(JobsText(*jobs));
  nlohmann::json objects = nlohmann::json::array();
  for (const v1::JobStatus& job : *jobs) objects.push_back(SummaryJson(job));
  context.Print(nlohmann::json{{"jobs", objects}});
}

}  // namespace

void AddList(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("list", "List the jobs, newest first, or the processes");
  const auto list = std::make_shared<List>();
  list->master.Add(*command, context);
  list->output.Add(*command);
  command->add_flag("--nodes", list->nodes, "list the processes that the master knows instead");
  command->footer(R"(Examples:
  tessera list
  tessera list --nodes
  tessera list --master trainer-1:7070 --output json)");
  command->callback([list, &context] { Run(*list, context); });
}

}  // namespace tessera::client
