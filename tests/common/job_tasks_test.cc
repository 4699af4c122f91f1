#include "common/job/tasks.h"

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tests/common/job_validate_testing.h"

namespace tessera {
namespace {

using testing::StartsWith;

TEST(AllLosses, HasARowForEveryLossOfAJobFile) {
  std::set<int> rows;
  for (const LossInfo& info : AllLosses()) {
    EXPECT_TRUE(rows.insert(info.loss).second) << LossName(info.loss) << " has two";
  }
  for (int i = 0; i < v1::Loss_descriptor()->value_count(); ++i) {
    const auto loss = static_cast<v1::Loss>(v1::Loss_descriptor()->value(i)->number());
    if (loss == v1::LOSS_UNSPECIFIED) continue;
    EXPECT_TRUE(rows.contains(loss)) << LossName(loss) << " has none in common/job/tasks.cc";
    v1::JobSpec spec = GoodSpec();
    spec.mutable_model()->set_loss(loss);
    if (rows.contains(loss) && IsRanking(loss)) spec.mutable_model()->set_group_by("user");
    EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
  }
}

TEST(CheckLosses, NamesTheFieldOfALossWithoutARow) {
  const auto unknown = static_cast<v1::Loss>(99);
  v1::JobSpec spec;
  EXPECT_EQ(CheckLosses(spec), absl::OkStatus());
  spec.mutable_model()->add_tasks()->set_loss(v1::HUBER);
  spec.mutable_model()->add_tasks()->set_loss(unknown);
  EXPECT_EQ(CheckLosses(spec).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(CheckLosses(spec).message()),
              StartsWith("model.tasks[1].loss: the loss number 99 has no implementation; known are "
                         "binary_cross_entropy, "));
  spec.mutable_model()->set_loss(unknown);
  EXPECT_THAT(std::string(CheckLosses(spec).message()), StartsWith("model.loss: "));
}

}  // namespace
}  // namespace tessera
