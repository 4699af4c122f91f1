#include "ps/parameter_server.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/cluster/node.h"
#include "common/log.h"
#include "common/metrics/process_metrics.h"
#include "common/process/resident.h"
#include "common/rpc/address.h"
#include "common/rpc/metrics_service.h"
#include "common/status_macros.h"
#include "ps/calls/shared_regions.h"
#include "ps/jobs/jobs.h"
#include "ps/memory/byte_budget.h"
#include "ps/service/parameter_service.h"
#include "ps/service/ps_metrics.h"
#include "ps/service/task_queue.h"
#include "ps/tables/row_limit.h"
#include "ps/tables/spill.h"

namespace tessera::ps {
namespace {

constexpr int kAheadThreads = 2;
constexpr uint64_t kMaxAheadBytes = 64 << 20;
constexpr int kAdministrationThreads = 16;
// The master has at most two calls under way for a job that work on all its rows: loading, or a
// checkpoint and a copy of partitions. Most of their time they sleep.
constexpr int kRowWorkThreads = 32;
constexpr uint64_t kMaxAdministrationBytes = 64 << 20;
// With a spill folder, what stays in memory may have so much however small --memory is.
constexpr uint64_t kLeastStayingBytes = 64 << 20;

std::string AdvertisedAddress(const std::string& address, const std::string& host) {
  return host.empty() ? address : absl::StrCat(host, address.substr(address.rfind(':')));
}

class ParameterServerImpl final : public ParameterServer {
 public:
  ParameterServerImpl(const Options& options, std::unique_ptr<FolderLock> folder,
                      std::unique_ptr<Spill> spill, std::unique_ptr<RowLimit> limit)
      : folder_(std::move(folder)),
        spill_(std::move(spill)),
        limit_(std::move(limit)),
        own_registry_(options.metrics == nullptr ? std::make_unique<MetricsRegistry>() : nullptr),
        registry_(options.metrics == nullptr ? *own_registry_ : *options.metrics),
        metrics_(&registry_),
        unsent_(options.max_unsent_bytes),
        held_pushes_(options.max_held_push_bytes),
        waiting_pulls_(options.max_waiting_bytes),
        cut_room_(options.max_copied_bytes),
        requests_("requests", Threads(options), options.max_queued_bytes),
        ahead_("requests that look ahead", kAheadThreads, kMaxAheadBytes),
        jobs_(
            {.clock = options.clock,
             .files = options.files,
             .checkpoint_root = options.checkpoint_root,
             .held_pushes = &held_pushes_,
             .waiting_pulls = &waiting_pulls_,
             .unsent = &unsent_,
             .cut_room = &cut_room_,
             .writer_share = options.writer_share,
             .log_root =
                 options.data_folder.empty() ? "" : absl::StrCat(options.data_folder, "/push_log"),
             .max_log_bytes = options.max_log_bytes,
             .logs = &logs_,
             .on_fuller_log = [this] { Beat(); },
             .spill = spill_.get(),
             .limit = limit_.get(),
             .run = [this](TaskQueue::Task task) { requests_.Run(std::move(task)); }},
            process_),
        administration_("administration", kAdministrationThreads, kMaxAdministrationBytes),
        row_work_("work on all rows", kRowWorkThreads, kMaxAdministrationBytes),
        regions_(options.max_shared_bytes),
        service_({.jobs = &jobs_,
                  .requests = &requests_,
                  .ahead = &ahead_,
                  .administration = &administration_,
                  .row_work = &row_work_,
                  .clock = options.clock,
                  .metrics = &metrics_,
                  .channels = options.channels,
                  .regions = &regions_,
                  .pulls_may_block = spill_ != nullptr}),
        metrics_service_(&registry_),
        process_collector_(AddProcessMetrics(registry_, "ps", options.server.security)),
        collector_(AddPsCollector(registry_, jobs_, requests_, regions_,
                                  spill_ == nullptr ? nullptr : &spill_->budget(), limit_.get())) {}

  ~ParameterServerImpl() override { Stop(absl::ZeroDuration()); }

