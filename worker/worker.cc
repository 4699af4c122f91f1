#include "worker/worker.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/node.h"
#include "common/file_system.h"
#include "common/log.h"
#include "common/metrics/process_metrics.h"
#include "common/process/no_thread.h"
#include "common/process/resident.h"
#include "common/rpc/address.h"
#include "common/rpc/metrics_service.h"
#include "common/status_macros.h"
#include "common/task_pool.h"
#include "worker/assignment/cancellation.h"
#include "worker/assignment/status_board.h"
#include "worker/assignment/worker_metrics.h"
#include "worker/device.h"
#include "worker/job_runner.h"
#include "worker/ring/ring_service.h"

namespace tessera::worker {
namespace {

constexpr char kScratchName[] = "tessera-worker-";
// A folder younger than this may belong to a worker that has not locked it yet.
constexpr absl::Duration kLocksWithin = absl::Minutes(1);

// Removes scratch folders of this user's workers that were killed.
void RemoveAbandoned(const std::filesystem::path& parent) {
  std::error_code error;
  std::filesystem::directory_iterator entry(parent, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::filesystem::path path = entry->path();
    struct stat of = {};
    if (!absl::StartsWith(path.filename().string(), kScratchName) ||
        ::lstat(path.c_str(), &of) != 0 || !S_ISDIR(of.st_mode) || of.st_uid != ::geteuid() ||
        absl::Now() - absl::TimeFromTimespec(of.st_mtim) < kLocksWithin) {
      continue;
    }
    std::error_code ignored;
    const auto lock = FolderLock::Take(path.string());
    if (lock.ok()) std::filesystem::remove_all(path, ignored);
  }
}

absl::StatusOr<std::string> NewScratchFolder() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  std::string folder = (parent / absl::StrCat(kScratchName, "XXXXXX")).string();
  if (error || ::mkdtemp(folder.data()) == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot create a scratch folder ", folder, "; name one with --scratch-dir"));
  }
  RemoveAbandoned(parent);
  return folder;
}

// More threads than this do not parse faster: memory is the limit.
constexpr int kMostReadThreads = 4;

class WorkerImpl final : public Worker {
 public:
  WorkerImpl(Options options, std::string scratch, std::unique_ptr<FolderLock> lock)
      : options_(std::move(options)),
        scratch_(std::move(scratch)),
        scratch_lock_(std::move(lock)),
        own_registry_(options_.metrics == nullptr ? std::make_unique<MetricsRegistry>() : nullptr),
        registry_(options_.metrics == nullptr ? *own_registry_ : *options_.metrics),
        metrics_(registry_),
        process_collector_(
            AddProcessMetrics(registry_, "worker",
                              options_.server.has_value() ? options_.server->security : nullptr)),
        metrics_service_(&registry_),
        ring_service_(&partials_),
        board_(SystemClock()),
        pool_(options_.compute_threads - 1),
        read_pool_(std::min(kMostReadThreads, options_.compute_threads) - 1),
        thread_([this] { RunAssignments(); }) {}

  absl::Status Begin() {
    ClusterNode::Options node;
    if (options_.server.has_value()) {
      TESSERA_ASSIGN_OR_RETURN(
          server_, RpcServer::Start(*options_.server, {&metrics_service_, &ring_service_}));
      SPDLOG_INFO("listening on {}", server_->address());
      if (!IsWildcard(server_->address())) node.hello.set_address(server_->address());
    }
    node.master_address = options_.master_address;
    node.hello.set_kind(v1::WORKER);
    node.hello.set_name(options_.name);
    node.channels = options_.channels;
    node_ = ClusterNode::Start(std::move(node),
                               {.heartbeat = [this] { return Heartbeat(); },
                                .welcome = [this](const v1::Welcome& w) { SetIncarnation(w); },
                                .assignment = [this](const v1::Assignment& a) { SetAssignment(a); },
                                .lost = [this](const absl::Status&) { SetAssignment({}); },
                                .fatal = [this](const absl::Status& s) { SetFatal(s); }});
    return absl::OkStatus();
  }

  ~WorkerImpl() override {
    Stop();
    if (options_.scratch_folder.empty()) PosixFileSystem().Remove(scratch_).IgnoreError();
  }

  void Stop() override {
    Leave();
    if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
  }

  void Leave() override {
    if (server_ != nullptr) server_->SayNotServing();
    if (node_ != nullptr) node_->Stop();
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
      if (cancellation_ != nullptr) cancellation_->Cancel();
    }
    if (thread_.joinable()) thread_.join();
  }

