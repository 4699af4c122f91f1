#include "master/plan/evaluation_round.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/window.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "master/actions/action.h"

namespace tessera::master {
namespace {

using testing::HasSubstr;

constexpr uint64_t kRoundRecords = 1000;
const std::vector<std::string> kNames = {
    "binned_auc", "logloss", "normalized_entropy", "accuracy", "calibration", "rmse", "mse", "mae"};

std::vector<v1::FileRecords> RoundFiles() {
  std::vector<v1::FileRecords> files(2);
  files[0].set_path("a.csv");
  files[0].set_records(kRoundRecords / 3);
  files[1].set_path("b.csv");
  files[1].set_records(kRoundRecords - kRoundRecords / 3);
  return files;
}

ScoreLayout Layout(bool weighted) { return {.tasks = {JobTask()}, .weighted = weighted}; }

// A unit that is held: its id, and how many records it is of.
struct Held {
  uint64_t id = 0;
  uint64_t records = 0;
};

// Workers that score record i of the split always the same.
class EvaluationRoundTest : public testing::Test {
 protected:
  EvaluationRound Start(uint64_t unit_records, std::vector<std::string> folded) {
    first_record_.clear();
    handed_out_ = 0;
    return EvaluationRound(7, "validation", RoundFiles(), unit_records, Layout(weighted_),
                           std::move(folded));
  }
  Held Take(EvaluationRound& round) {
    const std::optional<v1::Evaluate> unit = round.Next();
    EXPECT_TRUE(unit.has_value());
    const Held held = {++unit_ids_, CountRecords({unit->ranges().begin(), unit->ranges().end()})};
    round.HandedOut(held.id);
    first_record_[held.id] = handed_out_;
    handed_out_ += held.records;
    return held;
  }
  Held TakeAgain(EvaluationRound& round, const Held& held) {
    const Held again = {++unit_ids_, held.records};
    round.HandedOutAgain(held.id, again.id);
    first_record_[again.id] = first_record_.at(held.id);
    return again;
  }
  EvaluationRound::Scores ScoresOf(const Held& held) const {
    EvaluationRound::Scores scores;
    for (uint64_t i = 0; i < held.records; ++i) {
      std::mt19937 random(static_cast<uint32_t>(first_record_.at(held.id) + i));
      const float x = std::normal_distribution<float>(-1, 2)(random);
      scores.outputs.push_back(x);
      scores.labels.push_back(random() % 100 < 100 / (1 + std::exp(-x)) ? 1 : 0);
      if (weighted_) scores.labels.push_back(static_cast<float>(random() % 1000) / 7);
    }
    return scores;
  }
  absl::Status Report(EvaluationRound& round, const Held& held) {
    const absl::Status set = round.SetScores(held.id, ScoresOf(held));
    return set.ok() ? round.Complete(held.id, held.records) : set;
  }
  // The round with its units completed in any order.
  ActionResult Measured(uint64_t unit_records, bool folded, uint32_t seed) {
    EvaluationRound round = Start(unit_records, folded ? kNames : std::vector<std::string>());
    std::vector<Held> units;
    while (round.Next().has_value()) units.push_back(Take(round));
    std::mt19937 random(seed);
    std::shuffle(units.begin(), units.end(), random);
    for (const Held& unit : units) EXPECT_EQ(Report(round, unit), absl::OkStatus());
    EXPECT_TRUE(round.done());
    return Finish(round);
  }
  ActionResult Finish(EvaluationRound& round) const {
    ComputeMetrics compute;
    compute.layout = Layout(weighted_);
    compute.names = kNames;
    if (round.folded().empty()) {
      EvaluationRound::Scores scores = round.TakeScores();
      compute.outputs = scores.outputs;
      compute.labels = scores.labels;
    } else {
      compute.sums = round.TakeSums();
    }
    return Measure(compute);
  }

