#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/rpc/status.h"
#include "grpcpp/client_context.h"
#include "tessera/v1/parameter_service.grpc.pb.h"
#include "worker/parameter_client.h"

namespace tessera::worker {
namespace {

// One attempt of one call; a pull may wait for other ranks that long.
constexpr absl::Duration kAttemptTimeout = absl::Seconds(20);
constexpr absl::Duration kRetryBudget = absl::Minutes(10);
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(50);
constexpr absl::Duration kMaxBackoff = absl::Seconds(2);

absl::string_view AsBytes(const void* data, size_t size) {
  return {static_cast<const char*>(data), size};
}

// The same method called on every ps: one leg each.
template <typename Request, typename Response>
class FanOut final : public PendingCall {
 public:
  struct Leg {
    const v1::PsAddress* ps = nullptr;
    v1::ParameterService::Stub* stub = nullptr;
    Request request;
    Response response;
    std::unique_ptr<grpc::ClientContext> context;
    absl::Status status = absl::UnknownError("not called");
  };
  using Method = void (v1::ParameterService::Stub::async_interface::*)(
      grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);
  using Finish = std::function<absl::Status(std::vector<Leg>&)>;

  FanOut(std::string what, std::vector<Leg> legs, Method method, Finish finish, StatusBoard* board,
         Cancellation* cancellation)
      : what_(std::move(what)),
        method_(method),
        finish_(std::move(finish)),
        board_(board),
        cancellation_(cancellation),
        legs_(std::move(legs)) {
    for (Leg& leg : legs_) Start(&leg);
    registration_.emplace(cancellation_, [this] { CancelLegs(); });
  }

  ~FanOut() override {
    registration_.reset();
    CancelLegs();
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(this, &FanOut::Idle));
  }

  absl::Status Wait() override {
    const absl::Duration give_up = SystemClock().Monotonic() + kRetryBudget;
    absl::Duration backoff = kFirstBackoff;
    while (true) {
      AwaitLegs();
      std::vector<Leg*> again;
      for (Leg& leg : legs_) {
        if (leg.status.ok()) continue;
        if (cancellation_->cancelled()) return CancelledStatus();
        if (!IsRetryable(leg.status) || SystemClock().Monotonic() > give_up) return Describe(leg);
        again.push_back(&leg);
      }
      if (again.empty()) return finish_(legs_);
      SPDLOG_WARN("{}; trying again", std::string(Describe(*again.front()).message()));
      {
        const StatusBoard::Wait wait(board_, std::string(Describe(*again.front()).message()));
        if (!cancellation_->SleepFor(backoff)) return CancelledStatus();
      }
      backoff = std::min(backoff * 2, kMaxBackoff);
      for (Leg* leg : again) Start(leg);
      // A cancellation between the sleep and Start found the old contexts.
      if (cancellation_->cancelled()) CancelLegs();
    }
  }

 private:
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return outstanding_ == 0; }

  void Start(Leg* leg) ABSL_LOCKS_EXCLUDED(mu_) {
    if (leg->request.ByteSizeLong() > static_cast<size_t>(kMaxMessageBytes)) {
      leg->status = absl::InvalidArgumentError(absl::StrCat(
          "has ", leg->request.ByteSizeLong(), " bytes, at most ", kMaxMessageBytes,
          " fit a message; make train.batch_size or the dims smaller, or use more ps"));
      return;
    }
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(absl::ToChronoTime(absl::Now() + kAttemptTimeout));
    grpc::ClientContext* const borrowed = context.get();
    {
      absl::MutexLock lock(&mu_);
      leg->context = std::move(context);
      ++outstanding_;
    }
    (leg->stub->async()->*method_)(borrowed, &leg->request, &leg->response,
                                   [this, leg](grpc::Status status) {
                                     absl::MutexLock lock(&mu_);
                                     leg->status = FromGrpc(status);
                                     --outstanding_;
                                   });
  }

