#include "master/state/membership.h"

#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::master {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class MembershipTest : public testing::Test {
 protected:
  v1::Hello Hello(const std::string& name, v1::NodeKind kind, uint64_t process) {
    v1::Hello hello;
    hello.set_kind(kind);
    hello.set_name(name);
    hello.set_address("127.0.0.1:1");
    hello.set_protocol(kProtocolVersion);
    hello.set_process(process);
    hello.set_pid(4711);
    return hello;
  }
  absl::StatusOr<Membership::Joined> Join(const std::string& name, uint64_t process = 1) {
    return members_.Join(Hello(name, v1::WORKER, process), now_, absl::UnixEpoch());
  }
  uint64_t Incarnation(const absl::StatusOr<Membership::Joined>& joined) {
    EXPECT_TRUE(joined.ok()) << joined.status();
    return joined->welcome.incarnation();
  }
  std::vector<std::string> AliveWorkers() {
    std::vector<std::string> names;
    for (const Node* node : members_.Alive(v1::WORKER)) names.push_back(node->name);
    return names;
  }
  absl::Duration now_ = absl::Seconds(1000);
  Membership members_{{absl::Seconds(10), absl::Seconds(2)}, 100};
};

TEST_F(MembershipTest, IncarnationsGrowFromTheFirst) {
  EXPECT_EQ(Incarnation(Join("worker-0")), 100u);
  EXPECT_EQ(Incarnation(Join("worker-1")), 101u);
}

