#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "master/services/services.h"
#include "tests/common/job_validate_testing.h"

namespace tessera::master {
namespace {

using testing::StartsWith;

TEST(JobService, AJobThatIsRefusedByFieldHoldsUpNobodyElse) {
  const std::unique_ptr<StateLog> log = NewMemoryStateLog();
  const Clock& clock = SystemClock();
  auto core = MasterCore::New({}, {}, {clock.Monotonic(), clock.Wall()});
  ASSERT_TRUE(core.ok()) << core.status();
  CoreHost host(*std::move(core), log.get(), &clock);
  JobServiceImpl service(&host);
  v1::SubmitRequest request;
  request.mutable_spec()->set_name("no name");
  std::future<grpc::Status> refused;
  host.Read([&](const MasterCore&, const Now&) {
    refused = std::async(std::launch::async, [&] {
      v1::SubmitResponse response;
      return service.Submit(nullptr, &request, &response);
    });
    // While somebody else has the core.
    EXPECT_EQ(refused.wait_for(std::chrono::minutes(2)), std::future_status::ready);
    return true;
  });
  const grpc::Status status = refused.get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), StartsWith("name: 'no name' is no name"));
}

// A disk without room.
class FullLog final : public StateLog {
 public:
  absl::Status Apply(const std::vector<Write>&) override {
    return absl::ResourceExhaustedError("no room");
  }
  absl::StatusOr<std::string> Get(const std::string&) override { return absl::NotFoundError(""); }
  absl::StatusOr<std::map<std::string, std::string>> Scan(const std::string&) override {
    return std::map<std::string, std::string>();
  }
};

TEST(JobService, NothingThatIsNotWrittenIsSaidToBeDone) {
  FullLog log;
  const Clock& clock = SystemClock();
  auto core = MasterCore::New({}, {}, {clock.Monotonic(), clock.Wall()});
  ASSERT_TRUE(core.ok()) << core.status();
  CoreHost host(*std::move(core), &log, &clock);
  JobServiceImpl service(&host);
  v1::SubmitRequest request;
  *request.mutable_spec() = GoodSpec();
  v1::SubmitResponse response;
  const grpc::Status status = service.Submit(nullptr, &request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNKNOWN);
  EXPECT_EQ(status.error_message(),
            "job clicks-1-1 is taken, but not durable yet: no room; it begins once it is, and "
            "`tessera list` says whether the master has it");
  v1::ListResponse jobs;
  ASSERT_TRUE(service.List(nullptr, nullptr, &jobs).ok());
  ASSERT_EQ(jobs.jobs_size(), 1);
  EXPECT_EQ(jobs.jobs(0).job_id(), "clicks-1-1");

  v1::SuspendRequest suspend;
  suspend.set_job_id("clicks-1-1");
  v1::SuspendResponse suspended;
  // Who repeats the call is refused, since the job is suspended: but that is no more durable.
  for (int i = 0; i < 2; ++i) {
    const grpc::Status told = service.Suspend(nullptr, &suspend, &suspended);
    EXPECT_EQ(told.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(told.error_message(), "the master cannot write its state: no room");
  }
}

}  // namespace
}  // namespace tessera::master
