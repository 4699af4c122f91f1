// Cards that train the rows that they keep (train.row_cache.write_back).
#include "common/job/optimizer.h"
#include "tests/common/job_validate_testing.h"
#include "tests/optimizers.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

v1::JobSpec WritesBack() {
  v1::JobSpec good = GoodSpec();
  good.mutable_consistency()->set_sparse(v1::ASYNC);
  good.mutable_train()->clear_clip();
  good.mutable_train()->mutable_row_cache()->set_share(0.1f);
  good.mutable_train()->mutable_row_cache()->set_write_back(true);
  for (v1::TableSpec& table : *good.mutable_tables()) {
    table.mutable_optimizer()->mutable_row_wise_adagrad();
    table.clear_admission();
    table.clear_expiry();
    table.clear_update();
  }
  return good;
}

TEST(ValidateJobSpec, TakesACardThatTrainsItsRowsWhereNothingElseNeedsTheirGradients) {
  const v1::JobSpec good = WritesBack();
  EXPECT_EQ(ValidateJobSpec(good), absl::OkStatus());
  const std::string path = "train.row_cache.write_back";
  const auto optimizer = [](v1::JobSpec& s) { return s.mutable_tables(1)->mutable_optimizer(); };
  ExpectRefused(
      good, {
                {[](auto& s) { s.mutable_train()->mutable_row_cache()->set_share(0); }, path,
                 "neither train.row_cache.bytes nor train.row_cache.share is above 0"},
                {[](auto& s) { s.mutable_consistency()->set_sparse(v1::SYNC); }, path,
                 "is true with consistency.sparse: sync"},
                {[](auto& s) { s.mutable_train()->mutable_clip()->set_norm(1); }, path,
                 "is true beside train.clip"},
                {[](auto& s) { s.mutable_recovery()->set_set_aside_after(3); }, path,
                 "is true beside recovery.set_aside_after: 3"},
                {[=](auto& s) { optimizer(s)->mutable_lamb(); }, path,
                 "table embedding has the optimizer lamb"},
                {[](auto& s) { s.mutable_tables(1)->set_update(v1::EVERY_ROW); }, path,
                 "table embedding has update: every_row"},
                {[](auto& s) { s.mutable_tables(1)->mutable_expiry()->set_after_steps(9); }, path,
                 "table embedding has expiry"},
                {[](auto& s) { s.mutable_tables(0)->mutable_admission()->set_after_sightings(2); },
                 path, "table linear has admission"},
            });
}

TEST(ValidateJobSpec, TakesACardThatTrainsItsRowsWithAnyOptimizerThatDoesNotStepByTheWhole) {
  v1::JobSpec spec = WritesBack();
  v1::OptimizerSpec& optimizer = *spec.mutable_tables(1)->mutable_optimizer();
  for (const std::string& kind : KindsOfOptimizers()) {
    optimizer = OptimizerNamed(kind);
    optimizer.set_learning_rate(0.1f);
    EXPECT_EQ(ValidateJobSpec(spec).ok(), !StepsByWhole(optimizer)) << kind;
  }
}

TEST(ValidateWorkers, AreOneWhereACardTrainsWhatCannotBeAddedUp) {
  v1::JobSpec spec = GoodSpec();
  for (v1::TableSpec& table : *spec.mutable_tables()) table.mutable_optimizer()->mutable_adagrad();
  for (const bool write_back : {false, true}) {
    spec.mutable_train()->mutable_row_cache()->set_write_back(write_back);
    spec.mutable_tables(1)->mutable_optimizer()->mutable_adagrad()->clear_decay();
    for (const uint32_t workers : {0, 1, 5}) EXPECT_TRUE(ValidateWorkers(spec, workers).ok());
    spec.mutable_tables(1)->mutable_optimizer()->mutable_adagrad()->set_decay(0.9f);
    EXPECT_TRUE(ValidateWorkers(spec, 1).ok());
    EXPECT_EQ(ValidateWorkers(spec, 5).ok(), !write_back);
  }
  spec.mutable_tables(1)->mutable_optimizer()->mutable_adam();
  EXPECT_THAT(std::string(ValidateWorkers(spec, 5).message()),
              AllOf(StartsWith("workers: found 5, expected 1"),
                    HasSubstr("the optimizer of table embedding, adam, does not")));
  EXPECT_THAT(std::string(ValidateWorkers(spec, 0).message()),
              StartsWith("workers: found 0 (as many as there are), expected 1"));
}

// What one has made of a row is 3 batches old before another can have it.
TEST(ValidateWorkers, AreOneWhereTheLeadIsBoundedBelowTheAgeOfRowsThatACardTrains) {
  v1::JobSpec spec = GoodSpec();
  for (v1::TableSpec& table : *spec.mutable_tables()) table.mutable_optimizer()->mutable_sgd();
  for (const bool write_back : {false, true}) {
    spec.mutable_train()->mutable_row_cache()->set_write_back(write_back);
    for (const v1::Consistency mode : {v1::ASYNC, v1::BOUNDED}) {
      spec.mutable_consistency()->set_sparse(mode);
      for (const uint32_t max_lead : {0, 1, 2, 3}) {
        spec.mutable_consistency()->set_max_lead(max_lead);
        const bool too_old = write_back && mode == v1::BOUNDED && (max_lead == 1 || max_lead == 2);
        EXPECT_TRUE(ValidateWorkers(spec, 1).ok());
        EXPECT_EQ(ValidateWorkers(spec, 2).ok(), !too_old) << max_lead;
        EXPECT_EQ(ValidateWorkers(spec, 0).ok(), !too_old) << max_lead;
      }
    }
  }
  spec.mutable_consistency()->set_max_lead(1);
  EXPECT_THAT(std::string(ValidateWorkers(spec, 2).message()),
              AllOf(StartsWith("consistency.max_lead: found 1 and 2 workers"),
                    HasSubstr("expected at least 3, or 1 worker")));
}

}  // namespace
}  // namespace tessera
