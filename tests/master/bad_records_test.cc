#include "master/run/bad_records.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::master {
namespace {

using testing::HasSubstr;

class BadRecordsTest : public testing::Test {
 protected:
  BadRecordsTest() { status().mutable_spec()->mutable_data()->set_max_bad_records(10); }
  v1::JobStatus& status() { return *record_.mutable_status(); }
  absl::Status Count(uint64_t bad, bool evaluates = false, const char* message = "a.csv:3: no") {
    v1::UnitResult result;
    result.set_bad_records(bad);
    if (bad > 0) result.set_bad_record_message(message);
    return records_.Count(result, evaluates);
  }
  void ExpectBad(uint64_t bad) {
    EXPECT_EQ(position_.bad_records(), bad);
    EXPECT_EQ(status().bad_records(), bad);
  }

  v1::JobRecord record_;
  v1::Position position_;
  BadRecords records_{&record_, &position_};
};

TEST_F(BadRecordsTest, ThoseThatAreBadAndThoseSetAsideCountTogether) {
  EXPECT_TRUE(Count(4).ok());
  EXPECT_TRUE(records_.SetAside(6).ok());
  ExpectBad(4);
  EXPECT_EQ(status().set_aside_records(), 6);
  EXPECT_TRUE(Count(0).ok());
  EXPECT_THAT(
      std::string(Count(1).message()),
      HasSubstr("5 bad records, and data.max_bad_records allows 10; the first: a.csv:3: no"));
  EXPECT_THAT(std::string(records_.SetAside(1).message()),
              HasSubstr("it makes 7 records beside 5 bad ones"));
}

TEST_F(BadRecordsTest, APredictionGivesThemLinesInPlaceOfLeavingThemOut) {
  status().set_task(v1::PREDICT);
  EXPECT_THAT(std::string(Count(11).message()), HasSubstr("lines without values"));
}

TEST_F(BadRecordsTest, AnEvaluationThatIsGivenUpHasCountedNone) {
  EXPECT_TRUE(Count(1).ok());
  EXPECT_TRUE(Count(2, /*evaluates=*/true).ok());
  ExpectBad(3);
  records_.ForgetEvaluation(records_.of_evaluation());
  ExpectBad(1);
  EXPECT_TRUE(Count(2, /*evaluates=*/true).ok());
  records_.EndEvaluation();
  EXPECT_EQ(records_.of_evaluation(), 0);
  ExpectBad(3);
}

TEST_F(BadRecordsTest, ASplitWithoutAnyGoodOneIsNamed) {
  EXPECT_TRUE(records_.CheckSamples("train", 0).ok()) << "none was bad, either";
  EXPECT_TRUE(Count(1).ok());
  EXPECT_TRUE(records_.CheckSamples("train", 1).ok());
  EXPECT_EQ(records_.CheckSamples("train", 0).message(),
            "data.train has no good record, and 1 bad ones, of which one is: a.csv:3: no");
  EXPECT_TRUE(records_.CheckSamples("validation", 0).ok());
  EXPECT_TRUE(Count(2, /*evaluates=*/true).ok());
  EXPECT_THAT(std::string(records_.CheckSamples("validation", 0).message()),
              HasSubstr("data.validation has no good record, and 2 bad ones"));
}

}  // namespace
}  // namespace tessera::master
