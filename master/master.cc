#include "master/master.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/metrics/process_metrics.h"
#include "common/rpc/address.h"
#include "common/rpc/metrics_service.h"
#include "common/status_macros.h"
#include "master/actions/action_threads.h"
#include "master/actions/checkpoint_root.h"
#include "master/core/host.h"
#include "master/master_metrics.h"
#include "master/services/services.h"

namespace tessera::master {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);
constexpr absl::Duration kLogRetry = absl::Milliseconds(500);
constexpr absl::Duration kBetweenTold = absl::Seconds(10);

// A number above those of all jobs that have folders in the checkpoint root: the master's state may
// be younger than the checkpoints, and a new job must not take over an old one's.
absl::StatusOr<uint64_t> NextJobNumber(FileSystem& files, const std::string& root) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(root));
  uint64_t next = 1;
  for (const std::string& name : names) {
    const size_t dash = name.rfind('-');
    uint64_t number = 0;
    // Job numbers have at most ten digits in the state log's keys; a longer one is no job's folder.
    if (dash == std::string::npos || name.size() - dash > 10 ||
        !absl::SimpleAtoi(name.substr(dash + 1), &number)) {
      continue;
    }
    next = std::max(next, number + 1);
  }
  return next;
}

class MasterImpl final : public Master {
 public:
  MasterImpl(const Options& options, std::unique_ptr<StateLog> own_log, StateLog* log,
             std::unique_ptr<MasterCore> core, std::unique_ptr<CheckpointRoot> root)
      : own_registry_(options.metrics == nullptr ? std::make_unique<MetricsRegistry>() : nullptr),
        registry_(options.metrics == nullptr ? *own_registry_ : *options.metrics),
        own_log_(std::move(own_log)),
        root_(std::move(root)),
        host_(std::move(core), log, options.clock),
        actions_(
            options.channels, options.files, root_.get(),
            [this] {
              return host_.Read([](const MasterCore& core, const Now&) { return core.Starts(); });
            },
            [this](uint64_t id, ActionResult result) {
              // The end of this master cut the action short; the next master takes care of it.
              if (host_.stopped()) return;
              host_.Update([&](MasterCore& core, const Now& now) {
                core.ActionDone(id, std::move(result), now);
              });
            }),
        cluster_(&host_),
        work_(&host_),
        jobs_(&host_),
        metrics_service_(&registry_),
        process_collector_(AddProcessMetrics(registry_, "master", options.server.security)),
        collector_(AddMasterCollector(registry_, &host_)) {}
  ~MasterImpl() override { Stop(absl::ZeroDuration()); }

  // Makes the core's first writes durable before anybody hears of them.
  absl::Status Begin(const Options& options) {
    TESSERA_RETURN_IF_ERROR(host_.Flush());
    TESSERA_ASSIGN_OR_RETURN(
        server_, RpcServer::Start(options.server, {&cluster_, &work_, &jobs_, &metrics_service_}));
    // As people are to give it.
    const std::string called =
        IsWildcard(address()) ? absl::StrCat("HOST:", ParseAddress(address())->port) : address();
    host_.UpdateQuietly([&](MasterCore& core, const Now&) { core.SetAddress(called); });
    // No error: if the claim cannot be written, checkpoints cannot either, and a job that predicts
    // needs none. The first checkpoint tries again.
    if (const absl::Status claimed = root_->Claim(); !claimed.ok()) {
      SPDLOG_WARN("checkpoint root: {}", std::string(claimed.message()));
    }
    ticker_ = std::thread([this] { TickForever(); });
    actor_ = std::thread([this] { ActForever(); });
    SPDLOG_INFO("serving at {}", server_->address());
    return absl::OkStatus();
  }

  const std::string& address() const override { return server_->address(); }

  void Stop(absl::Duration grace) override {
    if (server_ == nullptr || stop_.HasBeenNotified()) return;
    stop_.Notify();
    host_.Stop();
    actions_.Stop();
    server_->Shutdown(grace);
    // Begin may have failed for want of a thread.
    if (ticker_.joinable()) ticker_.join();
    if (actor_.joinable()) actor_.join();
    if (absl::Status status = host_.Flush(); !status.ok()) {
      SPDLOG_ERROR("the last changes of state are lost: {}", std::string(status.message()));
    }
  }

 private:
  // Does what is due by time alone: leases and more.
  void TickForever() {
    while (!stop_.WaitForNotificationWithTimeout(kTick)) {
      for (auto& [id, ps] : actions_.Unanswered()) {
        host_.UpdateQuietly([&, id = id, &ps = ps](MasterCore& core, const Now&) {
          core.SetUnanswered(id, std::move(ps));
        });
      }
      host_.Update([](MasterCore& core, const Now& now) { core.Tick(now); });
      actions_.Cancel(
          host_.Read([](const MasterCore& core, const Now&) { return core.UnwantedActions(); }));
      // The other thread writes what the tick has changed, so that a disk that stalls stops no
      // lease, and is told of.
      TellUnwritten();
    }
  }

