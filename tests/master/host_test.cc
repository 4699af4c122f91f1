#include "master/core/host.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/version.h"
#include "gtest/gtest.h"

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
  return host.Update([&](MasterCore& core, const MasterCore::Now& now) {
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

}  // namespace
}  // namespace tessera::master