  absl::Status Serve(const Options& options) {
    TESSERA_ASSIGN_OR_RETURN(server_,
                             RpcServer::Start(options.server, {&service_, &metrics_service_}));
    ClusterNode::Options node;
    node.master_address = options.master_address;
    node.hello.set_kind(v1::PS);
    node.hello.set_process(process_);
    node.hello.set_name(options.name);
    node.hello.set_address(AdvertisedAddress(server_->address(), options.advertise_host));
    if (IsWildcard(node.hello.address())) {
      return absl::FailedPreconditionError(
          absl::StrCat("nobody can reach this ps at ", node.hello.address(),
                       ", which stands for all addresses of the machine; name the host by which "
                       "others reach it with --advertise"));
    }
    node.channels = options.channels;
    SPDLOG_INFO("listening on {}, reached at {}", server_->address(), node.hello.address());
    node_ = ClusterNode::Start(std::move(node),
                               {.hello =
                                    [this](v1::Hello* hello) {
                                      for (std::string& id : jobs_.Logged()) {
                                        hello->add_logged_jobs(std::move(id));
                                      }
                                    },
                                .heartbeat = [this] { return Heartbeat(); },
                                .welcome = [this](const v1::Welcome& w) { Join(w); },
                                .assignment = nullptr,
                                .lost = [this](const absl::Status& s) { Forget(s); },
                                .fatal = [this](const absl::Status& s) { SetFatal(s); }});
    beating_node_ = node_.get();
    return absl::OkStatus();
  }

  const std::string& address() const override { return server_->address(); }

  // If jobs are open here, this waits for the master, too: their rows would be lost though the
  // master may be about to return, for example when it is restarted with its ps.
  bool AwaitRelease(absl::Duration limit) override {
    server_->SayNotServing();
    return node_->AwaitRelease(limit, /*awaits_master=*/!jobs_.All().empty());
  }

  void Leave() override {
    absl::MutexLock lock(&stop_mu_);
    if (server_ != nullptr) server_->SayNotServing();
    if (node_ != nullptr) node_->Stop();
  }

  void Stop(absl::Duration grace) override {
    Leave();
    absl::MutexLock lock(&stop_mu_);
    jobs_.Shutdown(absl::UnavailableError("the ps is stopping"));
    if (server_ != nullptr) server_->Shutdown(grace);
  }

  absl::Status WaitForFatal(absl::Duration limit) override {
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(this, &ParameterServerImpl::IsFatal), limit);
    return fatal_;
  }

 private:
  static int Threads(const Options& options) {
    return options.threads > 0 ? options.threads
                               : std::max(2u, std::thread::hardware_concurrency()) + 1;
  }
  void Join(const v1::Welcome& welcome) {
    SPDLOG_INFO("joined as {} (incarnation {})", welcome.name(), welcome.incarnation());
    // In a task, because it may take time and this is the thread of the heartbeats.
    row_work_.Run([this, welcome] {
      for (const std::string& id : welcome.ended_jobs()) jobs_.RemoveLogs(id);
      jobs_.RemoveForgotten(welcome.cluster(), welcome.forgotten_below());
    });
  }
  // The master decides early what is done about it.
  void Beat() {
    if (ClusterNode* const node = beating_node_) node->Beat();
  }
  bool IsFatal() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !fatal_.ok(); }

  v1::Heartbeat Heartbeat() {
    v1::Heartbeat heartbeat;
    uint64_t rows = 0;
    std::string ids;
    for (const auto& shard : jobs_.All()) {
      v1::JobOnPs& job = *heartbeat.add_jobs();
      job.set_job_id(shard->request().job_id());
      job.set_generation(shard->request().generation());
      job.set_rows(shard->rows());
      job.set_row_bytes(shard->row_bytes());
      job.set_log_share(shard->log_share());
      for (std::string& wait : shard->Waits()) job.add_waits(std::move(wait));
      job.set_replica(shard->replica());
      job.set_replica_wait_ms(
          static_cast<uint64_t>(absl::ToInt64Milliseconds(shard->replica_wait())));
      rows += job.rows();
      absl::StrAppend(&ids, ids.empty() ? "" : ", ", job.job_id());
    }
    std::string copies;
    for (v1::JobOnPs& followed : jobs_.Followed()) {
      rows += followed.rows();
      absl::StrAppend(&copies, copies.empty() ? "" : ", ", followed.job_id());
      *heartbeat.add_jobs() = std::move(followed);
    }
    std::string doing = ids.empty() ? "" : absl::StrCat("serving ", ids);
    if (!copies.empty()) {
      absl::StrAppend(&doing, doing.empty() ? "" : "; ", "has a copy of ", copies);
    }
    heartbeat.set_doing(doing.empty() ? "idle" : doing);
    heartbeat.set_rows(rows);
    heartbeat.set_resident_bytes(ResidentBytes());
    return heartbeat;
  }

