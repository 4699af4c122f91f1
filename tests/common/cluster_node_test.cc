#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "common/cluster/node.h"
#include "common/log.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spdlog/sinks/base_sink.h"
#include "tessera/v1/cluster.grpc.pb.h"
#include "tests/common/certificates.h"

namespace tessera {
namespace {

// A master that does as it is told: refuses, or welcomes and keeps the stream until Break().
class FakeMaster final : public v1::ClusterService::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::MasterMessage, v1::NodeMessage>;
  grpc::Status Join(grpc::ServerContext* context, Stream* stream) override {
    v1::NodeMessage in;
    if (!stream->Read(&in)) return grpc::Status::OK;
    absl::Status refusal;
    uint64_t incarnation;
    {
      absl::MutexLock lock(&mu_);
      hellos_.push_back(in.hello());
      incarnation = hellos_.size();
      refusal = refusal_;
      if (refusal_once_) refusal_ = absl::OkStatus();
    }
    if (!refusal.ok()) return ToGrpc(refusal);
    if (const uint64_t before = in.hello().incarnation(); before != 0) {
      if (!takes_up_) return ToGrpc(absl::AbortedError("it is over"));
      incarnation = before;
    }
    v1::MasterMessage out;
    out.mutable_welcome()->set_name("worker-0");
    out.mutable_welcome()->set_incarnation(incarnation);
    out.mutable_welcome()->set_heartbeat_ms(heartbeat_ms_);
    {
      absl::MutexLock lock(&mu_);
      out.mutable_welcome()->set_lease_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(lease_)));
    }
    stream->Write(out);
    out.mutable_assignment()->set_job_id("job-1");
    stream->Write(out);
    {
      absl::MutexLock lock(&mu_);
      const auto over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return context->IsCancelled(); };
      while (!over() && incarnation == 1 && absl::Now() < deaf_until_) {
        mu_.AwaitWithTimeout(absl::Condition(&over), absl::Milliseconds(5));
      }
    }
    while (stream->Read(&in)) {
      absl::MutexLock lock(&mu_);
      heartbeats_.push_back(in.heartbeat().doing());
      if (in.heartbeat().leaving() && releases_) {
        out.mutable_release();
        stream->Write(out);
      }
      if (break_) {
        break_ = false;
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "broken");
      }
    }
    absl::MutexLock lock(&mu_);
    left_ = !context->IsCancelled();
    return grpc::Status::OK;
  }
  void Refuse(absl::Status status, bool once) {
    absl::MutexLock lock(&mu_);
    refusal_ = status;
    refusal_once_ = once;
  }
  void Break() {
    absl::MutexLock lock(&mu_);
    break_ = true;
  }
  // Takes no heartbeat of the first incarnation for so long.
  void BeDeaf(absl::Duration time, absl::Duration lease) {
    absl::MutexLock lock(&mu_);
    deaf_until_ = absl::Now() + time;
    lease_ = lease;
  }
  void AwaitHeartbeats(size_t n) {
    absl::MutexLock lock(&mu_);
    const auto reached = [this, n]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return heartbeats_.size() >= n; };
    ASSERT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&reached), absl::Seconds(20)));
  }
  std::atomic<bool> takes_up_ = false;  // who joins with the incarnation that it had
  std::atomic<bool> releases_ = false;  // who asks for leave
  std::atomic<uint32_t> heartbeat_ms_ = 10;
  std::vector<v1::Hello> hellos() {
    absl::MutexLock lock(&mu_);
    return hellos_;
  }
  size_t heartbeats() {
    absl::MutexLock lock(&mu_);
    return heartbeats_.size();
  }
  bool left() {
    absl::MutexLock lock(&mu_);
    return left_;
  }

 private:
  absl::Mutex mu_;
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  bool refusal_once_ ABSL_GUARDED_BY(mu_) = false;
  bool break_ ABSL_GUARDED_BY(mu_) = false;
  bool left_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration lease_ ABSL_GUARDED_BY(mu_) = absl::Seconds(30);
  absl::Time deaf_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::vector<v1::Hello> hellos_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> heartbeats_ ABSL_GUARDED_BY(mu_);
};

