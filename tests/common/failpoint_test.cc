#include "common/failpoint.h"

#include <set>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class FailpointTest : public testing::Test {
 protected:
  ~FailpointTest() override { DisarmFailpoints(); }

  static absl::Status Append() { return Failpoint("ps.push_log.append"); }
  // Which of the first `hits` hits fail.
  static std::set<int> Failures(int hits) {
    std::set<int> failures;
    for (int hit = 1; hit <= hits; ++hit) {
      if (!Append().ok()) failures.insert(hit);
    }
    return failures;
  }
  static void ExpectRefused(const char* rules, const std::string& message) {
    const absl::Status armed = ArmFailpoints(rules);
    EXPECT_EQ(armed.code(), StatusCode::kInvalidArgument) << rules;
    EXPECT_THAT(std::string(armed.message()), HasSubstr(message)) << rules;
    EXPECT_TRUE(Append().ok());
  }
};

TEST_F(FailpointTest, NothingFailsUnlessArmed) {
  for (const char* nothing : {static_cast<const char*>(nullptr), "", " ; "}) {
    ASSERT_TRUE(ArmFailpoints(nothing).ok());
    EXPECT_FALSE(internal_failpoint::armed.load());
    EXPECT_TRUE(Append().ok());
  }
}

TEST_F(FailpointTest, FailsAtTheHitsItIsToldAndAtItsOwnPlaceAlone) {
  const struct {
    const char* when;
    std::set<int> hits;
  } cases[] = {{"", {1, 2, 3, 4, 5, 6, 7}},
               {"@3", {3}},
               {"@2-4", {2, 3, 4}},
               {"@6-", {6, 7}},
               {"@2+3", {2, 5}}};
  for (const auto& [when, expected] : cases) {
    ASSERT_TRUE(ArmFailpoints((std::string("ps.push_log.append=error") + when).c_str()).ok());
    EXPECT_TRUE(Failpoint("ps.push_log.sync").ok());
    EXPECT_EQ(Failures(7), expected) << when;
  }
}

TEST_F(FailpointTest, AnErrorIsUnavailableAndNamesThePlaceAndTheHit) {
  ASSERT_TRUE(ArmFailpoints("ps.push_log.append=error@2").ok());
  ASSERT_TRUE(Append().ok());
  const absl::Status failed = Append();
  EXPECT_EQ(failed.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("ps.push_log.append"));
  EXPECT_THAT(std::string(failed.message()), HasSubstr("hit 2"));
}

TEST_F(FailpointTest, SeveralRulesHoldTogether) {
  ASSERT_TRUE(ArmFailpoints("ps.push_log.append=error@1; ps.push_log.append=error@3 ;"
                            "ps.push_log.sync=error@2")
                  .ok());
  EXPECT_EQ(Failures(4), (std::set<int>{1, 3}));
  EXPECT_TRUE(Failpoint("ps.push_log.sync").ok());
  EXPECT_FALSE(Failpoint("ps.push_log.sync").ok());
}

TEST_F(FailpointTest, ADelayTakesAtLeastItsTime) {
  ASSERT_TRUE(ArmFailpoints("ps.push.answer=delay:20ms@1").ok());
  const absl::Time start = absl::Now();
  PassFailpoint("ps.push.answer");
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(19));
}

TEST_F(FailpointTest, ACrashEndsTheProcessAtOnce) {
  EXPECT_EXIT(
      {
        ArmFailpoints("ps.push.answer=crash@2").IgnoreError();
        PassFailpoint("ps.push.answer");
        PassFailpoint("ps.push.answer");
      },
      testing::ExitedWithCode(137), "");
}

TEST_F(FailpointTest, AnUnknownNameIsRefusedWithThoseThatThereAre) {
  ExpectRefused("ps.push_log.apend=crash", "\"ps.push_log.apend\"");
  for (const FailpointPlace& place : kFailpoints) {
    ExpectRefused("nothing=crash", std::string(place.name));
  }
}

TEST_F(FailpointTest, WhatIsMalformedIsRefusedWithWhatWasExpected) {
  ExpectRefused("ps.push_log.append", "name=action@when");
  ExpectRefused("ps.push_log.append=explode", "crash, error or delay");
  ExpectRefused("ps.push_log.append=delay:soon", "crash, error or delay");
  ExpectRefused("ps.push.answer=error", "nothing can fail there");
  for (const char* when : {"@", "@0", "@x", "@3-2", "@1+0", "@1-2-3", "@-4"}) {
    ExpectRefused((std::string("ps.push_log.append=error") + when).c_str(), "N, N-M, N- or N+K");
  }
  ExpectRefused("ps.push_log.append=error@1;x=crash", "\"x\"");
}

TEST_F(FailpointTest, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (const FailpointPlace& place : kFailpoints) {
    EXPECT_TRUE(names.insert(place.name).second) << place.name;
  }
}

}  // namespace
}  // namespace tessera
