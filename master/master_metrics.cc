#include "master/master_metrics.h"

#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"

namespace tessera::master {
namespace {

constexpr std::array kStates = {v1::CREATED,    v1::RUNNING,   v1::SUSPENDED,
                                v1::RESTARTING, v1::SUCCEEDED, v1::FAILED};
constexpr std::array kNodeKinds = {v1::PS, v1::WORKER};

struct View {
  std::map<v1::JobState, int> jobs;
  std::map<v1::NodeKind, size_t> nodes;
  Counts counts;
  JobTable::Ended ended;
  std::vector<v1::JobStatus> running;
  std::map<std::string, std::vector<SlowProcesses::Process>> paces;
};

View ViewOf(MasterCore& core, const Now& now) {
  View view;
  view.jobs = core.JobsByState();
  for (const v1::NodeKind kind : kNodeKinds) view.nodes[kind] = core.LiveNodes(kind);
  view.counts = core.counts();
  view.ended = core.ended();
  view.running = core.RunningJobs(now);
  view.paces = core.Paces(now);
  return view;
}

}  // namespace

std::unique_ptr<MetricsRegistry::Registration> AddMasterCollector(MetricsRegistry& registry,
                                                                  CoreHost* host) {
  return registry.AddCollector([host](MetricSamples& samples) {
    View view = host->UpdateQuietly(&ViewOf);
    for (const v1::JobState state : kStates) {
      samples.AddGauge("tessera_master_jobs",
                       "Jobs by state; of those that have ended, the ones still remembered. "
                       "Cancelled jobs count as failed.",
                       {{"state", absl::AsciiStrToLower(v1::JobState_Name(state))}},
                       view.jobs[state]);
    }
    for (const v1::NodeKind kind : kNodeKinds) {
      samples.AddGauge("tessera_master_live_nodes", "Live processes by kind.",
                       {{"kind", absl::AsciiStrToLower(v1::NodeKind_Name(kind))}},
                       static_cast<double>(view.nodes[kind]));
    }
    for (const v1::JobStatus& job : view.running) {
      const MetricLabels labels = {{"job", job.job_id()}};
      samples.AddGauge("tessera_master_job_step",
                       "Steps that the running job has done; fewer after it went back to a "
                       "checkpoint.",
                       labels, static_cast<double>(job.step()));
      samples.AddGauge("tessera_master_job_samples",
                       "Samples that the running job has trained, repeats of later epochs "
                       "included.",
                       labels, static_cast<double>(job.samples()));
      samples.AddGauge("tessera_master_job_waits",
                       "What the running job waits for: the lines that tessera describe has of "
                       "it. 0: nothing.",
                       labels, job.waits_size());
    }
    const std::optional<CoreHost::Unwritten> unwritten = host->unwritten();
    samples.AddGauge("tessera_master_state_unwritten_seconds",
                     "Seconds since the master's state could be written last, if it cannot be "
                     "written now; else 0.",
                     {}, unwritten.has_value() ? absl::ToDoubleSeconds(unwritten->since) : 0);
    for (const auto& [how, jobs] :
         {std::pair("succeeded", view.ended.succeeded), std::pair("failed", view.ended.failed),
          std::pair("cancelled", view.ended.cancelled)}) {
      samples.AddCounter("tessera_master_jobs_ended_total", "Jobs that have ended, by how.",
                         {{"how", how}}, static_cast<double>(jobs));
    }
    for (const auto& [job, processes] : view.paces) {
      for (const SlowProcesses::Process& process : processes) {
        const MetricLabels labels = {{"job", job}, {"process", process.name}};
        samples.AddGauge("tessera_master_process_seconds",
                         "Of a job that trains: a call to a ps, a worker's own part of a step, in "
                         "the mean.",
                         labels, process.seconds);
        samples.AddGauge("tessera_master_process_slow",
                         "1: it has been much slower than the job's others for some seconds.",
                         labels, process.slow ? 1 : 0);
      }
    }
    const auto count = [&](const char* name, const char* help, uint64_t value) {
      samples.AddCounter(name, help, {}, static_cast<double>(value));
    };
    count("tessera_master_units_handed_out_total",
          "Units of work given to workers, by this master. Units that a worker "
          "tries again are not given anew.",
          view.counts.units_handed_out);
    count("tessera_master_units_done_total",
          "Units of work that workers have done, those that an earlier master gave them included.",
          view.counts.units_done);
    count("tessera_master_units_failed_total", "Tries of units of work that failed.",
          view.counts.units_failed);
    count("tessera_master_set_aside_batches_total",
          "Batches left out of training because they failed again and again.",
          view.counts.set_aside_batches);
    count("tessera_master_set_aside_records_total", "Records in those batches.",
          view.counts.set_aside_records);
    count("tessera_master_job_restarts_total", "Times that a job went back to a checkpoint.",
          view.counts.restarts);
    count("tessera_master_ps_recoveries_total",
          "Times that a ps came back with its push log, and its job did not go back.",
          view.counts.ps_recoveries);
    count(
        "tessera_master_worker_takeovers_total",
        "Times that a worker took over the rank of one that was lost, and its job did not go back.",
        view.counts.worker_takeovers);
    count("tessera_master_checkpoints_committed_total", "Checkpoints committed.",
          view.counts.checkpoints_committed);
    count("tessera_master_checkpoints_failed_total", "Checkpoints that could not be written.",
          view.counts.checkpoints_failed);
  });
}

}  // namespace tessera::master
