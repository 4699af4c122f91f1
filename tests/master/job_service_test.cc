#include <future>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "master/services.h"

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
  host.Read([&](const MasterCore&, const MasterCore::Now&) {
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

}  // namespace
}  // namespace tessera::master
