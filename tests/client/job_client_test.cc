#include "client/job_client.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "client/commands/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_job_service.h"
#include "tests/common/certificates.h"

namespace tessera::client {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class JobClientTest : public testing::Test {
 protected:
  std::unique_ptr<JobClient> Client(absl::Duration patience = absl::Seconds(20)) {
    JobClient::Options options;
    options.master_address = "master:1";
    options.channels = &master_.channels;
    options.patience = patience;
    options.backoff = {.first = absl::Milliseconds(1), .longest = absl::Milliseconds(5)};
    options.on_wait = [this](const std::string& text) { waits_.push_back(text); };
    return std::make_unique<JobClient>(std::move(options));
  }
  static v1::JobStatus Job(v1::JobState state, uint64_t step) {
    v1::JobStatus job;
    job.set_job_id("clicks-1");
    job.set_state(state);
    job.set_step(step);
    return job;
  }

  FakeMaster master_;
  std::vector<std::string> waits_;
};

const grpc::Status kDown(grpc::StatusCode::UNAVAILABLE, "connection refused");

TEST_F(JobClientTest, SubmitsAJobAndReturnsItsId) {
  v1::SubmitRequest request;
  request.mutable_spec()->set_name("clicks");
  const auto id = Client()->Submit(request);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(*id, "clicks-1");
  ASSERT_EQ(master_.service.submitted().size(), 1u);
  EXPECT_EQ(master_.service.submitted()[0].spec().name(), "clicks");
}

TEST_F(JobClientTest, NeverSendsAJobTwice) {
  master_.service.FailNext({kDown});
  const absl::Status status = Client()->Submit(v1::SubmitRequest()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(ExitCodeOf(status), kExitOpen) << "whoever repeats on 128 sends it again";
  EXPECT_THAT(std::string(status.message()), HasSubstr("`tessera list` says whether"));
  EXPECT_EQ(master_.service.submitted().size(), 1u);
}

TEST_F(JobClientTest, AMasterThatStopsInterruptsNobody) {
  const grpc::Status stops(grpc::StatusCode::CANCELLED, "the server stops");
  master_.service.FailNext({stops});
  const absl::Status status = Client()->Submit(v1::SubmitRequest()).status();
  EXPECT_EQ(ExitCodeOf(status), kExitOpen) << status;
  master_.service.FailNext({stops});
  EXPECT_TRUE(Client()->List().ok()) << "it is asked again";
}

TEST_F(JobClientTest, AnInterruptedSubmissionLeavesOpenWhetherTheMasterHasTheJob) {
  const auto client = Client();
  master_.service.OnSubmit([&] { client->Interrupt(); });
  const absl::Status status = client->Submit(v1::SubmitRequest()).status();
  EXPECT_EQ(status,
            absl::CancelledError("interrupted while the job was sent to the master at master:1; "
                                 "`tessera list` says whether it has the job"));
  EXPECT_EQ(master_.service.submitted().size(), 1u);
}

TEST_F(JobClientTest, DoesNotSubmitToAMasterOfAnotherProtocol) {
  master_.service.SetProtocol(kProtocolVersion + 1);
  const absl::Status status = Client()->Submit(v1::SubmitRequest()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("master at master:1 is version 9.9"));
  EXPECT_TRUE(master_.service.submitted().empty());
}

TEST_F(JobClientTest, WaitsForTheMasterAndSaysSo) {
  master_.service.SetJobs({Job(v1::RUNNING, 3)});
  master_.service.FailNext({kDown, kDown});
  const auto job = Client()->Get("clicks-1");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->step(), 3u);
  ASSERT_EQ(waits_.size(), 1u);
  EXPECT_THAT(waits_[0], HasSubstr("waiting for the master at master:1: connection refused"));
}

TEST_F(JobClientTest, GivesUpWhenThePatienceIsSpent) {
  master_.Stop();
  const absl::Status status = Client(absl::ZeroDuration())->List().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no answer from the master at master:1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("is tessera-master running there?"));
}