TEST_F(MembershipTest, WhoIsExpectedJoinsAsTheIncarnationThatItWas) {
  members_.Expect(v1::WORKER, "worker-0", "", 7, now_, absl::UnixEpoch());
  EXPECT_TRUE(members_.IsAlive(7));
  v1::Hello hello = Hello("worker-0", v1::WORKER, 1);
  hello.set_incarnation(6);
  EXPECT_EQ(members_.Join(hello, now_, absl::UnixEpoch()).status().code(),
            absl::StatusCode::kAborted);
  hello.set_incarnation(7);
  now_ += absl::Seconds(15);
  EXPECT_EQ(Incarnation(members_.Join(hello, now_, absl::UnixEpoch())), 7u);
  // A second time, its stream must have broken, and the master has seen that or will.
  EXPECT_EQ(members_.Join(hello, now_, absl::UnixEpoch()).status().code(),
            absl::StatusCode::kAborted);
  now_ += absl::Seconds(9);
  EXPECT_TRUE(members_.Heartbeat(7, {}, now_, absl::UnixEpoch()));
  now_ += absl::Seconds(10);
  EXPECT_EQ(members_.Expire(now_).size(), 1u);
  EXPECT_EQ(members_.Join(hello, now_, absl::UnixEpoch()).status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(MembershipTest, OfTwoThatAreExpectedUnderOneNameTheFirstIsDead) {
  const auto expect = [&](uint64_t incarnation) {
    return members_.Expect(v1::PS, "ps-0", "ps-0:1", incarnation, now_, absl::UnixEpoch());
  };
  EXPECT_FALSE(expect(7).has_value());
  EXPECT_FALSE(expect(7).has_value());
  EXPECT_EQ(expect(9)->incarnation, 7u);
  EXPECT_EQ(expect(8)->incarnation, 8u);
  EXPECT_TRUE(members_.IsAlive(9));
  EXPECT_FALSE(members_.IsAlive(7));
  EXPECT_FALSE(members_.IsAlive(8));
}

TEST_F(MembershipTest, WhoIsExpectedIsNotWaitedForLongAndGivesWayToAnotherOfItsName) {
  members_.Expect(v1::WORKER, "worker-0", "", 7, now_, absl::UnixEpoch());
  members_.Expect(v1::WORKER, "worker-1", "", 8, now_, absl::UnixEpoch());
  const auto joined = Join("worker-1", 99);
  EXPECT_EQ(Incarnation(joined), 100u);
  ASSERT_TRUE(joined->replaced.has_value());
  EXPECT_EQ(joined->replaced->incarnation, 8u);
  now_ += absl::Seconds(9.9);
  EXPECT_TRUE(members_.Heartbeat(100, {}, now_, absl::UnixEpoch()));
  now_ += absl::Seconds(9.9);
  EXPECT_TRUE(members_.Expire(now_).empty());
  now_ += absl::Seconds(0.2);
  const auto deaths = members_.Expire(now_);
  ASSERT_FALSE(deaths.empty());
  EXPECT_EQ(deaths[0].incarnation, 7u);
  EXPECT_THAT(deaths[0].reason, HasSubstr("has not joined in 20s"));
}

TEST_F(MembershipTest, ALeaseEndsWithoutHeartbeatsAndTheIncarnationNeverReturns) {
  const uint64_t incarnation = Incarnation(Join("worker-0"));
  now_ += absl::Seconds(9);
  EXPECT_TRUE(members_.Heartbeat(incarnation, {}, now_, absl::UnixEpoch()));
  now_ += absl::Seconds(9.9);
  EXPECT_TRUE(members_.Expire(now_).empty());
  now_ += absl::Seconds(0.1);
  const auto deaths = members_.Expire(now_);
  ASSERT_EQ(deaths.size(), 1u);
  EXPECT_EQ(deaths[0].name, "worker-0");
  EXPECT_THAT(deaths[0].reason, HasSubstr("no heartbeat for 10s"));
  EXPECT_FALSE(members_.Heartbeat(incarnation, {}, now_, absl::UnixEpoch()));
  EXPECT_THAT(AliveWorkers(), ElementsAre());
}

TEST_F(MembershipTest, ALateHeartbeatDoesNotReviveALeaseThatNobodyHasSeenEnd) {
  const uint64_t incarnation = Incarnation(Join("worker-0"));
  now_ += absl::Seconds(11);
  EXPECT_FALSE(members_.Heartbeat(incarnation, {}, now_, absl::UnixEpoch()));
}

TEST_F(MembershipTest, TheTimeThatTheMasterStoodStillCountsAgainstNobody) {
  const uint64_t hears = Incarnation(Join("worker-0", 1));
  const uint64_t breaks = Incarnation(Join("worker-1", 2));
  const uint64_t returns = Incarnation(Join("worker-2", 3));
  const absl::Duration joined = now_;
  now_ += absl::Seconds(4);
  EXPECT_FALSE(members_.Outlives(returns, joined, /*broke=*/true, now_)) << "as ever";
  now_ += absl::Seconds(30);
  members_.StoodStill(absl::Seconds(30), now_);
  EXPECT_THAT(members_.Expire(now_), ElementsAre());
  EXPECT_TRUE(members_.Heartbeat(hears, {}, now_, absl::UnixEpoch()));
  // Its stream broke meanwhile. It may come back as it was, whichever is seen first.
  EXPECT_TRUE(members_.Outlives(breaks, joined, true, now_));
  v1::Hello hello;
  hello.set_kind(v1::WORKER);
  hello.set_protocol(kProtocolVersion);
  hello.set_process(3);
  hello.set_name("worker-2");
  hello.set_incarnation(returns);
  now_ += absl::Seconds(1);
  EXPECT_EQ(Incarnation(members_.Join(hello, now_, absl::UnixEpoch())), returns);
  EXPECT_TRUE(members_.Outlives(returns, joined, true, now_)) << "the stream before";
  EXPECT_FALSE(members_.Outlives(returns, now_, /*broke=*/false, now_)) << "it leaves";
  EXPECT_FALSE(members_.Outlives(hears, joined, false, now_));
  now_ += absl::Seconds(6);
  EXPECT_THAT(members_.Expire(now_), ElementsAre());
  EXPECT_TRUE(members_.Heartbeat(hears, {}, now_, absl::UnixEpoch()));
  EXPECT_TRUE(members_.Heartbeat(returns, {}, now_, absl::UnixEpoch()));
  now_ += absl::Seconds(4);
  EXPECT_FALSE(members_.Outlives(hears, joined, true, now_)) << "long after it";
  now_ += absl::Seconds(10);
  std::vector<std::string> dead;
  for (const Membership::Death& death : members_.Expire(now_)) dead.push_back(death.reason);
  EXPECT_THAT(dead, testing::Contains(HasSubstr("it has not joined in 20s")));
}

TEST_F(MembershipTest, ANameOfALiveNodeIsRefusedAndFreeAfterItsDeath) {
  const uint64_t first = Incarnation(Join("worker-0", 1));
  const auto refused = Join("worker-0", 2);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("pid 4711"));
  EXPECT_TRUE(members_.Leave(first, "its connection broke", now_).has_value());
  EXPECT_FALSE(members_.Leave(first, "its connection broke", now_).has_value());
  EXPECT_GT(Incarnation(Join("worker-0", 2)), first);
}

TEST_F(MembershipTest, TheSameProcessReplacesItsOlderIncarnation) {
  const uint64_t first = Incarnation(Join("worker-0", 5));
  const auto again = Join("worker-0", 5);
  ASSERT_TRUE(again.ok());
  ASSERT_TRUE(again->replaced.has_value());
  EXPECT_EQ(again->replaced->incarnation, first);
  EXPECT_FALSE(members_.IsAlive(first));
}

TEST_F(MembershipTest, ADifferentProtocolIsRefusedWithBothVersions) {
  v1::Hello hello = Hello("worker-0", v1::WORKER, 1);
  hello.set_protocol(kProtocolVersion + 1);
  hello.set_version("9.9.9");
  const auto refused = members_.Join(hello, now_, absl::UnixEpoch());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("9.9.9"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr(kVersion));
}

TEST_F(MembershipTest, PicksFreeNamesAndListsInNaturalOrder) {
  for (int i = 0; i < 11; ++i) EXPECT_TRUE(Join("", 1 + i).ok());
  const std::vector<std::string> names = AliveWorkers();
  ASSERT_EQ(names.size(), 11u);
  EXPECT_EQ(names[2], "worker-2");
  EXPECT_EQ(names[10], "worker-10");
}

TEST_F(MembershipTest, RefusesNamesThatAreNotPlain) {
  EXPECT_EQ(Join("a b").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Join(std::string(64, 'a')).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Join("../x").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tessera::master