// Collects what the node's callbacks say, as "welcome 1", "assignment job-1", "lost", "fatal ...".
class Said {
 public:
  void Say(std::string what) {
    absl::MutexLock lock(&mu_);
    said_.push_back(std::move(what));
  }
  std::vector<std::string> Await(size_t n) {
    absl::MutexLock lock(&mu_);
    const auto reached = [this, n]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return said_.size() >= n; };
    mu_.AwaitWithTimeout(absl::Condition(&reached), absl::Seconds(20));
    return said_;
  }

 private:
  absl::Mutex mu_;
  std::vector<std::string> said_ ABSL_GUARDED_BY(mu_);
};

class ClusterNodeTest : public testing::Test {
 protected:
  void StartMaster() {
    ServerOptions options;
    options.listen = "master";
    options.in_process = &channels_;
    auto server = RpcServer::Start(options, {&master_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }
  void StartNode(absl::Duration name_taken_limit = absl::Seconds(15)) {
    ClusterNode::Options options;
    options.master_address = "master";
    options.hello.set_kind(v1::WORKER);
    options.channels = &channels_;
    options.backoff = {absl::Milliseconds(5), absl::Milliseconds(20), 1};
    options.name_taken_limit = name_taken_limit;
    options.goodbye_limit = absl::Seconds(20);
    ClusterNode::Callbacks callbacks;
    callbacks.heartbeat = [] {
      v1::Heartbeat heartbeat;
      heartbeat.set_doing("training");
      return heartbeat;
    };
    callbacks.welcome = [this](const v1::Welcome& w) {
      said_.Say("welcome " + std::to_string(w.incarnation()));
    };
    callbacks.assignment = [this](const v1::Assignment& a) {
      said_.Say("assignment " + a.job_id());
    };
    callbacks.lost = [this](const absl::Status&) { said_.Say("lost"); };
    callbacks.fatal = [this](const absl::Status& s) {
      said_.Say("fatal " + std::string(s.message()));
    };
    node_ = ClusterNode::Start(std::move(options), std::move(callbacks));
  }

  InProcessChannels channels_;
  FakeMaster master_;
  Said said_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<ClusterNode> node_;
};

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ClusterNodeTest, SaysHelloAndDeliversWelcomeAndAssignmentAndHeartbeats) {
  StartMaster();
  StartNode();
  EXPECT_THAT(said_.Await(2), ElementsAre("welcome 1", "assignment job-1"));
  master_.AwaitHeartbeats(3);
  const v1::Hello hello = master_.hellos().at(0);
  EXPECT_EQ(hello.protocol(), kProtocolVersion);
  EXPECT_EQ(hello.version(), kVersion);
  EXPECT_EQ(hello.pid(), getpid());
  EXPECT_NE(hello.process(), 0u);
  node_->Stop();
  EXPECT_TRUE(master_.left());
}

// Its last heartbeat has not been taken yet when it is told to stop.
TEST_F(ClusterNodeTest, LeavesOfItsOwnWillWithAHeartbeatUnderWay) {
  master_.BeDeaf(absl::Milliseconds(250), absl::Seconds(30));
  StartMaster();
  StartNode();
  said_.Await(2);
  absl::SleepFor(absl::Milliseconds(50));  // a heartbeat is due every 10
  node_->Stop();
  EXPECT_TRUE(master_.left());
}

TEST_F(ClusterNodeTest, MayStartBeforeTheMaster) {
  StartNode();
  StartMaster();
  EXPECT_THAT(said_.Await(1), testing::Contains("welcome 1"));
}

TEST_F(ClusterNodeTest, JoinsAgainUnderItsNameAfterABrokenStream) {
  StartMaster();
  StartNode();
  said_.Await(2);
  master_.Break();
  // Its incarnation is over; nothing of it is left when the next one is asked for.
  EXPECT_THAT(said_.Await(5), ElementsAre("welcome 1", "assignment job-1", "lost", "welcome 3",
                                          "assignment job-1"));
  const auto hellos = master_.hellos();
  EXPECT_EQ(hellos.at(1).name(), "worker-0");
  EXPECT_EQ(hellos.at(1).process(), hellos.at(0).process());
  EXPECT_EQ(hellos.at(1).incarnation(), 1u);
  EXPECT_EQ(hellos.at(2).incarnation(), 0u);
}

TEST_F(ClusterNodeTest, AMasterThatTakesItUpFindsItAsItWas) {
  master_.takes_up_ = true;
  StartMaster();
  StartNode();
  said_.Await(2);
  master_.Break();
  EXPECT_THAT(said_.Await(4),
              ElementsAre("welcome 1", "assignment job-1", "welcome 1", "assignment job-1"));
  EXPECT_EQ(master_.hellos().size(), 2u);
}

TEST_F(ClusterNodeTest, AMasterThatIsSlowerThanItsHeartbeatIsNotLost) {
  master_.BeDeaf(absl::Milliseconds(300), absl::Seconds(30));
  StartMaster();
  StartNode();
  master_.AwaitHeartbeats(3);
  EXPECT_THAT(said_.Await(2), ElementsAre("welcome 1", "assignment job-1"));
}

TEST_F(ClusterNodeTest, AMasterThatTakesNoHeartbeatWithinTheLeaseIsLost) {
  master_.BeDeaf(absl::Seconds(30), absl::Milliseconds(100));
  StartMaster();
  StartNode();
  const std::vector<std::string> said = said_.Await(4);
  EXPECT_THAT(said, testing::Contains("lost"));
  EXPECT_THAT(said, testing::Contains("welcome 3"));
}

TEST_F(ClusterNodeTest, DifferentVersionsAreFatal) {
  StartMaster();
  master_.Refuse(absl::FailedPreconditionError("protocol 1, expected 2"), false);
  StartNode();
  EXPECT_THAT(said_.Await(1), ElementsAre(HasSubstr("protocol 1, expected 2")));
  EXPECT_EQ(master_.hellos().size(), 1u);
}

TEST_F(ClusterNodeTest, ATakenNameIsRetriedWhileTheOldLeaseMayRun) {
  StartMaster();
  master_.Refuse(absl::AlreadyExistsError("worker-0 is alive"), true);
  StartNode();
  EXPECT_THAT(said_.Await(1), testing::Contains("welcome 2"));
}

TEST_F(ClusterNodeTest, ATakenNameIsFatalInTheEnd) {
  StartMaster();
  master_.Refuse(absl::AlreadyExistsError("worker-0 is alive"), false);
  StartNode(absl::Milliseconds(30));
  EXPECT_THAT(said_.Await(1), ElementsAre(HasSubstr("worker-0 is alive")));
  EXPECT_GT(master_.hellos().size(), 1u);
}

TEST_F(ClusterNodeTest, AsksForLeaveBeforeItsNextHeartbeatIsDue) {
  master_.releases_ = true;
  master_.heartbeat_ms_ = 600'000;
  StartMaster();
  StartNode();
  said_.Await(2);
  EXPECT_TRUE(node_->AwaitRelease(absl::Seconds(20)));
  EXPECT_TRUE(node_->AwaitRelease(absl::ZeroDuration())) << "asked again";
  node_->Stop();
  EXPECT_FALSE(master_.hellos().empty());
}

TEST_F(ClusterNodeTest, SendsHeartbeatsAtOnceThatItIsAskedFor) {
  master_.heartbeat_ms_ = 600'000;
  StartMaster();
  StartNode();
  said_.Await(2);
  for (int i = 1; i <= 3; ++i) {
    node_->Beat();
    master_.AwaitHeartbeats(i);
  }
  node_->Stop();
  node_->Beat();  // nobody is there
}

TEST_F(ClusterNodeTest, WaitsForLeaveNoLongerThanItMay) {
  StartMaster();
  StartNode();
  said_.Await(2);
  const absl::Time begin = absl::Now();
  EXPECT_FALSE(node_->AwaitRelease(absl::Milliseconds(50)));
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(50));
  // It goes on as it was.
  const size_t heartbeats = master_.heartbeats();
  master_.AwaitHeartbeats(heartbeats + 3);
}

