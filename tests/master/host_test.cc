#include "master/core/host.h"

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/version.h"
#include "gtest/gtest.h"
#include "tests/common/job_validate_testing.h"

namespace tessera::master {
namespace {

// A disk that is full, until it has room.
class HostsLog final : public StateLog {
 public:
  absl::Status Apply(const std::vector<Write>& batch) override {
    tried = batch;
    return has_room ? log->Apply(batch) : absl::ResourceExhaustedError("no room");
  }
  absl::StatusOr<std::string> Get(const std::string& key) override { return log->Get(key); }
  absl::StatusOr<std::map<std::string, std::string>> Scan(const std::string& prefix) override {
    return log->Scan(prefix);
  }
  bool has_room = false;
  std::vector<Write> tried;
  const std::unique_ptr<StateLog> log = NewMemoryStateLog();
};

std::unique_ptr<MasterCore> CoreOf(const std::map<std::string, std::string>& state = {}) {
  const Clock& clock = SystemClock();
  auto core = MasterCore::New({}, state, {clock.Monotonic(), clock.Wall()});
  EXPECT_TRUE(core.ok()) << core.status();
  return *std::move(core);
}

// The incarnation of a worker that joins.
uint64_t JoinAndLeave(CoreHost& host) {
  v1::Hello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_kind(v1::WORKER);
  hello.set_name("worker-0");
  return host.Update([&](MasterCore& core, const Now& now) {
    const absl::StatusOr<v1::Welcome> welcome = core.Join(hello, now);
    EXPECT_TRUE(welcome.ok()) << welcome.status();
    const uint64_t incarnation = welcome.ok() ? welcome->incarnation() : 0;
    core.StreamEnded(incarnation, now.monotonic, true, "its connection broke", now);
    return incarnation;
  });
}

TEST(CoreHost, OfWhatCannotBeWrittenItKeepsTheNewestOfEachKey) {
  HostsLog log;
  CoreHost host(CoreOf(), &log, &SystemClock());
  uint64_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    last = JoinAndLeave(host);
    EXPECT_EQ(host.Flush().code(), absl::StatusCode::kResourceExhausted);
  }
  std::set<std::string> keys;
  for (const StateLog::Write& write : log.tried) {
    EXPECT_TRUE(keys.insert(write.key).second) << write.key;
  }
  log.has_room = true;
  EXPECT_TRUE(host.Flush().ok());
  // The next master knows all of it.
  CoreHost next(CoreOf(log.Scan("").value()), &log, &SystemClock());
  EXPECT_GT(JoinAndLeave(next), last);
}

// A disk whose writes do not end, until they may.
class StuckLog final : public StateLog {
 public:
  absl::Status Apply(const std::vector<Write>&) override {
    if (++writes == 1) begun.Notify();
    may_end.WaitForNotification();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(const std::string&) override { return absl::NotFoundError(""); }
  absl::StatusOr<std::map<std::string, std::string>> Scan(const std::string&) override {
    return std::map<std::string, std::string>();
  }
  absl::Notification begun, may_end;
  std::atomic<int> writes = 0;
};

// Changes the state.
void SubmitJob(CoreHost& host) {
  v1::SubmitRequest request;
  *request.mutable_spec() = GoodSpec();
  const absl::StatusOr<std::string> id =
      host.Update([&](MasterCore& core, const Now& now) { return core.Submit(request, now); });
  EXPECT_TRUE(id.ok()) << id.status();
}

TEST(CoreHost, OneCallAloneWaitsForAWriteThatDoesNotEnd) {
  StuckLog log;
  CoreHost host(CoreOf(), &log, &SystemClock());
  const auto flush = [&](absl::Duration limit) {
    return std::async(std::launch::async, [&host, limit] { return host.Flush(limit); });
  };
  SubmitJob(host);
  std::future<absl::Status> writes = flush(absl::ZeroDuration());
  log.begun.WaitForNotification();
  // Has changed nothing itself; but what it has seen is not durable.
  std::future<absl::Status> asks = flush(absl::Milliseconds(20));
  std::future<absl::Status> patient = flush(absl::Minutes(1));
  EXPECT_EQ(asks.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  SubmitJob(host);
  std::future<absl::Status> later = flush(absl::Milliseconds(20));
  EXPECT_EQ(later.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  log.may_end.Notify();
  const absl::Status stuck = absl::UnavailableError("a write to its state log does not end");
  EXPECT_EQ(asks.get(), stuck);
  EXPECT_EQ(later.get(), stuck);
  EXPECT_TRUE(writes.get().ok());
  EXPECT_TRUE(patient.get().ok());
  EXPECT_TRUE(host.Flush().ok());
  EXPECT_EQ(log.writes, 2);
}

}  // namespace
}  // namespace tessera::master
