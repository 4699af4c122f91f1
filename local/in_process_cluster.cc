#include <atomic>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "common/status_macros.h"
#include "local/cluster.h"
#include "master/master.h"
#include "ps/parameter_server.h"
#include "worker/worker.h"

namespace tessera::local {
namespace {

constexpr char kMaster[] = "master";
constexpr absl::Duration kGrace = absl::Seconds(1);

class InProcessCluster final : public Cluster {
 public:
  explicit InProcessCluster(ClusterOptions options) : options_(std::move(options)) {}
  ~InProcessCluster() override { Stop(); }

  absl::Status Start() {
    FileSystem& files = PosixFileSystem();
    TESSERA_RETURN_IF_ERROR(files.CreateFolder(options_.checkpoint_root));
    const auto folder = [this](const std::string& name) {
      return absl::StrCat(options_.work_folder, "/", name);
    };
    const auto server = [this](const std::string& name) {
      ServerOptions server;
      server.listen = name;
      server.in_process = &channels_;
      return server;
    };
    master::Master::Options master;
    master.server = server(kMaster);
    master.data_dir = folder(kMaster);
    master.checkpoint_root = options_.checkpoint_root;
    master.channels = &channels_;
    master.least_run = options_.least_run;
    TESSERA_ASSIGN_OR_RETURN(master_, master::Master::Start(master));
    for (int i = 0; i < options_.ps; ++i) {
      const std::string name = absl::StrCat("ps-", i);
      ps::ParameterServer::Options ps;
      ps.server = server(name);
      ps.master_address = kMaster;
      ps.name = name;
      ps.data_folder = folder(name);
      ps.checkpoint_root = options_.checkpoint_root;
      ps.memory_bytes = options_.ps_memory_bytes;
      ps.spill_page_cache = options_.ps_page_cache;
      if (ps.memory_bytes > 0) ps.spill_folder = absl::StrCat(folder(name), "/spill");
      ps.channels = &channels_;
      ps.files = &files;
      ps.clock = &SystemClock();
      TESSERA_ASSIGN_OR_RETURN(auto started, ps::ParameterServer::Start(ps));
      ps_.push_back(std::move(started));
    }
    for (int i = 0; i < options_.workers; ++i) {
      const std::string name = absl::StrCat("worker-", i);
      worker::Worker::Options worker;
      worker.master_address = kMaster;
      worker.name = name;
      worker.data_root = options_.data_root;
      worker.scratch_folder = folder(name);
      worker.output_root = options_.output_root;
      worker.compute_threads = options_.compute_threads;
      worker.device = options_.device;
      if (options_.data_cache_bytes > 0) worker.data_cache_bytes = options_.data_cache_bytes;
      worker.channels = &channels_;
      if (options_.workers_serve) worker.server = server(name);
      worker.on_fatal = options_.on_failure;
      TESSERA_ASSIGN_OR_RETURN(auto started, worker::Worker::Start(worker));
      workers_.push_back(std::move(started));
    }
    return absl::OkStatus();
  }

  const std::string& master_address() const override { return address_; }
  Channels& channels() override { return channels_; }
  // Stops processes after those that call them.
  void Stop() override {
    if (stopped_.exchange(true)) return;
    // A server stops only when nobody calls it any more: gRPC 1.51's in-process transport can crash
    // when a call starts while its server shuts down. Workers call each other, ps call the master,
    // then the master calls the ps.
    for (auto& worker : workers_) worker->Leave();
    for (auto& worker : workers_) worker->Stop();
    for (auto& ps : ps_) ps->Leave();
    if (master_ != nullptr) master_->Stop(kGrace);
    for (auto& ps : ps_) ps->Stop(kGrace);
  }

 private:
  const ClusterOptions options_;
  const std::string address_ = kMaster;

  std::atomic<bool> stopped_ = false;
  InProcessChannels channels_;  // outlives the members below
  std::unique_ptr<master::Master> master_;
  std::vector<std::unique_ptr<ps::ParameterServer>> ps_;
  std::vector<std::unique_ptr<worker::Worker>> workers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> StartInProcessCluster(ClusterOptions options) {
  auto cluster = std::make_unique<InProcessCluster>(std::move(options));
  TESSERA_RETURN_IF_ERROR(cluster->Start());
  return cluster;
}

}  // namespace tessera::local
