#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ps/jobs/jobs.h"
#include "ps/jobs/row_source.h"
#include "tessera/v1/parameter_service.pb.h"
#include "tests/simulator/cluster_node.h"
#include "tests/simulator/disk.h"
#include "tests/simulator/world.h"

namespace tessera::simulator {

// A ps: its real core (ps::Jobs and the shards in it) behind calls that are events.
class PsNode {
 public:
  struct Options {
    const double* danger = nullptr;  // borrowed: how likely it dies at a call of its disk
    ps::Spill* spill = nullptr;      // borrowed; null: rows stay in memory
    std::function<PsNode*(const std::string& address)> find_ps;
  };
  PsNode(World* world, Network* network, MasterNode* master, FileSystem* disk, std::string name,
         Options options);

  Process& process() { return process_; }
  void Start();
  // As by SIGTERM: it ends when the master lets it, or after a while.
  void Stop();

  // ---- calls, as they arrive
  // Of the master.
  template <typename Request, typename Response>
  void Answer(Request request, uint64_t process, const Network::Reply<Response>& reply) {
    if constexpr (requires { request.set_ps_process(process); }) {
      request.set_ps_process(process);
      const absl::Status meant = jobs_->CheckMeant(request.ps_process());
      if (!meant.ok()) return reply(meant);
    }
    Serve(request, reply);
  }
  void Serve(const v1::OpenJobRequest& request, const Network::Reply<v1::OpenJobResponse>& reply);
  void Serve(const v1::CloseJobRequest& request, const Network::Reply<v1::CloseJobResponse>& reply);
  void Serve(const v1::WriteCheckpointRequest& request,
             const Network::Reply<v1::WriteCheckpointResponse>& reply);
  void Serve(const v1::FetchPartitionsRequest& request,
             const Network::Reply<v1::FetchPartitionsResponse>& reply);
  void Serve(const v1::PullRequest& request, const Network::Reply<v1::PullResponse>& reply);
  void Serve(const v1::PushRequest& request, const Network::Reply<v1::PushResponse>& reply);
  void Serve(const v1::AssignRequest& request, const Network::Reply<v1::AssignResponse>& reply);
  void Serve(const v1::ProgressRequest& request, const Network::Reply<v1::ProgressResponse>& reply);
  void Serve(const v1::WeighPartitionsRequest& request,
             const Network::Reply<v1::WeighPartitionsResponse>& reply);
  void Serve(const v1::SetFollowerRequest& request,
             const Network::Reply<v1::SetFollowerResponse>& reply);
  void Serve(const v1::ReadLogRequest& request, const Network::Reply<v1::ReadLogResponse>& reply);

 private:
  struct Fetch;
  // Of a source, as the real one's stream keeps it: it does not outlive its process.
  using Taking = std::shared_ptr<ps::RowSource>;
  using Chunks = std::vector<v1::RowChunk>;  // as they come; none: all have come

  void End(absl::string_view why);
  void ExpireWaits();
  void WriteCheckpoint(const v1::WriteCheckpointRequest& request,
                       const Network::Reply<v1::WriteCheckpointResponse>& reply);
  v1::Heartbeat Heartbeat();
  // As LogFollower: opens the shard, then asks for the log again and again.
  void BeginFollowing(const v1::OpenJobRequest& request);
  void FollowNext(const v1::OpenJobRequest& request, const std::shared_ptr<ps::JobShard>& shard);
  // Of a fetch: the next chunk from its source; of a source: one that was asked for.
  void FetchNext(const std::shared_ptr<Fetch>& fetch);
  absl::StatusOr<Taking> BeginRead(const v1::ReadPartitionsRequest& request);
  static absl::StatusOr<Chunks> ReadChunks(ps::RowSource& taking);

  World& world_;
  Network& network_;
  const Options options_;
  Process process_;
  ProcessDisk disk_;
  ClusterNode node_;
  std::unique_ptr<ps::Jobs> jobs_;
};

}  // namespace tessera::simulator
