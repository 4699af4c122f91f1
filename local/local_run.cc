#include "local/local_run.h"

#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/job/defaults.h"
#include "common/job/job_state.h"
#include "common/status_macros.h"
#include "google/protobuf/util/message_differencer.h"

namespace tessera::local {
namespace {

constexpr absl::Duration kMasterLimit = absl::Seconds(60);
constexpr absl::Duration kCancelLimit = absl::Seconds(15);

// "modified: train.epochs: 3 -> 2; added: ..." for all fields that differ but what the job starts
// from, which a resumed one is not asked for; empty: none.
std::string Differences(v1::JobSpec submitted, v1::JobSpec given) {
  submitted.clear_start();
  given.clear_start();
  google::protobuf::util::MessageDifferencer differencer;
  std::string report;
  differencer.ReportDifferencesToString(&report);
  differencer.Compare(submitted, given);
  return absl::StrReplaceAll(absl::StripSuffix(report, "\n"), {{"\n", "; "}});
}

}  // namespace

LocalRun::LocalRun(Options options) : options_(std::move(options)) {}

void LocalRun::Cancel() {
  absl::MutexLock lock(&mu_);
  cancelled_ = true;
  if (client_ != nullptr) client_->Interrupt();
}

bool LocalRun::cancelled() const {
  absl::MutexLock lock(&mu_);
  return cancelled_;
}

void LocalRun::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (failure_.ok()) failure_ = status;
  if (client_ != nullptr) client_->Interrupt();
}

client::JobClient::Options LocalRun::ClientOptions(Cluster& cluster) const {
  client::JobClient::Options options;
  options.master_address = cluster.master_address();
  options.channels = &cluster.channels();
  options.patience = kMasterLimit;
  options.backoff.first = absl::Milliseconds(20);
  options.backoff.longest = absl::Milliseconds(500);
  return options;
}

absl::StatusOr<v1::JobStatus> LocalRun::Run() {
  ClusterOptions cluster_options = options_.cluster;
  // Only the master knows whether the workers of a resumed job call each other.
  cluster_options.workers_serve |= options_.resume || AllReduces(options_.request.spec().train());
  cluster_options.on_failure = [this](const absl::Status& status) { Fail(status); };
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                           options_.in_process ? StartInProcessCluster(std::move(cluster_options))
                                               : StartProcessCluster(std::move(cluster_options)));
  absl::StatusOr<v1::JobStatus> status = RunOn(*cluster);
  cluster->Stop();
  if (status.ok() && !status->checkpoint().empty()) {
    // A relative path is below the checkpoint root.
    const std::filesystem::path root = options_.cluster.checkpoint_root;
    status->set_checkpoint((root / status->checkpoint()).lexically_normal());
  }
  absl::MutexLock lock(&mu_);
  // A process that dies after the job has ended does no harm.
  if (!failure_.ok() && !(status.ok() && HasEnded(status->state()))) return failure_;
  return status;
}

absl::StatusOr<v1::JobStatus> LocalRun::RunOn(Cluster& cluster) {
  client::JobClient client(ClientOptions(cluster));
  {
    absl::MutexLock lock(&mu_);
    client_ = &client;
    if (cancelled_ || !failure_.ok()) client.Interrupt();
  }
  absl::StatusOr<std::string> job_id = SubmitOrResume(client);
  absl::StatusOr<v1::JobStatus> status = absl::CancelledError("interrupted");
  if (job_id.ok()) {
    status = client.Watch(*job_id, options_.on_status);
  } else {
    status = job_id.status();
  }
  bool cancel = false;
  {
    absl::MutexLock lock(&mu_);
    client_ = nullptr;
    cancel = cancelled_ && failure_.ok();
  }
  if (cancel && job_id.ok()) return CancelAndWait(cluster, *job_id);
  return status;
}

absl::StatusOr<std::string> LocalRun::SubmitOrResume(client::JobClient& client) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<v1::JobStatus> jobs, client.List());
  const v1::JobStatus* unfinished = nullptr;
  for (const v1::JobStatus& job : jobs) {
    if (!HasEnded(job.state())) unfinished = &job;
  }
  if (options_.resume) {
    if (unfinished != nullptr) {
      const auto differ = [](uint32_t asked, uint32_t had) { return had != 0 && asked != had; };
      if (differ(options_.request.workers(), unfinished->workers()) ||
          differ(options_.request.ps(), unfinished->ps())) {
        return absl::FailedPreconditionError(
            absl::StrCat(unfinished->job_id(), " runs on ", unfinished->ps(), " ps and ",
                         unfinished->workers(), " workers; resume it with --ps ", unfinished->ps(),
                         " --workers ", unfinished->workers(), ", found --ps ",
                         options_.request.ps(), " --workers ", options_.request.workers()));
      }
      // A list has no specs.
      TESSERA_ASSIGN_OR_RETURN(const v1::JobStatus job, client.Get(unfinished->job_id()));
      const std::string differences = Differences(job.spec(), options_.request.spec());
      if (!differences.empty() && options_.cluster.say) {
        options_.cluster.say(absl::StrCat(
            "warning: ", job.job_id(),
            " goes on as it was submitted; what is given otherwise now does not count: ",
            differences));
      }
      if (unfinished->state() == v1::SUSPENDED && unfinished->reason() == "Suspended") {
        TESSERA_RETURN_IF_ERROR(client.Resume(unfinished->job_id()));
      }
      return unfinished->job_id();
    }
    return absl::NotFoundError(
        absl::StrCat(options_.cluster.work_folder, " holds no unfinished job to resume"));
  }
  if (unfinished != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        options_.cluster.work_folder, " holds the unfinished job ", unfinished->job_id(),
        "; go on with it (--resume) or name another --work-dir"));
  }
  if (options_.before_submit) TESSERA_RETURN_IF_ERROR(options_.before_submit());
  return client.Submit(options_.request);
}

absl::StatusOr<v1::JobStatus> LocalRun::CancelAndWait(Cluster& cluster, const std::string& job_id) {
  client::JobClient client(ClientOptions(cluster));
  // Ends the wait below if the job does not end in time.
  absl::Mutex mu;
  bool ended = false;
  std::thread timer([&] {
    absl::MutexLock lock(&mu);
    if (!mu.AwaitWithTimeout(absl::Condition(&ended), kCancelLimit)) client.Interrupt();
  });
  absl::StatusOr<v1::JobStatus> status = absl::UnknownError("");
  if (const absl::Status cancelled = client.Cancel(job_id);
      cancelled.ok() || absl::IsFailedPrecondition(cancelled)) {
    status = client.Watch(job_id, options_.on_status);
  } else {
    status = cancelled;
  }
  {
    absl::MutexLock lock(&mu);
    ended = true;
  }
  timer.join();
  return status;
}

}  // namespace tessera::local
