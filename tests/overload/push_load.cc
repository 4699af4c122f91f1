#include "tests/overload/push_load.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/partition.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "grpcpp/client_context.h"
#include "tessera/v1/parameter_service.grpc.pb.h"
#include "tests/bench/zipf.h"
#include "worker/parameters/parameter_client.h"

namespace tessera::overload {
namespace {

constexpr char kJob[] = "soak";
constexpr int kPushesForAPull = 8;

// A whole number that tells keys and elements apart; so many pushes of it add up exactly.
constexpr uint32_t kMostPushes = (1 << 24) / 3;
float GradientOf(uint64_t key, uint32_t element) {
  return static_cast<float>(1 + (key + element) % 3);
}

}  // namespace

struct PushLoad::Rank {
  std::unique_ptr<Channels> channels;
  std::unique_ptr<worker::PsDirectory> directory;
  std::unique_ptr<worker::ParameterClient> client;
};

PushLoad::PushLoad(const Options& options)
    : options_(options), board_(SystemClock()), begun_(options.rows), acknowledged_(options.rows) {
  std::vector<bool> seen(options.rows);
  for (std::vector<uint32_t>& draws : bench::DrawZipf({.items = options.rows,
                                      .batches = options.batches,
                                      .batch = options.batch_keys,
                                      .unique = false,
                                      .seed = options.seed})) {
    std::sort(draws.begin(), draws.end());
    draws.erase(std::unique(draws.begin(), draws.end()), draws.end());
    Batch& batch = batches_.emplace_back();
    batch.keys.keys.assign(draws.begin(), draws.end());
    batch.keys.begin = {0, static_cast<uint32_t>(draws.size())};
    for (const uint32_t key : draws) {
      distinct_rows_ += !seen[key];
      seen[key] = true;
      for (uint32_t d = 0; d < kDim; ++d) batch.gradients.push_back(GradientOf(key, d));
    }
  }
}

PushLoad::~PushLoad() = default;

absl::Status PushLoad::Open() {
  v1::PsAddress address;
  address.set_name("ps-0");
  address.set_address(options_.ps);
  const v1::PartitionMap map = NewPartitionMap(1, kDefaultPartitions, {address});
  v1::OpenJobRequest job;
  job.set_job_id(kJob);
  job.set_generation(1);
  job.set_seed(1);
  job.set_workers(options_.ranks);
  job.set_map_version(1);
  job.set_partition_count(kDefaultPartitions);
  for (uint32_t p = 0; p < kDefaultPartitions; ++p) job.add_partitions(p);
  v1::PsTable& table = *job.add_tables();
  table.set_consistency(v1::ASYNC);
  table.mutable_spec()->set_name("t");
  table.mutable_spec()->set_dim(kDim);
  table.mutable_spec()->mutable_initializer()->mutable_constant();
  table.mutable_spec()->mutable_optimizer()->set_learning_rate(1);
  table.mutable_spec()->mutable_optimizer()->mutable_sgd();
  for (uint32_t r = 0; r < options_.ranks; ++r) {
    auto rank = std::make_unique<Rank>();
    rank->channels = NewNetworkChannels();
    rank->directory = std::make_unique<worker::PsDirectory>(map, rank->channels.get());
    v1::CallHeader header;
    header.set_job_id(kJob);
    header.set_generation(1);
    header.set_rank(r);
    header.set_incarnation(1);
    rank->client =
        worker::NewGrpcParameterClient(header, rank->directory.get(), &board_, &cancellation_,
                                       /*share_memory=*/r % 2 == 1);
    ranks_.push_back(std::move(rank));
  }
  const auto stub = v1::ParameterService::NewStub(ranks_[0]->channels->Connect(options_.ps));
  grpc::ClientContext context;
  v1::OpenJobResponse response;
  return FromGrpc(stub->OpenJob(&context, job, &response));
}

absl::Status PushLoad::Run(uint32_t rank, const std::atomic<bool>& stop) {
  worker::ParameterClient& client = *ranks_[rank]->client;
  struct Pending {
    const Batch* batch;
    std::unique_ptr<worker::PendingCall> call;
    uint64_t bytes;
  };
  std::deque<Pending> pending;
  uint64_t pending_bytes = 0;
  const auto end_first = [&]() -> absl::Status {
    TESSERA_RETURN_IF_ERROR(pending.front().call->Wait());
    for (const uint64_t key : pending.front().batch->keys.keys) acknowledged_[key].fetch_add(1);
    pushed_keys_.fetch_add(pending.front().batch->keys.keys.size(), std::memory_order_relaxed);
    pending_bytes -= pending.front().bytes;
    pending.pop_front();
    return absl::OkStatus();
  };
  std::vector<float> rows;
  std::vector<uint32_t> acknowledged;
  for (uint64_t sequence = 0; !stop; ++sequence) {
    const Batch& batch = batches_[(sequence * options_.ranks + rank) % batches_.size()];
    for (const uint64_t key : batch.keys.keys) {
      if (begun_[key].fetch_add(1) < kMostPushes) continue;
      return absl::OutOfRangeError(absl::StrCat("row ", key, " has had ", kMostPushes,
                                                " pushes; more do not add up exactly"));
    }
    const worker::TableGradients writes[] = {
        {.table = 0, .dim = kDim, .keys = &batch.keys, .gradients = batch.gradients.data()}};
    const uint64_t bytes = batch.keys.keys.size() * (sizeof(uint64_t) + kDim * sizeof(float));
    pending.push_back({&batch, client.Push(writes, {.sequence = sequence}), bytes});
    pending_bytes += bytes;
    while (pending_bytes > options_.offered_bytes / options_.ranks) {
      TESSERA_RETURN_IF_ERROR(end_first());
    }
    if (sequence % kPushesForAPull != 0) continue;
    const std::vector<uint64_t>& keys = batch.keys.keys;
    acknowledged.clear();
    for (const uint64_t key : keys) acknowledged.push_back(acknowledged_[key].load());
    rows.assign(keys.size() * kDim, 1);
    const worker::TableRows reads[] = {
        {.table = 0, .dim = kDim, .keys = &batch.keys, .rows = rows.data()}};
    TESSERA_RETURN_IF_ERROR(client.Pull(reads, {})->Wait());
    TESSERA_RETURN_IF_ERROR(CheckRows(keys, rows, acknowledged));
    pulled_keys_.fetch_add(keys.size(), std::memory_order_relaxed);
  }
  while (!pending.empty()) TESSERA_RETURN_IF_ERROR(end_first());
  return absl::OkStatus();
}

absl::Status PushLoad::Verify() {
  constexpr uint64_t kAtOnce = 50'000;
  std::vector<float> rows;
  for (uint64_t first = 0; first < options_.rows; first += kAtOnce) {
    worker::RoutedKeys keys;
    std::vector<uint32_t> acknowledged;
    for (uint64_t key = first; key < std::min(options_.rows, first + kAtOnce); ++key) {
      keys.keys.push_back(key);
      acknowledged.push_back(acknowledged_[key].load());
    }
    keys.begin = {0, static_cast<uint32_t>(keys.keys.size())};
    rows.assign(keys.keys.size() * kDim, 1);
    const worker::TableRows reads[] = {
        {.table = 0, .dim = kDim, .keys = &keys, .rows = rows.data()}};
    worker::ParameterClient::PullOptions options;
    options.read_only = true;
    TESSERA_RETURN_IF_ERROR(ranks_[0]->client->Pull(reads, options)->Wait());
    TESSERA_RETURN_IF_ERROR(CheckRows(keys.keys, rows, acknowledged));
  }
  return absl::OkStatus();
}

absl::Status PushLoad::CheckRows(absl::Span<const uint64_t> keys, absl::Span<const float> rows,
                                 absl::Span<const uint32_t> acknowledged) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    const float* const row = rows.data() + i * kDim;
    const uint32_t begun = begun_[keys[i]].load();
    const float pushes = -row[0] / GradientOf(keys[i], 0);
    const bool counts = pushes >= static_cast<float>(acknowledged[i]) &&
                        pushes <= static_cast<float>(begun) &&
                        pushes == static_cast<float>(static_cast<uint32_t>(pushes));
    uint32_t d = 0;
    while (d < kDim && row[d] == -pushes * GradientOf(keys[i], d)) ++d;
    if (counts && d == kDim) continue;
    return absl::DataLossError(
        absl::StrCat("row ", keys[i], ": found ", pushes, " pushes in its first element",
                     d < kDim ? absl::StrCat(" and ", row[d], " in element ", d) : "",
                     ", expected ", acknowledged[i], " to ", begun, " in all"));
  }
  return absl::OkStatus();
}

}  // namespace tessera::overload