  // Makes the core's changes durable, and begins its actions, each only after the state that asks
  // for it is.
  void ActForever() {
    uint64_t seen = 0;
    while (host_.AwaitChange(&seen, absl::Seconds(1))) {
      std::vector<Action> actions = host_.UpdateQuietly([](MasterCore& core, const Now&) {
        std::vector<Action> taken;
        for (const Lane lane : kAllLanes) {
          while (std::optional<Action> action = core.TakeAction(lane)) {
            taken.push_back(*std::move(action));
          }
        }
        return taken;
      });
      while (!host_.Flush().ok() && !actions.empty()) {
        if (stop_.WaitForNotificationWithTimeout(kLogRetry)) return;
      }
      for (Action& action : actions) {
        // Not copied: an evaluation's scores may be of kMaxEvaluationBytes.
        if (!BeginSoon(std::make_shared<const Action>(std::move(action)))) return;
      }
    }
  }

  // Tries until there is a thread for the action. False: the master ends.
  bool BeginSoon(const std::shared_ptr<const Action>& action) {
    absl::Status begun = actions_.Begin(action);
    if (!begun.ok()) SPDLOG_ERROR("{}; it is tried again", std::string(begun.message()));
    while (!begun.ok()) {
      if (stop_.WaitForNotificationWithTimeout(kLogRetry)) return false;
      begun = actions_.Begin(action);
    }
    return true;
  }
  // Logs why the state is not durable: at once and every kBetweenTold, and once when it is again.
  void TellUnwritten() {
    const std::optional<CoreHost::Unwritten> unwritten = host_.unwritten();
    if (!unwritten.has_value()) {
      if (told_at_.has_value()) SPDLOG_INFO("state is durable again");
      told_at_.reset();
      return;
    }
    const bool told = told_at_.has_value() && unwritten->since >= *told_at_;
    if (told && unwritten->since < *told_at_ + kBetweenTold) return;
    told_at_ = unwritten->since;
    SPDLOG_ERROR("state is not durable: {}", std::string(unwritten->why.message()));
  }

  const std::unique_ptr<MetricsRegistry> own_registry_;  // null: registry_ is the caller's
  MetricsRegistry& registry_;
  const std::unique_ptr<StateLog> own_log_;  // null: the log is the caller's
  const std::unique_ptr<CheckpointRoot> root_;
  CoreHost host_;
  ActionThreads actions_;
  ClusterServiceImpl cluster_;
  WorkServiceImpl work_;
  JobServiceImpl jobs_;
  MetricsService metrics_service_;
  const std::unique_ptr<MetricsRegistry::Registration> process_collector_;
  const std::unique_ptr<MetricsRegistry::Registration> collector_;
  std::unique_ptr<RpcServer> server_;
  // How long the state had not been durable when the log was told last; nullopt: it is. The
  // ticker's.
  std::optional<absl::Duration> told_at_;
  absl::Notification stop_;
  std::thread ticker_;
  std::thread actor_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Master>> Master::Start(const Options& options) {
  std::unique_ptr<StateLog> own_log;
  StateLog* log = options.state_log;
  if (log == nullptr) {
    if (options.data_dir.empty()) {
      own_log = NewMemoryStateLog();
    } else {
      TESSERA_ASSIGN_OR_RETURN(own_log, OpenRocksDbStateLog(options.data_dir));
    }
    log = own_log.get();
  }
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointRoot> root,
                           CheckpointRoot::Open(options.files, options.checkpoint_root, log));
  TESSERA_ASSIGN_OR_RETURN(const auto state, log->Scan(""));
  MasterCore::Options core_options;
  core_options.membership.lease = options.lease;
  core_options.membership.heartbeat = options.heartbeat;
  core_options.settle = options.settle;
  core_options.least_run = options.least_run;
  core_options.stuck_after = options.stuck_after;
  core_options.quotas = options.quotas;
  core_options.cluster = root->cluster();
  TESSERA_ASSIGN_OR_RETURN(core_options.next_job,
                           NextJobNumber(*options.files, options.checkpoint_root));
  TESSERA_ASSIGN_OR_RETURN(
      std::unique_ptr<MasterCore> core,
      MasterCore::New(core_options, state, {options.clock->Monotonic(), options.clock->Wall()}));
  auto master = std::make_unique<MasterImpl>(options, std::move(own_log), log, std::move(core),
                                             std::move(root));
  TESSERA_RETURN_IF_ERROR(master->Begin(options));
  return master;
}

}  // namespace tessera::master