TEST_F(JobClientTest, NoTryOutlastsThePatienceByMoreThanASecond) {
  master_.service.SetJobs({Job(v1::RUNNING, 3)});
  Client(absl::ZeroDuration())->Get("clicks-1").IgnoreError();  // it may be slow
  EXPECT_LE(master_.service.longest_get(), absl::Milliseconds(1100));
  Client(absl::Seconds(3))->Get("clicks-1").IgnoreError();
  EXPECT_LE(master_.service.longest_get(), absl::Milliseconds(3300));
  // A call's own limit holds, however long the master is waited for.
  EXPECT_TRUE(Client(absl::Hours(1))->Get("clicks-1").ok());
  EXPECT_LE(master_.service.longest_get(), absl::Seconds(11));
}

TEST(JobClientOverTcp, FindsAMasterThatHasComeBack) {
  FakeJobService service;
  auto server = RpcServer::Start({}, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  const std::unique_ptr<Channels> channels = NewNetworkChannels();
  bool waited = false;
  JobClient::Options options;
  options.master_address = address;
  options.channels = channels.get();
  options.patience = absl::Seconds(20);
  // The master comes back when the client has begun to wait for it.
  options.on_wait = [&](const std::string&) {
    if (waited) return;
    waited = true;
    server = RpcServer::Start({.listen = address}, {&service});
  };
  JobClient client(std::move(options));
  EXPECT_TRUE(client.GetCluster().ok());
  server->reset();
  EXPECT_TRUE(client.GetCluster().ok());
  EXPECT_TRUE(waited);
}

// What a list of masters gives who asks with these files, or without TLS.
std::string ErrorOf(const std::string& masters, const SecurityFiles& files) {
  std::unique_ptr<Security> security;
  if (!files.empty()) security = Security::Load(files).value();
  const std::unique_ptr<Channels> channels = NewNetworkChannels(security.get());
  JobClient::Options options;
  options.master_address = masters;
  options.channels = channels.get();
  options.patience = absl::ZeroDuration();
  std::string error;
  // A busy machine may have no time for a handshake.
  for (int i = 0; i < 10; ++i) {
    const absl::Status status = JobClient(options).List().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    error = std::string(status.message());
    if (!absl::StrContains(error, "no answer in 1s")) break;
  }
  return error;
}

TEST(JobClientOverTcp, SaysOfEachMasterOfAListWhyItDoesNotAnswer) {
  const Certificates certificates("of-the-master");
  const Certificates others("of-others");
  const auto of_server = Security::Load(certificates.ForServer());
  ASSERT_TRUE(of_server.ok()) << of_server.status();
  FakeJobService service;
  const auto server = RpcServer::Start({.security = of_server->get()}, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string leads = (*server)->address();
  // Those that stand by do not listen.
  const std::string list = leads + ",127.0.0.1:1,127.0.0.1:2";
  const auto says = [&](const std::string& of_leader) {
    return AllOf(HasSubstr("s: " + leads + ": " + of_leader),
                 HasSubstr("; 127.0.0.1:1, 127.0.0.1:2: Failed to connect to remote host: "
                           "Connection refused; is tessera-master running there?"));
  };
  SecurityFiles files = others.ForClient();
  files.server_name = "localhost";
  EXPECT_THAT(ErrorOf(list, files), says("Tls handshake failed"));
  files = certificates.ForClient();
  files.server_name = "another";
  EXPECT_THAT(ErrorOf(list, files), says("Custom verification check failed"));
  EXPECT_THAT(ErrorOf(list, {}), says("Socket closed (is it a server with TLS?"));
  // Or the leader's own, when it can be reached.
  files.server_name = "localhost";
  service.FailNext({kDown});
  EXPECT_THAT(ErrorOf(list, files), HasSubstr("s: connection refused; is"));
  EXPECT_THAT(ErrorOf("127.0.0.1:1,127.0.0.1:2", {}),
              HasSubstr("s: Failed to connect to remote host: Connection refused; is"));
}

TEST_F(JobClientTest, PassesOnWhatTheMasterRefuses) {
  const absl::Status status = Client()->Get("nobody").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "no job nobody");
}

TEST_F(JobClientTest, CancelsAndListsJobs) {
  EXPECT_TRUE(Client()->Cancel("clicks-1").ok());
  EXPECT_THAT(master_.service.cancelled(), ElementsAre("clicks-1"));
  master_.service.SetJobs({Job(v1::RUNNING, 1), Job(v1::FAILED, 2)});
  const auto jobs = Client()->List();
  ASSERT_TRUE(jobs.ok());
  EXPECT_EQ(jobs->size(), 2u);
}

TEST_F(JobClientTest, ASuspensionWhoseAnswerIsLostIsNoError) {
  const grpc::Status lost(grpc::StatusCode::UNAVAILABLE, "broke");
  const grpc::Status refused(grpc::StatusCode::FAILED_PRECONDITION, "is suspended already");
  master_.service.SetJobs({Job(v1::SUSPENDED, 1)});
  master_.service.FailNext({lost, refused});
  EXPECT_TRUE(Client()->Suspend("clicks-1").ok());
  // Without a loss it is one.
  master_.service.FailNext({refused});
  EXPECT_EQ(Client()->Suspend("clicks-1").code(), absl::StatusCode::kFailedPrecondition);
  master_.service.FailNext({lost, refused});
  EXPECT_EQ(Client()->Resume("clicks-1").code(), absl::StatusCode::kFailedPrecondition);
  master_.service.SetJobs({Job(v1::RUNNING, 1)});
  master_.service.FailNext({lost, refused});
  EXPECT_TRUE(Client()->Resume("clicks-1").ok());
}

TEST_F(JobClientTest, AwaitSuspendedSaysWhyAJobRunsOn) {
  v1::JobStatus job = Job(v1::SUSPENDED, 1);
  master_.service.SetJobs({job});
  EXPECT_TRUE(Client()->AwaitSuspended("clicks-1").ok());
  job.set_state(v1::RUNNING);
  job.add_events()->set_message("runs on, since the disk is full");
  master_.service.SetJobs({job});
  const auto status = Client()->AwaitSuspended("clicks-1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("since the disk is full"));
}

TEST_F(JobClientTest, WatchesUntilTheJobHasEnded) {
  master_.service.SetStreams({{Job(v1::CREATED, 0), Job(v1::RUNNING, 5), Job(v1::SUCCEEDED, 9)}});
  master_.service.HoldStreams();  // the client leaves by itself
  std::vector<uint64_t> steps;
  const auto last =
      Client()->Watch("clicks-1", [&](const v1::JobStatus& job) { steps.push_back(job.step()); });
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->state(), v1::SUCCEEDED);
  EXPECT_THAT(steps, ElementsAre(0, 5, 9));
}

TEST_F(JobClientTest, WatchGoesOnAfterTheStreamBroke) {
  master_.service.SetJobs({Job(v1::RUNNING, 5)});
  master_.service.SetStreams({{Job(v1::RUNNING, 5)}, {Job(v1::RUNNING, 6), Job(v1::FAILED, 7)}});
  std::vector<uint64_t> steps;
  const auto last =
      Client()->Watch("clicks-1", [&](const v1::JobStatus& job) { steps.push_back(job.step()); });
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->state(), v1::FAILED);
  EXPECT_THAT(steps, ElementsAre(5, 6, 7));
}

TEST_F(JobClientTest, WatchFindsTheEndOfAJobWhoseStreamBrokeAtThat) {
  master_.service.SetJobs({Job(v1::SUCCEEDED, 8)});
  master_.service.SetStreams({{Job(v1::RUNNING, 5)}});
  const auto last = Client()->Watch("clicks-1", [](const v1::JobStatus&) {});
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->step(), 8u);
}

TEST_F(JobClientTest, WatchOfAnUnknownJobFails) {
  EXPECT_EQ(Client()->Watch("nobody", [](const v1::JobStatus&) {}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(JobClientTest, AnInterruptEndsAWatch) {
  master_.service.SetStreams({{Job(v1::RUNNING, 5)}});
  master_.service.HoldStreams();
  const auto client = Client();
  const auto last = client->Watch("clicks-1", [&](const v1::JobStatus&) { client->Interrupt(); });
  EXPECT_EQ(last.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client->List().status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace tessera::client