  void CancelLegs() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    for (Leg& leg : legs_) {
      if (leg.context != nullptr) leg.context->TryCancel();
    }
  }

  void AwaitLegs() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (mu_.AwaitWithTimeout(absl::Condition(this, &FanOut::Idle), absl::Seconds(1))) return;
    }
    // Long enough to be worth telling: name every ps that has not answered.
    std::string waiting;
    {
      absl::MutexLock lock(&mu_);
      for (const Leg& leg : legs_) {
        if (leg.status.ok()) continue;
        absl::StrAppend(&waiting, waiting.empty() ? "" : ", ", leg.ps->name());
      }
    }
    const StatusBoard::Wait wait(board_, absl::StrCat(waiting, ": ", what_));
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(this, &FanOut::Idle));  // each attempt has its deadline
  }

  absl::Status Describe(const Leg& leg) const {
    return absl::Status(leg.status.code(), absl::StrCat(leg.ps->name(), " (", leg.ps->address(),
                                                        "): ", what_, ": ", leg.status.message()));
  }

  const std::string what_;
  const Method method_;
  const Finish finish_;
  StatusBoard* const board_;
  Cancellation* const cancellation_;
  std::optional<Cancellation::Registration> registration_;

  mutable absl::Mutex mu_;
  int outstanding_ ABSL_GUARDED_BY(mu_) = 0;
  // Requests are constant; contexts and statuses change under mu_, responses only while a leg is
  // outstanding.
  std::vector<Leg> legs_;
};

class GrpcParameterClient final : public ParameterClient {
 public:
  GrpcParameterClient(const v1::CallHeader& header, const v1::PartitionMap& partitions,
                      Channels* channels, StatusBoard* board, Cancellation* cancellation)
      : header_(header),
        ps_(partitions.ps().begin(), partitions.ps().end()),
        board_(board),
        cancellation_(cancellation) {
    header_.set_map_version(partitions.version());
    for (const v1::PsAddress& ps : ps_) {
      stubs_.push_back(v1::ParameterService::NewStub(channels->Connect(ps.address())));
    }
  }

  std::unique_ptr<PendingCall> Pull(absl::Span<const TableRows> tables, uint64_t step,
                                    bool read_only) override {
    using Call = FanOut<v1::PullRequest, v1::PullResponse>;
    auto legs = Legs<Call>();
    for (size_t p = 0; p < legs.size(); ++p) {
      legs[p].request.set_step(step);
      legs[p].request.set_read_only(read_only);
      for (const TableRows& table : tables) {
        const auto [first, count] = Range(*table.keys, p);
        if (count == 0) continue;
        v1::KeyBlock* block = legs[p].request.add_tables();
        block->set_table(table.table);
        const absl::string_view keys = AsBytes(table.keys->keys.data() + first, count * 8);
        block->set_keys(keys.data(), keys.size());
      }
    }
    auto place = [tables = std::vector<TableRows>(tables.begin(), tables.end())](
                     std::vector<Call::Leg>& done) { return PlaceRows(tables, done); };
    return std::make_unique<Call>(
        absl::StrCat("pull of step ", step), std::move(legs),
        static_cast<Call::Method>(&v1::ParameterService::Stub::async_interface::Pull),
        std::move(place), board_, cancellation_);
  }

  std::unique_ptr<PendingCall> Push(absl::Span<const TableGradients> tables, uint64_t sequence,
                                    double learning_rate_scale) override {
    using Call = FanOut<v1::PushRequest, v1::PushResponse>;
    auto legs = Legs<Call>();
    for (size_t p = 0; p < legs.size(); ++p) {
      legs[p].request.set_sequence(sequence);
      legs[p].request.set_learning_rate_scale(learning_rate_scale);
      AddBlocks(tables, p, &legs[p].request);
    }
    return std::make_unique<Call>(
        absl::StrCat("push of step ", sequence), std::move(legs),
        static_cast<Call::Method>(&v1::ParameterService::Stub::async_interface::Push),
        [](auto&) { return absl::OkStatus(); }, board_, cancellation_);
  }

