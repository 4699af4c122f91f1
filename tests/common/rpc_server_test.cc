#include "common/rpc/server.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(RpcServer, AnAddressThatIsTakenIsAnErrorAndNoLineOfGrpc) {
  const auto first = RpcServer::Start({}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  testing::internal::CaptureStderr();
  const auto second = RpcServer::Start({.listen = (*first)->address()}, {});
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              testing::AllOf(testing::HasSubstr((*first)->address()),
                             testing::HasSubstr("the port is in use")));
  EXPECT_EQ(errors, "");
}

TEST(RpcServer, KnowsAddressesThatNameNoMachine) {
  EXPECT_TRUE(IsWildcard("0.0.0.0:7071"));
  EXPECT_TRUE(IsWildcard("[::]:7071"));
  EXPECT_TRUE(IsWildcard(":::7071"));
  EXPECT_TRUE(IsWildcard(":7071"));
  EXPECT_FALSE(IsWildcard("10.0.0.7:7071"));
  EXPECT_FALSE(IsWildcard("[::1]:7071"));
  EXPECT_FALSE(IsWildcard("ps-0"));
}

}  // namespace
}  // namespace tessera