  bool weighted_ = false;
  uint64_t unit_ids_ = 100;
  uint64_t handed_out_ = 0;                    // records
  std::map<uint64_t, uint64_t> first_record_;  // of a unit
};

TEST_F(EvaluationRoundTest, FoldedIsWhatAllScoresAreBitForBitInAnyOrderAndAnyUnits) {
  for (const bool weighted : {false, true}) {
    weighted_ = weighted;
    const ActionResult expected = Measured(kRoundRecords, false, 1);
    for (const auto& [name, value] : expected.metrics) EXPECT_TRUE(std::isfinite(value)) << name;
    for (const uint64_t unit_records : {kRoundRecords, kRoundRecords / 2, uint64_t{77}}) {
      for (const uint32_t seed : {2u, 3u}) {
        const ActionResult folded = Measured(unit_records, true, seed);
        EXPECT_EQ(folded.metrics, expected.metrics) << unit_records;
        EXPECT_EQ(folded.samples, kRoundRecords);
        EXPECT_LT(folded.error_bounds.at("binned_auc"), 0.01);
      }
    }
  }
}

TEST_F(EvaluationRoundTest, AUnitThatIsHandedOutAgainCountsOnce) {
  const ActionResult expected = Measured(kRoundRecords, true, 1);
  EvaluationRound round = Start(kRoundRecords / 2, kNames);
  const Held first = Take(round), second = Take(round);
  // It has sent its scores, and is lost before it says so.
  ASSERT_EQ(round.SetScores(first.id, ScoresOf(first)), absl::OkStatus());
  const Held again = TakeAgain(round, first);
  EXPECT_EQ(round.Complete(again.id, again.records).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Report(round, first).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Report(round, second), absl::OkStatus());
  EXPECT_EQ(Report(round, again), absl::OkStatus());
  // What comes after it is done does not count either.
  EXPECT_EQ(Report(round, again).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Report(round, first).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(round.done());
  const ActionResult measured = Finish(round);
  EXPECT_EQ(measured.samples, kRoundRecords);
  EXPECT_EQ(measured.metrics, expected.metrics);
}

TEST_F(EvaluationRoundTest, ScoresThatAreSentTwiceReplaceTheFirst) {
  const ActionResult expected = Measured(kRoundRecords, true, 1);
  EvaluationRound round = Start(kRoundRecords, kNames);
  const Held unit = Take(round);
  ASSERT_EQ(round.SetScores(unit.id, {{1, 2}, {0, 1}, {}}), absl::OkStatus());
  EXPECT_EQ(Report(round, unit), absl::OkStatus());
  EXPECT_EQ(Finish(round).metrics, expected.metrics);
}

TEST_F(EvaluationRoundTest, RefusesScoresThatCannotBeTheUnits) {
  for (const bool folded : {false, true}) {
    EvaluationRound round = Start(10, folded ? kNames : std::vector<std::string>());
    const Held unit = Take(round);
    const auto refused = [&](size_t outputs, size_t labels, size_t groups, const char* why) {
      const absl::Status status = round.SetScores(
          unit.id,
          {std::vector<float>(outputs), std::vector<float>(labels), std::vector<uint64_t>(groups)});
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    };
    refused(2, 1, 0, "2 outputs, 1 labels");
    refused(2, 2, 2, "2 groups");
    refused(11, 11, 0, "expected at most 10");
    EXPECT_EQ(round.SetScores(unit.id, {{0}, {0}, {}}), absl::OkStatus());
    EXPECT_THAT(std::string(round.Complete(unit.id, 2).message()), HasSubstr("scores of 1"));
  }
}

TEST_F(EvaluationRoundTest, AUnitOfNothingButBadRecordsAddsNothing) {
  EvaluationRound round = Start(kRoundRecords, kNames);
  const Held unit = Take(round);
  EXPECT_EQ(round.Complete(unit.id, 0), absl::OkStatus());
  EXPECT_TRUE(round.done());
  const ActionResult measured = Finish(round);
  EXPECT_EQ(measured.samples, 0u);
  EXPECT_TRUE(std::isnan(measured.metrics.at("binned_auc")));
}

}  // namespace
}  // namespace tessera::master
