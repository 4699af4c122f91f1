#include "worker/parameters/fan_out.h"

#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/partition.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/wire/message_bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/v1/parameter_service.grpc.pb.h"
#include "worker/parameters/ps_directory.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;

// Answers, fails at first, or hangs.
class FakePs final : public v1::ParameterService::Service {
 public:
  grpc::Status LookAhead(grpc::ServerContext* context, const v1::PullRequest*,
                         v1::LookAheadResponse*) override {
    ++calls;
    while (hang && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    if (failures.fetch_sub(1) > 0) return ToGrpc(absl::UnavailableError("restarting"));
    return grpc::Status::OK;
  }

  std::atomic<int> calls = 0;
  std::atomic<int> failures = 0;
  std::atomic<bool> hang = false;
};

class FanOutTest : public ::testing::Test {
 protected:
  FanOutTest() {
    std::vector<v1::PsAddress> addresses(2);  // of one process
    for (int p = 0; p < 2; ++p) {
      addresses[p].set_name("ps-" + std::to_string(p));
      addresses[p].set_address("fake");
    }
    server_ = *RpcServer::Start({.listen = "fake", .in_process = &channels_}, {&ps_});
    directory_ = std::make_unique<PsDirectory>(NewPartitionMap(1, 16, addresses), &channels_);
  }

  // Of ps-0, each taken as it comes.
  static std::vector<FanOut::Leg> Legs(size_t count) {
    return {count,
            {.peer = 0,
             .message = [] { return wire::ToBytes(v1::PullRequest()); },
             .take = [](const grpc::ByteBuffer&) { return absl::OkStatus(); }}};
  }
  absl::Status Call(std::vector<FanOut::Leg> legs, const FanOut::Options& options = {}) {
    return FanOut("test", "/tessera.v1.ParameterService/LookAhead", directory_.get(),
                  std::move(legs), &board_, &cancellation_, options)
        .Wait();
  }
  static void ExpectNoMemory(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("ps-0 (fake): test: this worker has no "
                                                         "memory"));
  }

  InProcessChannels channels_;
  FakePs ps_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<PsDirectory> directory_;
  TaskPool pool_{2};
  StatusBoard board_{SystemClock()};
  Cancellation cancellation_;
};

TEST_F(FanOutTest, AnAnswerForWhichThereIsNoMemoryEndsTheCall) {
  std::vector<FanOut::Leg> legs = Legs(20);
  legs[3].take = [](const grpc::ByteBuffer&) -> absl::Status { throw std::bad_alloc(); };
  ExpectNoMemory(Call(legs));
  ExpectNoMemory(Call(legs, {.pool = &pool_}));
}

TEST_F(FanOutTest, AMessageForWhichThereIsNoMemoryEndsTheCall) {
  std::vector<FanOut::Leg> legs = Legs(20);
  // Made when an earlier one has its answer.
  legs[FanOut::kInFlight].message = []() -> grpc::ByteBuffer { throw std::bad_alloc(); };
  ExpectNoMemory(Call(legs));
  // Made first, by the pool.
  ExpectNoMemory(Call({legs[FanOut::kInFlight]}, {.pool = &pool_}));
}

TEST_F(FanOutTest, AMessageForWhichThereIsNoMemoryWhenItIsRepeatedEndsTheCall) {
  std::vector<FanOut::Leg> legs = Legs(1);
  const auto made = std::make_shared<int>(0);
  legs[0].message = [made] {
    if (++*made == 2) throw std::bad_alloc();
    return wire::ToBytes(v1::PullRequest());
  };
  ps_.failures = 1;
  ExpectNoMemory(Call(legs));
  EXPECT_EQ(*made, 2);
}

TEST_F(FanOutTest, ACallThatALegEndsFailsWithWhatThatLegSays) {
  std::vector<FanOut::Leg> legs = Legs(2);
  absl::Notification failed;
  // Sent last, when the call has ended.
  legs[0].peer = 1;
  legs[0].message = [&failed] {
    failed.WaitForNotification();
    absl::SleepFor(absl::Milliseconds(50));
    return wire::ToBytes(v1::PullRequest());
  };
  legs[1].take = [&failed](const grpc::ByteBuffer&) {
    failed.Notify();
    return absl::AbortedError("generation 4 is over");
  };
  const absl::Status status = Call(std::move(legs));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_EQ(status.message(), "ps-0 (fake): test: generation 4 is over");
}

TEST_F(FanOutTest, APeerThatNeverAnswersIsGivenUpBeforeItIsAskedForAllLegs) {
  ps_.hang = true;
  const absl::Status status =
      Call(Legs(64), {.retry_for = absl::Milliseconds(300), .attempt = absl::Milliseconds(200)});
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("ps-0 (fake): test: "));
  // At the second look more than 400 ms have passed, or at the third on a busy machine.
  EXPECT_LE(ps_.calls, 3 * FanOut::kInFlight);
  ps_.hang = false;
}

TEST_F(FanOutTest, LegsAreRepeatedWhileNobodyWaits) {
  ps_.failures = 3;
  FanOut call("test", "/tessera.v1.ParameterService/LookAhead", directory_.get(), Legs(20), &board_,
              &cancellation_, {});
  const absl::Time limit = absl::Now() + absl::Seconds(60);
  while (!call.Done() && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(ps_.calls, 20 + 3);
  EXPECT_TRUE(call.Wait().ok());
}

TEST_F(FanOutTest, ACallThatIsAboutToBeRepeatedCanBeDestroyedAndCancelled) {
  ps_.failures = 1000000;
  const auto fail_for_a_while = [this] {
    auto call =
        std::make_unique<FanOut>("test", "/tessera.v1.ParameterService/LookAhead", directory_.get(),
                                 Legs(1), &board_, &cancellation_, FanOut::Options());
    for (const int until = ps_.calls + 4; ps_.calls < until;) absl::SleepFor(absl::Milliseconds(1));
    return call;
  };
  auto call = fail_for_a_while();
  call.reset();
  call = fail_for_a_while();
  cancellation_.Cancel();
  EXPECT_EQ(call->Wait().code(), absl::StatusCode::kCancelled);
}

TEST_F(FanOutTest, AllLegsGetTheirAnswersWhereManyFailAtFirst) {
  ps_.failures = 30;
  for (TaskPool* const pool : {static_cast<TaskPool*>(nullptr), &pool_}) {
    const absl::Status status = Call(Legs(64), {.pool = pool});
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(ps_.calls, 2 * 64 + 30);
}

}  // namespace
}  // namespace tessera::worker