TEST_F(ClusterNodeTest, WithoutAMasterItIsNotKeptFromLeaving) {
  StartNode();
  EXPECT_FALSE(node_->AwaitRelease(absl::Hours(1)));
}

TEST_F(ClusterNodeTest, WhenTheMasterGoesItIsNotKeptFromLeaving) {
  StartMaster();
  StartNode();
  said_.Await(2);
  std::thread leave([&] { EXPECT_FALSE(node_->AwaitRelease(absl::Hours(1))); });
  master_.AwaitHeartbeats(3);
  server_->Shutdown(absl::ZeroDuration());
  leave.join();
}

TEST_F(ClusterNodeTest, WhoHasWhatWouldBeLostWaitsForAMasterThatReturns) {
  master_.releases_ = true;
  StartNode();
  std::thread leave([&] { EXPECT_TRUE(node_->AwaitRelease(absl::Seconds(60), true)); });
  absl::SleepFor(absl::Milliseconds(50));
  StartMaster();
  leave.join();
}

TEST_F(ClusterNodeTest, WhoIsRefusedForGoodWaitsForNoMaster) {
  StartMaster();
  master_.Refuse(absl::AlreadyExistsError("worker-0 is alive"), false);
  StartNode(absl::Milliseconds(30));
  EXPECT_FALSE(node_->AwaitRelease(absl::Hours(1), true));
}