  std::unique_ptr<PendingCall> Assign(absl::Span<const TableGradients> values) override {
    using Call = FanOut<v1::AssignRequest, v1::AssignResponse>;
    auto legs = Legs<Call>();
    for (size_t p = 0; p < legs.size(); ++p) AddBlocks(values, p, &legs[p].request);
    return std::make_unique<Call>(
        "assignment of initial dense parameters", std::move(legs),
        static_cast<Call::Method>(&v1::ParameterService::Stub::async_interface::Assign),
        [](auto&) { return absl::OkStatus(); }, board_, cancellation_);
  }

 private:
  // First index and number of ps p's keys.
  static std::pair<size_t, size_t> Range(const RoutedKeys& keys, size_t p) {
    return {keys.begin[p], keys.begin[p + 1] - keys.begin[p]};
  }

  template <typename Call>
  std::vector<typename Call::Leg> Legs() const {
    std::vector<typename Call::Leg> legs(ps_.size());
    for (size_t p = 0; p < ps_.size(); ++p) {
      legs[p].ps = &ps_[p];
      legs[p].stub = stubs_[p].get();
      *legs[p].request.mutable_header() = header_;
    }
    return legs;
  }

  template <typename Request>
  static void AddBlocks(absl::Span<const TableGradients> tables, size_t p, Request* request) {
    for (const TableGradients& table : tables) {
      const auto [first, count] = Range(*table.keys, p);
      if (count == 0) continue;
      v1::GradientBlock* block = request->add_tables();
      block->set_table(table.table);
      const absl::string_view keys = AsBytes(table.keys->keys.data() + first, count * 8);
      block->set_keys(keys.data(), keys.size());
      const absl::string_view values =
          AsBytes(table.gradients + first * table.dim, count * table.dim * sizeof(float));
      block->set_gradients(values.data(), values.size());
    }
  }

  // Copies each ps's answer into the rows of its keys. Blocks are matched by table, and a block of
  // another size than asked for is an error: rows never land on the wrong keys.
  template <typename Leg>
  static absl::Status PlaceRows(absl::Span<const TableRows> tables, const std::vector<Leg>& legs) {
    for (size_t p = 0; p < legs.size(); ++p) {
      int next = 0;
      for (const TableRows& table : tables) {
        const auto [first, count] = Range(*table.keys, p);
        if (count == 0) continue;
        const size_t bytes = count * table.dim * sizeof(float);
        const v1::PullResponse& response = legs[p].response;
        const v1::RowBlock* block =
            next < response.tables_size() ? &response.tables(next) : nullptr;
        if (block == nullptr || block->table() != table.table || block->values().size() != bytes) {
          return absl::InternalError(absl::StrCat(
              legs[p].ps->name(), ": answered table ", block == nullptr ? -1 : int(block->table()),
              " with ", block == nullptr ? 0 : block->values().size(), " bytes, expected table ",
              table.table, " with ", bytes));
        }
        for (const char status : block->statuses()) {
          if (status > v1::ROW_NOT_ADMITTED) {
            return absl::InternalError(absl::StrCat(legs[p].ps->name(), ": table ", table.table,
                                                    ": a row came back with status ", int{status},
                                                    ", which has no values"));
          }
        }
        std::memcpy(table.rows + first * table.dim, block->values().data(), bytes);
        ++next;
      }
    }
    return absl::OkStatus();
  }

  v1::CallHeader header_;
  const std::vector<v1::PsAddress> ps_;
  std::vector<std::unique_ptr<v1::ParameterService::Stub>> stubs_;
  StatusBoard* const board_;
  Cancellation* const cancellation_;
};

}  // namespace

std::unique_ptr<ParameterClient> NewGrpcParameterClient(const v1::CallHeader& header,
                                                        const v1::PartitionMap& partitions,
                                                        Channels* channels, StatusBoard* board,
                                                        Cancellation* cancellation) {
  return std::make_unique<GrpcParameterClient>(header, partitions, channels, board, cancellation);
}

}  // namespace tessera::worker
