#include "worker/job_runner.h"

#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;

// A master that has nothing to do for its worker: says what it is told to, then that the job has
// ended.
class FakeMaster final : public v1::WorkService::Service {
 public:
  explicit FakeMaster(std::vector<absl::Status> answers) : answers_(std::move(answers)) {}

  grpc::Status NextWork(grpc::ServerContext*, const v1::NextWorkRequest* request,
                        v1::NextWorkResponse* response) override {
    absl::MutexLock lock(&mu_);
    requests_.push_back(*request);
    if (requests_.size() > answers_.size()) return ToGrpc(absl::NotFoundError("the job has ended"));
    response->mutable_wait()->set_reason("test");
    return ToGrpc(answers_[requests_.size() - 1]);
  }
  std::vector<v1::NextWorkRequest> requests() {
    absl::MutexLock lock(&mu_);
    return requests_;
  }

 private:
  const std::vector<absl::Status> answers_;
  absl::Mutex mu_;
  std::vector<v1::NextWorkRequest> requests_ ABSL_GUARDED_BY(mu_);
};

class JobRunnerTest : public ::testing::Test {
 protected:
  // What the worker asked a master that answers so.
  std::vector<v1::NextWorkRequest> Ask(std::vector<absl::Status> answers) {
    FakeMaster master(std::move(answers));
    InProcessChannels channels;
    const auto server = *RpcServer::Start({.listen = "master", .in_process = &channels}, {&master});
    StatusBoard board(SystemClock());
    Cancellation cancellation;
    JobRunner::Options options;
    options.connect_master = [&channels] { return channels.Connect("master"); };
    options.board = &board;
    options.cancellation = &cancellation;
    const absl::Status end = JobRunner(v1::Assignment(), std::move(options)).Run();
    EXPECT_EQ(end.code(), absl::StatusCode::kNotFound) << end;
    return master.requests();
  }
};

TEST_F(JobRunnerTest, ABrokenConnectionIsNoRefusal) {
  const auto requests = Ask(
      {absl::CancelledError("the server is shutting down"), absl::UnknownError("Stream removed"),
       absl::OkStatus(), absl::InternalError("received RST_STREAM"),
       absl::UnavailableError("no connection"), absl::CancelledError("the server is shutting down"),
       absl::UnavailableError("no connection")});
  ASSERT_EQ(requests.size(), 8u);
  for (const v1::NextWorkRequest& request : requests) EXPECT_EQ(request.result().code(), 0);
}

TEST_F(JobRunnerTest, WhatTheMasterDoesNotTakeIsAFailureOfTheUnit) {
  const absl::Status refusal = absl::InvalidArgumentError("too many samples");
  const auto requests = Ask({refusal, refusal, refusal});
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[2].result().code(), 0);
  EXPECT_EQ(requests[3].result().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(requests[3].result().message(),
              HasSubstr("the master did not take a result: INVALID_ARGUMENT: too many samples"));
}

TEST(ResultOfCountTest, RefusesMoreNamesOfFilesThanAMessageHolds) {
  std::vector<v1::FileRecords> files(1000);
  for (v1::FileRecords& file : files) file.set_path(std::string(4000, 'x'));
  const absl::StatusOr<v1::UnitResult> result = ResultOfCount(files);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->files_size(), 1000);
  files.resize(17000, files[0]);
  const absl::Status refused = ResultOfCount(files).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("the names of 17000 files take 68102000 bytes"));
}

}  // namespace
}  // namespace tessera::worker