  // The master takes this incarnation for dead. It opens every job again, at a new generation or
  // from its push log, so nobody can use what is open now.
  void Forget(const absl::Status& why) {
    auto shards = jobs_.CloseAll(
        absl::UnavailableError(absl::StrCat("this ps was given up (", why.message(), ")")));
    SPDLOG_WARN("{}; {} open jobs are dropped", std::string(why.message()), shards.size());
    // In a task, because freeing rows takes time and this is the thread of the heartbeats.
    row_work_.Run([shards = std::move(shards)]() mutable { shards.clear(); });
  }

  void SetFatal(const absl::Status& status) {
    server_->SayNotServing();
    absl::MutexLock lock(&mu_);
    fatal_ = status;
  }

  const std::unique_ptr<FolderLock> folder_;
  const std::unique_ptr<Spill> spill_;                   // null: rows stay in memory
  const std::unique_ptr<RowLimit> limit_;                // null: that is not bounded
  const std::unique_ptr<MetricsRegistry> own_registry_;  // null: the caller has one
  MetricsRegistry& registry_;
  PsMetrics metrics_;

  absl::Mutex mu_;
  absl::Status fatal_ ABSL_GUARDED_BY(mu_);

  std::unique_ptr<ClusterNode> node_;  // constant after Serve; after Stop it calls nobody
  // node_, once Serve has it: jobs may be opened before, and logs of followers grow until they end.
  std::atomic<ClusterNode*> beating_node_ = nullptr;

  std::atomic<uint32_t> logs_ = 0;  // push logs that are open, all on one disk

  // After Stop no call is left; then each of these is destroyed before what it uses. Tasks of the
  // queues may keep a shard until their end.
  ByteBudget unsent_;
  ByteBudget held_pushes_;
  ByteBudget waiting_pulls_;
  CutRoom cut_room_;
  TaskQueue requests_;
  TaskQueue ahead_;
  const uint64_t process_ = ClusterNode::DrawProcess();
  Jobs jobs_;
  TaskQueue administration_;
  TaskQueue row_work_;
  SharedRegions regions_;
  ParameterService service_;
  MetricsService metrics_service_;
  const std::unique_ptr<MetricsRegistry::Registration> process_collector_;
  const std::unique_ptr<MetricsRegistry::Registration> collector_;
  absl::Mutex stop_mu_;
  std::unique_ptr<RpcServer> server_;  // constant after Serve
};

}  // namespace

void ParameterServer::Options::BoundBeside(uint64_t memory) {
  const auto bound = [memory](uint64_t& bytes, uint64_t parts) {  // of 32
    bytes = std::min(bytes, memory / 32 * parts);
  };
  // The largest message and what is beside it, however little memory there is.
  constexpr uint64_t kLeastReceived = 64 << 20;
  server.max_received_bytes =
      std::min(server.max_received_bytes, std::max(memory / 4, kLeastReceived));
  bound(max_queued_bytes, 2);
  bound(max_unsent_bytes, 2);
  bound(max_copied_bytes, 4);
  bound(max_held_push_bytes, 3);
  bound(max_waiting_bytes, 1);
  bound(max_shared_bytes, 4);
}

absl::StatusOr<std::unique_ptr<ParameterServer>> ParameterServer::Start(Options options) {
  std::unique_ptr<FolderLock> folder;
  if (!options.data_folder.empty()) {
    TESSERA_ASSIGN_OR_RETURN(folder, FolderLock::Take(options.data_folder));
  }
  std::unique_ptr<Spill> spill;
  if (!options.spill_folder.empty()) {
    Spill::Options spilled;
    spilled.folder = options.spill_folder;
    spilled.memory_bytes = options.memory_bytes;
    spilled.of_process = options.memory_of_process;
    spilled.max_job_bytes = options.max_spill_bytes;
    spilled.page_cache = options.spill_page_cache;
    TESSERA_ASSIGN_OR_RETURN(spill, Spill::Open(std::move(spilled)));
  }
  std::unique_ptr<RowLimit> limit;
  if (options.memory_bytes > 0) {
    RowLimit::Options limited;
    limited.bytes = options.memory_bytes;
    if (spill != nullptr) {
      limited.spilling_bytes = options.memory_bytes / 2;
      limited.least_bytes = kLeastStayingBytes;
    }
    if (options.memory_of_process) {
      limited.resident = [] { return ResidentBytes(); };
      limited.copy_bytes = options.max_copied_bytes;
    }
    limit = std::make_unique<RowLimit>(std::move(limited));
  }
  auto server = std::make_unique<ParameterServerImpl>(options, std::move(folder), std::move(spill),
                                                      std::move(limit));
  TESSERA_RETURN_IF_ERROR(server->Serve(options));
  return server;
}

}  // namespace tessera::ps
