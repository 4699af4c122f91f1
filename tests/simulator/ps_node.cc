#include "tests/simulator/ps_node.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "ps/calls/call_frames.h"
#include "ps/jobs/log_follower.h"
#include "tests/simulator/master_node.h"

namespace tessera::simulator {
namespace {

constexpr absl::Duration kExpireEvery = absl::Milliseconds(200);
constexpr absl::Duration kLongestWait = absl::Seconds(20);
constexpr absl::Duration kLeaveWithin = absl::Seconds(10);
constexpr size_t kChunkBytes = 500;
// Of sightings: a chunk has those of one partition.
constexpr size_t kChunksAtOnce = 512;

// A message as it lies on the wire.
grpc::ByteBuffer Frame(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

absl::StatusOr<v1::PullResponse> Parse(const grpc::ByteBuffer& frame) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  v1::PullResponse response;
  if (!frame.Dump(&slices).ok()) return absl::InternalError("an answer that cannot be read");
  for (const grpc::Slice& slice : slices) bytes.append(slice.begin(), slice.end());
  if (!response.ParseFromString(bytes)) return absl::InternalError("no PullResponse");
  return response;
}

}  // namespace

// Rows under way to this ps.
struct PsNode::Fetch {
  v1::FetchPartitionsRequest request;
  Network::Reply<v1::FetchPartitionsResponse> reply;
  std::shared_ptr<ps::JobShard> staged;
  v1::FetchPartitionsResponse response;
  int source = 0;
  Taking taking;  // of the source; null: not begun
};

PsNode::PsNode(World* world, Network* network, MasterNode* master, FileSystem* disk,
               std::string name, Options options)
    : world_(*world),
      network_(*network),
      options_(std::move(options)),
      process_(world, std::move(name)),
      disk_(disk, &process_, options_.danger),
      node_(&process_, network, master, v1::PS,
            {.heartbeat = [this] { return Heartbeat(); },
             .welcome = [](uint64_t) {},
             .assignment = [](const v1::Assignment&) {},
             .lost =
                 [this] { jobs_->CloseAll(absl::UnavailableError("this ps has lost the master")); },
             .released = [this] { End("with the master's leave, or without a master"); }}) {
  process_.on_kill = [this] {
    // Pulls that wait keep their shards.
    jobs_->CloseAll(absl::UnavailableError("this ps is dead"));
    jobs_ = nullptr;
  };
}

void PsNode::Start() {
  process_.Start();
  world_.Tell(process_.name(), " starts");
  ps::JobShard::Options options;
  options.clock = &world_;
  options.files = &disk_;
  options.spill = options_.spill;
  options.checkpoint_root = "root";
  options.log_root = absl::StrCat("logs/", process_.name());
  jobs_ = std::make_unique<ps::Jobs>(options, ClusterNode::ProcessOf(process_));
  process_.After(absl::ZeroDuration(), [this] { node_.Begin(); });
  process_.After(kExpireEvery, [this] { ExpireWaits(); });
}

void PsNode::Stop() {
  if (!process_.alive()) return;
  world_.Tell(process_.name(), " is to stop");
  process_.After(kLeaveWithin, [this] { End("without the master's leave"); });
  process_.After(absl::ZeroDuration(), [this] { node_.AskForLeave(); });
}

void PsNode::End(absl::string_view why) {
  world_.Tell(process_.name(), " stops ", why);
  process_.Die();
}

void PsNode::ExpireWaits() {
  for (const auto& shard : jobs_->All()) shard->Expire();
  process_.After(kExpireEvery, [this] { ExpireWaits(); });
}

void PsNode::Serve(const v1::OpenJobRequest& request,
                   const Network::Reply<v1::OpenJobResponse>& reply) {
  if (!request.follow().empty()) {
    const absl::StatusOr<bool> is_new = jobs_->BeginFollowing(request);
    world_.Tell(process_.name(), " is to follow ", request.follow(), " as pair ", request.pair(),
                ": ", is_new.status().ToString());
    if (!is_new.ok()) return reply(is_new.status());
    if (*is_new) BeginFollowing(request);
    return reply(v1::OpenJobResponse());
  }
  const auto shard = jobs_->Open(request);
  world_.Tell(process_.name(), " opens generation ", request.generation(),
              request.recover() ? " from its log: " : ": ", shard.status().ToString());
  if (!shard.ok()) return reply(shard.status());
  if (request.take_over() > 0) (*shard)->FinishTakeOver();
  v1::OpenJobResponse response;
  response.set_rows((*shard)->rows());
  reply(response);
}

void PsNode::Serve(const v1::CloseJobRequest& request,
                   const Network::Reply<v1::CloseJobResponse>& reply) {
  const absl::Status closed = jobs_->Close(request.job_id(), request.generation());
  closed.ok() ? reply(v1::CloseJobResponse()) : reply(closed);
}

void PsNode::Serve(const v1::WriteCheckpointRequest& request,
                   const Network::Reply<v1::WriteCheckpointResponse>& reply) {
  if (options_.spill == nullptr || request.phase() != v1::WriteCheckpointRequest::WRITE) {
    return WriteCheckpoint(request, reply);
  }
  // Training goes on, and rows come and leave, between the cut and when its rows are read.
  process_.After(world_.Between(absl::ZeroDuration(), absl::Seconds(1)),
                 [this, request, reply] { WriteCheckpoint(request, reply); });
}

void PsNode::WriteCheckpoint(const v1::WriteCheckpointRequest& request,
                             const Network::Reply<v1::WriteCheckpointResponse>& reply) {
  const auto shard = jobs_->Find(request.job_id(), request.generation());
  if (!shard.ok()) return reply(shard.status());
  const absl::StatusOr<v1::WriteCheckpointResponse> done =
      (*shard)->WriteCheckpoint(request, world_.Monotonic());
  if (!done.ok() || !(*shard)->IsReplicated(request)) return reply(done);
  (*shard)->AwaitFollower(
      [reply, done](const absl::Status& status) { status.ok() ? reply(*done) : reply(status); });
}

void PsNode::Serve(const v1::PullRequest& request, const Network::Reply<v1::PullResponse>& reply) {
  auto shard = jobs_->Find(request.header().job_id(), request.header().generation());
  if (!shard.ok()) return reply(shard.status());
  absl::StatusOr<ps::PullCall> call = ps::ReadPull(Frame(request));
  if (!call.ok()) return reply(call.status());
  ps::JobShard& job = **shard;
  job.Pull(*std::move(call), world_.Monotonic() + kLongestWait,
           [reply, keep = *std::move(shard)](absl::StatusOr<ps::PullAnswer> answer) {
             if (!answer.ok()) return reply(answer.status());
             reply(Parse(ps::WriteAnswer(*std::move(answer))));
           });
}

void PsNode::Serve(const v1::PushRequest& request, const Network::Reply<v1::PushResponse>& reply) {
  const auto shard = jobs_->Find(request.header().job_id(), request.header().generation());
  if (!shard.ok()) return reply(shard.status());
  absl::StatusOr<ps::PushCall> call = ps::ReadPush(Frame(request));
  const absl::Status pushed = call.ok() ? (*shard)->Push(*std::move(call)) : call.status();
  if (!pushed.ok()) return reply(pushed);
  (*shard)->AwaitFollower([reply](const absl::Status& status) {
    status.ok() ? reply(v1::PushResponse()) : reply(status);
  });
}

void PsNode::Serve(const v1::AssignRequest& request,
                   const Network::Reply<v1::AssignResponse>& reply) {
  const auto shard = jobs_->Find(request.header().job_id(), request.header().generation());
  const absl::Status assigned = shard.ok() ? (*shard)->Assign(request) : shard.status();
  if (!assigned.ok()) return reply(assigned);
  (*shard)->AwaitFollower([reply](const absl::Status& status) {
    status.ok() ? reply(v1::AssignResponse()) : reply(status);
  });
}

void PsNode::Serve(const v1::ProgressRequest& request,
                   const Network::Reply<v1::ProgressResponse>& reply) {
  const auto shard = jobs_->Find(request.header().job_id(), request.header().generation());
  if (!shard.ok()) return reply(shard.status());
  const auto progress = (*shard)->GetProgress(request);
  if (!progress.ok()) return reply(progress.status());
  (*shard)->AwaitFollower([reply, progress](const absl::Status& status) {
    status.ok() ? reply(*progress) : reply(status);
  });
}

void PsNode::Serve(const v1::WeighPartitionsRequest& request,
                   const Network::Reply<v1::WeighPartitionsResponse>& reply) {
  const auto shard = jobs_->Find(request.job_id(), request.generation());
  if (!shard.ok()) return reply(shard.status());
  reply((*shard)->WeighPartitions());
}

void PsNode::Serve(const v1::SetFollowerRequest& request,
                   const Network::Reply<v1::SetFollowerResponse>& reply) {
  const auto shard = jobs_->Find(request.job_id(), request.generation());
  const absl::Status set =
      shard.ok() ? (*shard)->SetFollower(request.pair(), request.follower()) : shard.status();
  set.ok() ? reply(v1::SetFollowerResponse()) : reply(set);
}

void PsNode::Serve(const v1::ReadLogRequest& request,
                   const Network::Reply<v1::ReadLogResponse>& reply) {
  const auto shard = jobs_->Find(request.job_id(), request.generation());
  if (!shard.ok()) return reply(shard.status());
  (*shard)->ReadLog(request, world_.Monotonic() + absl::Seconds(1),
                    [reply, keep = *shard](const auto& read) { reply(read); });
}

void PsNode::BeginFollowing(const v1::OpenJobRequest& request) {
  // It takes a while.
  process_.After(world_.Between(absl::ZeroDuration(), absl::Milliseconds(500)), [this, request] {
    const auto shard = jobs_->OpenFollower(request);
    if (!shard.ok()) return jobs_->FollowingFailed(request, shard.status());
    FollowNext(request, *shard);
  });
}

void PsNode::FollowNext(const v1::OpenJobRequest& request,
                        const std::shared_ptr<ps::JobShard>& shard) {
  if (!jobs_->CheckFollowing(request).ok()) return;
  PsNode* const peer = options_.find_ps(request.follow());
  network_.Call<v1::ReadLogResponse>(
      process_, peer->process(), absl::Seconds(10),
      [peer, read = shard->NextRead()](const Network::Reply<v1::ReadLogResponse>& reply) {
        peer->Serve(read, reply);
      },
      [this, request, shard](const absl::StatusOr<v1::ReadLogResponse>& read) {
        const absl::Status status = read.ok() ? shard->Follow(*read) : read.status();
        if (!status.ok() && !ps::MayFollowAgain(status)) {
          world_.Tell(process_.name(), " follows no more: ", status.ToString());
          return jobs_->FollowingFailed(request, status);
        }
        const absl::Duration wait = status.ok()
                                        ? absl::ZeroDuration()
                                        : world_.Between(absl::Milliseconds(20), absl::Seconds(1));
        process_.After(wait, [this, request, shard] { FollowNext(request, shard); });
      },
      Network::Arrives::kOnceOrTwice);
}

v1::Heartbeat PsNode::Heartbeat() {
  v1::Heartbeat heartbeat;
  for (const auto& shard : jobs_->All()) {
    v1::JobOnPs& job = *heartbeat.add_jobs();
    job.set_job_id(shard->request().job_id());
    job.set_generation(shard->request().generation());
    job.set_log_share(shard->log_share());
    job.set_replica(shard->replica());
    job.set_replica_wait_ms(
        static_cast<uint64_t>(absl::ToInt64Milliseconds(shard->replica_wait())));
    for (std::string& wait : shard->Waits()) job.add_waits(std::move(wait));
  }
  for (v1::JobOnPs& followed : jobs_->Followed()) *heartbeat.add_jobs() = std::move(followed);
  return heartbeat;
}

void PsNode::Serve(const v1::FetchPartitionsRequest& request,
                   const Network::Reply<v1::FetchPartitionsResponse>& reply) {
  if (request.drop()) {
    jobs_->DropStaged(request.open().job_id(), request.open().generation(), request.open().move());
    return reply(v1::FetchPartitionsResponse());
  }
  auto staged = jobs_->Stage(request.open(), request.changed());
  if (!staged.ok()) return reply(staged.status());
  const auto fetch = std::make_shared<Fetch>();
  fetch->request = request;
  fetch->reply = reply;
  fetch->staged = *std::move(staged);
  FetchNext(fetch);
}

void PsNode::FetchNext(const std::shared_ptr<Fetch>& fetch) {
  if (fetch->source == fetch->request.sources_size()) {
    fetch->staged->received_log().Sync();
    return fetch->reply(fetch->response);
  }
  const v1::FetchPartitionsRequest::Source& source = fetch->request.sources(fetch->source);
  PsNode* const peer = options_.find_ps(source.address());
  v1::ReadPartitionsRequest read;
  read.set_job_id(fetch->request.open().job_id());
  read.set_generation(fetch->request.open().take_over());
  *read.mutable_partitions() = source.partitions();
  read.set_changed(fetch->request.changed());
  read.set_move(fetch->request.open().move());
  read.set_steps(fetch->request.steps());
  read.set_ps_process(source.ps_process());
  if (fetch->taking == nullptr) {
    network_.Call<Taking>(
        process_, peer->process(), absl::Minutes(30),
        [peer, read](const Network::Reply<Taking>& reply) { reply(peer->BeginRead(read)); },
        [this, fetch](const absl::StatusOr<Taking>& taking) {
          if (!taking.ok()) return fetch->reply(taking.status());
          fetch->taking = *taking;
          FetchNext(fetch);
        },
        Network::Arrives::kOnce);
    return;
  }
  network_.Call<Chunks>(
      process_, peer->process(), absl::Minutes(30),
      [taking = fetch->taking](const Network::Reply<Chunks>& reply) { reply(ReadChunks(*taking)); },
      [this, fetch](const absl::StatusOr<Chunks>& chunks) {
        if (!chunks.ok()) return fetch->reply(chunks.status());
        for (const v1::RowChunk& chunk : *chunks) {
          const absl::StatusOr<uint64_t> rows =
              fetch->staged->Receive(chunk, /*training_stands=*/fetch->request.steps() > 0);
          if (!rows.ok()) return fetch->reply(rows.status());
          fetch->response.set_rows(fetch->response.rows() + *rows);
          fetch->response.set_bytes(fetch->response.bytes() + chunk.records().size());
        }
        if (chunks->empty()) {
          fetch->taking = nullptr;
          ++fetch->source;
        }
        FetchNext(fetch);
      },
      Network::Arrives::kOnce);
}

absl::StatusOr<PsNode::Taking> PsNode::BeginRead(const v1::ReadPartitionsRequest& request) {
  TESSERA_RETURN_IF_ERROR(jobs_->CheckMeant(request.ps_process()));
  TESSERA_ASSIGN_OR_RETURN(auto shard, jobs_->Find(request.job_id(), request.generation()));
  const auto taking = std::make_shared<ps::RowSource>(request, std::move(shard), kChunkBytes);
  TESSERA_RETURN_IF_ERROR(taking->Begin(world_.Monotonic()));
  return taking;
}

absl::StatusOr<PsNode::Chunks> PsNode::ReadChunks(ps::RowSource& taking) {
  Chunks chunks;
  while (chunks.size() < kChunksAtOnce) {
    v1::RowChunk& chunk = chunks.emplace_back();
    TESSERA_ASSIGN_OR_RETURN(const bool more, taking.MakeNext(chunk));
    if (!more) chunks.pop_back();
    if (!more || !chunk.has_sightings_of()) break;
  }
  return chunks;
}

}  // namespace tessera::simulator