TEST_F(ClusterNodeTest, StopIsPromptWhileThereIsNoMaster) {
  StartNode();
  node_->Stop();
  EXPECT_THAT(said_.Await(0), ElementsAre());
}

// Passes on what is logged.
class LogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LogSink(std::function<void(std::string)> say) : say_(std::move(say)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    say_(std::string(message.payload.data(), message.payload.size()));
  }
  void flush_() override {}
  const std::function<void(std::string)> say_;
};

// gRPC gives the reason of one alone, mostly of one that stands by and does not listen.
TEST(ClusterNodeOverTcp, LogsOfEachMasterOfAListWhyItDoesNotAnswer) {
  const Certificates certificates("of-the-master");
  const auto security = Security::Load(certificates.ForServer());
  ASSERT_TRUE(security.ok()) << security.status();
  FakeMaster service;
  const auto master = RpcServer::Start({.security = security->get()}, {&service});
  ASSERT_TRUE(master.ok()) << master.status();
  const std::unique_ptr<Channels> channels = NewNetworkChannels();
  absl::Mutex mu;
  bool said = false;
  const std::string address = (*master)->address();
  const auto sink = std::make_shared<LogSink>([&](std::string line) {
    absl::MutexLock lock(&mu);
    said |=
        absl::StrContains(line, " s): " + address + ": Socket closed (is it a server with TLS?") &&
        absl::StrContains(line, "; 127.0.0.1:1: Failed to connect to remote host");
  });
  auto& sinks = spdlog::default_logger()->sinks();
  sinks.push_back(sink);
  ClusterNode::Options options;
  options.master_address = address + ",127.0.0.1:1";
  options.hello.set_kind(v1::WORKER);
  options.channels = channels.get();
  options.backoff = {absl::Milliseconds(5), absl::Milliseconds(20), 1};
  options.log_every = absl::Milliseconds(10);
  const auto node = ClusterNode::Start(std::move(options), {});
  {
    absl::MutexLock lock(&mu);
    EXPECT_TRUE(mu.AwaitWithTimeout(absl::Condition(&said), absl::Seconds(20)));
  }
  node->Stop();
  sinks.pop_back();
}

}  // namespace
}  // namespace tessera