  std::string address() const override { return server_ == nullptr ? "" : server_->address(); }

  absl::Status WaitForFatal(absl::Duration limit) override {
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(this, &WorkerImpl::IsFatal), limit);
    return fatal_;
  }

 private:
  bool IsFatal() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !fatal_.ok(); }
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || has_news_; }

  // For an assignment, or the end.
  void AwaitNews(KeptSource* kept) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      const absl::Duration limit =
          kept->source == nullptr ? absl::InfiniteDuration() : options_.keep_data_for;
      if (mu_.AwaitWithTimeout(absl::Condition(this, &WorkerImpl::HasNews), limit)) return;
    }
    kept->source.reset();
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(this, &WorkerImpl::HasNews));
  }

  v1::Heartbeat Heartbeat() {
    v1::Heartbeat heartbeat;
    heartbeat.set_doing(board_.doing());
    heartbeat.set_resident_bytes(ResidentBytes());
    for (std::string& wait : board_.waits()) heartbeat.add_waits(std::move(wait));
    *heartbeat.mutable_pace() = TakePace();
    return heartbeat;
  }

  v1::Pace TakePace() {
    v1::Pace all;
    const double push = metrics_.push_seconds.Value();
    all.set_steps(static_cast<uint64_t>(metrics_.steps.Value()));
    all.set_own_seconds(metrics_.read_seconds.Value() + metrics_.compute_seconds.Value() + push);
    all.set_ps_seconds(metrics_.pull_seconds.Value() + push);
    all.set_seconds(all.own_seconds() + metrics_.pull_seconds.Value() +
                    metrics_.reduce_seconds.Value());
    v1::Pace pace;
    pace.set_steps(all.steps() - said_.steps());
    pace.set_seconds(all.seconds() - said_.seconds());
    pace.set_own_seconds(all.own_seconds() - said_.own_seconds());
    pace.set_ps_seconds(all.ps_seconds() - said_.ps_seconds());
    said_ = all;
    for (const auto& [ps, calls] : board_.TakeCalls()) {
      v1::PsCalls* const out = pace.add_calls();
      out->set_ps(ps);
      out->set_calls(calls.calls);
      out->set_seconds(absl::ToDoubleSeconds(calls.time));
    }
    return pace;
  }

  void SetIncarnation(const v1::Welcome& welcome) {
    SPDLOG_INFO("joined as {} (incarnation {})", welcome.name(), welcome.incarnation());
    absl::MutexLock lock(&mu_);
    incarnation_ = welcome.incarnation();
  }

  // Replaces what is under way; an empty assignment ends it. If only addresses of ps or of other
  // ranks differ, what is under way goes on with the new addresses.
  void SetAssignment(const v1::Assignment& assignment) {
    absl::MutexLock lock(&mu_);
    if (cancellation_ != nullptr) {
      if (!cancellation_->cancelled() && running_.job_id() == assignment.job_id() &&
          running_.generation() == assignment.generation() &&
          running_.rank() == assignment.rank() && running_as_ == incarnation_) {
        ps_->Update(assignment.partitions());
        ranks_->Update(assignment);
        return;
      }
      cancellation_->Cancel();
    }
    next_ = assignment;
    has_news_ = true;
  }

  void SetFatal(const absl::Status& status) {
    {
      absl::MutexLock lock(&mu_);
      if (!fatal_.ok()) return;
      fatal_ = status;
    }
    if (server_ != nullptr) server_->SayNotServing();
    if (options_.on_fatal) options_.on_fatal(status);
  }

  void RunAssignments() {
    StoppableFileSystem files(PosixFileSystem());
    KeptSource kept_source;
    kept_source.files = &files;
    while (true) {
      auto cancellation = std::make_unique<Cancellation>();
      JobRunner::Options run;
      v1::Assignment assignment;
      AwaitNews(&kept_source);
      {
        absl::MutexLock lock(&mu_);
        if (stopping_) return;
        has_news_ = false;
        if (next_.job_id().empty()) continue;
        assignment = running_ = next_;
        run.incarnation = running_as_ = incarnation_;
        run.cancellation = cancellation.get();
        cancellation_ = std::move(cancellation);
        ps_ = std::make_unique<PsDirectory>(assignment.partitions(), options_.channels);
        run.ps = ps_.get();
        ranks_ = std::make_unique<RankDirectory>(assignment, options_.channels);
        run.ranks = ranks_.get();
      }
      run.data_root = options_.data_root;
      run.pool = &pool_;
      run.read_pool = &read_pool_;
      run.scratch_folder = scratch_;
      run.data_cache_bytes = options_.data_cache_bytes;
      run.output_root = options_.output_root;
      run.device = options_.device;
      run.share_memory = options_.share_memory;
      run.connect_master = [this] { return options_.channels->Connect(options_.master_address); };
      run.kept_source = &kept_source;
      run.board = &board_;
      run.partials = &partials_;
      run.metrics = &metrics_;
      const uint64_t incarnation = run.incarnation;
      SPDLOG_INFO("{}: rank {} of {}, generation {}", assignment.job_id(), assignment.rank(),
                  assignment.workers(), assignment.generation());
      partials_.Begin({.job_id = assignment.job_id(),
                       .generation = assignment.generation(),
                       .rank = assignment.rank(),
                       .ranks = assignment.workers(),
                       .incarnation = incarnation});
      files.Resume();
      absl::Status status;
      {
        const Cancellation::Registration registration(run.cancellation, [&files] { files.Stop(); });
        status = OrNoThread("the work of a unit",
                            [&] { return JobRunner(assignment, std::move(run)).Run(); });
        SPDLOG_INFO("the training thread since the worker began: {}", metrics_.TimeByPart());
      }
      partials_.End();
      // NOT_FOUND: the job has ended, and needs its data no more. Else it may restart soon; if it
      // does not, AwaitNews frees its data.
      if (absl::IsNotFound(status)) kept_source.source.reset();
      SPDLOG_INFO("{}: {}{}", assignment.job_id(),
                  absl::IsNotFound(status) ? "" : "stopped: ", std::string(status.message()));
      board_.SetDoing("idle");
      // The card is lost, or there is no thread.
      if (absl::IsInternal(status) || absl::IsResourceExhausted(status)) return SetFatal(status);
      absl::MutexLock lock(&mu_);
      cancellation_ = nullptr;
      running_.Clear();
    }
  }

  const Options options_;
  const std::string scratch_;
  const std::unique_ptr<FolderLock> scratch_lock_;

  const std::unique_ptr<MetricsRegistry> own_registry_;  // null: the caller has given one
  MetricsRegistry& registry_;
  WorkerMetrics metrics_;
  const std::unique_ptr<MetricsRegistry::Registration> process_collector_;
  MetricsService metrics_service_;
  RingPartials partials_;
  RingService ring_service_;
  std::unique_ptr<RpcServer> server_;  // constant after Begin; null: none

  StatusBoard board_;
  v1::Pace said_;       // totals at the last heartbeat; used by the thread that makes heartbeats
  TaskPool pool_;       // for the dense graph, beside thread_
  TaskPool read_pool_;  // for the data source, beside the thread that reads

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool has_news_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t incarnation_ ABSL_GUARDED_BY(mu_) = 0;
  v1::Assignment next_ ABSL_GUARDED_BY(mu_);
  v1::Assignment running_ ABSL_GUARDED_BY(mu_);                      // while cancellation_ is set
  uint64_t running_as_ ABSL_GUARDED_BY(mu_) = 0;                     // its incarnation, likewise
  std::unique_ptr<Cancellation> cancellation_ ABSL_GUARDED_BY(mu_);  // null: nothing is under way
  std::unique_ptr<PsDirectory> ps_ ABSL_GUARDED_BY(mu_);             // for the last assignment
  std::unique_ptr<RankDirectory> ranks_ ABSL_GUARDED_BY(mu_);        // likewise
  absl::Status fatal_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
  std::unique_ptr<ClusterNode> node_;  // last: its thread calls into the members above
};

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(Options options) {
  TESSERA_RETURN_IF_ERROR(CheckDevice(options.device));
  std::string scratch = options.scratch_folder;
  if (scratch.empty()) {
    TESSERA_ASSIGN_OR_RETURN(scratch, NewScratchFolder());
  }
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<FolderLock> lock, FolderLock::Take(scratch));
  if (options.compute_threads == 0) {
    options.compute_threads = static_cast<int>(std::thread::hardware_concurrency());
  }
  auto worker =
      std::make_unique<WorkerImpl>(std::move(options), std::move(scratch), std::move(lock));
  TESSERA_RETURN_IF_ERROR(worker->Begin());
  return worker;
}

}  // namespace tessera::worker
