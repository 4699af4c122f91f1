#include "ps/steps/push_order.h"

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

constexpr absl::Duration kStart = absl::Seconds(10);

v1::OpenJobRequest JobOf(const std::vector<v1::Consistency>& tables, uint32_t workers = 2,
                         uint32_t max_lead = 0) {
  v1::OpenJobRequest request;
  request.set_workers(workers);
  request.set_max_lead(max_lead);
  for (const v1::Consistency mode : tables) request.add_tables()->set_consistency(mode);
  return request;
}

class PushOrderTest : public testing::Test {
 protected:
  void Prepare(const v1::OpenJobRequest& request) {
    job_ = request;
    order_.emplace(request, kStart);
  }
  bool MayPull(uint32_t rank, uint64_t step, uint64_t begins) {
    return order_->MayAnswer(PullFor(rank, step, begins), kStart);
  }
  static v1::PullRequest PullFor(uint32_t rank, uint64_t step, uint64_t begins) {
    v1::PullRequest pull;
    pull.mutable_header()->set_rank(rank);
    pull.set_step(step);
    pull.set_begins(begins);
    return pull;
  }
  static v1::PushRequest PushFor(uint32_t rank, uint64_t sequence) {
    v1::PushRequest push;
    push.mutable_header()->set_rank(rank);
    push.set_sequence(sequence);
    push.set_learning_rate_scale(1);
    return push;
  }
  // Takes a new push that has changed table 0 if that is not in sync mode.
  void Push(uint32_t rank, uint64_t sequence) {
    const v1::PushRequest push = PushFor(rank, sequence);
    const auto verdict = order_->Check(push);
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    ASSERT_EQ(*verdict, PushVerdict::kNew);
    std::vector<uint32_t> changed;
    if (job_.tables(0).consistency() != v1::SYNC) changed.push_back(0);
    order_->Add(push, changed, {}, kStart);
    EXPECT_EQ(*order_->Check(push), PushVerdict::kRepeat);
  }

  v1::OpenJobRequest job_;
  std::optional<PushOrder> order_;
};

TEST_F(PushOrderTest, OneTableInSyncModeMakesEveryPullWaitForItsStep) {
  Prepare(JobOf({v1::ASYNC, v1::SYNC}));
  EXPECT_TRUE(PushOrder::HasSync(job_));
  EXPECT_TRUE(MayPull(0, 0, 1));
  EXPECT_FALSE(MayPull(0, 1, 2));
  EXPECT_TRUE(order_->Awaits(0));
  EXPECT_FALSE(order_->Awaits(1));
  for (const uint32_t rank : {0u, 1u}) Push(rank, 0);
  EXPECT_FALSE(order_->Complete()) << "no rank has confirmed";
  EXPECT_FALSE(*order_->ConfirmBy(PullFor(0, 1, 2)));
  EXPECT_TRUE(order_->ConfirmBefore(Rank(1), 1));
  EXPECT_EQ(order_->Take().size(), 2u);
  order_->Applied();
  EXPECT_TRUE(MayPull(0, 1, 2));
  EXPECT_EQ(order_->applied_steps(), 1u);
  EXPECT_EQ(order_->applied(), 1u);
  EXPECT_EQ(order_->staleness().of(0).count(), 1u) << "of rank 0; rank 1 never pulled";
  EXPECT_EQ(order_->staleness().of(1).count(), 0u);
}

TEST_F(PushOrderTest, WithoutATableInSyncModeNobodyWaits) {
  Prepare(JobOf({v1::ASYNC, v1::ASYNC}));
  EXPECT_FALSE(PushOrder::HasSync(job_));
  EXPECT_TRUE(MayPull(0, 0, 8));
  for (const uint64_t sequence : {0, 1, 2}) Push(0, sequence);
  Push(1, 0);
  EXPECT_FALSE(order_->Complete());
  EXPECT_FALSE(order_->ConfirmBefore(Rank(0), 3));
  EXPECT_FALSE(*order_->ConfirmBy(PullFor(0, 3, 0)));
  EXPECT_EQ(order_->applied_steps(), 3u) << "of the rank that is furthest";
  EXPECT_EQ(order_->applied(), 4u) << "of all ranks";
  EXPECT_FAILS(order_->CheckConfirmed(Rank(1), 2), StatusCode::kAborted, "push log");
}

TEST_F(PushOrderTest, SaysWhomAPullWaitsFor) {
  Prepare(JobOf({v1::SYNC}));
  Push(0, 0);
  EXPECT_EQ(order_->StepOf(PullFor(0, 1, 2)), 1u);
  EXPECT_THAT(order_->WaitsFor(PullFor(0, 1, 2), kStart + absl::Seconds(2)),
              HasSubstr("the pushes of step 0 from rank "));
  Prepare(JobOf({v1::BOUNDED}, /*workers=*/2, /*max_lead=*/1));
  EXPECT_TRUE(MayPull(0, 0, 1));
  EXPECT_TRUE(MayPull(1, 0, 1));
  Push(1, 0);
  EXPECT_FALSE(MayPull(1, 0, 2));
  EXPECT_EQ(order_->StepOf(PullFor(1, 0, 2)), 1u);
  EXPECT_EQ(order_->WaitsFor(PullFor(1, 0, 2), kStart + absl::Seconds(2)),
            "rank 0, at its step 0 since 2s, while it has begun max_lead (1) steps");
}

TEST_F(PushOrderTest, AWorkerThatTakesARankOverHearsWhatComesNext) {
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    Prepare(JobOf({mode}));
    Push(1, 0);
    Push(1, 1);
    const auto progress = order_->TakeOver(Rank(1), 1);
    ASSERT_TRUE(progress.ok()) << progress.status();
    EXPECT_EQ(progress->next_push(), 2u);
    EXPECT_EQ(progress->end_push(), 2u);
  }
  EXPECT_FAILS(order_->TakeOver(Rank(1), 3).status(), StatusCode::kAborted, "push log");
}

TEST_F(PushOrderTest, AHeadOfALogGoesIntoAJobOfItsModeAlone) {
  v1::PushLogHead head;
  Prepare(JobOf({v1::ASYNC}));
  Push(0, 0);
  Push(0, 1);
  order_->Save(head);
  Prepare(JobOf({v1::ASYNC}));
  ASSERT_TRUE(order_->Load(head, 0).ok());
  EXPECT_EQ(order_->applied(), 2u);
  EXPECT_EQ(*order_->Check(PushFor(0, 1)), PushVerdict::kRepeat);
  Prepare(JobOf({v1::ASYNC}, /*workers=*/3));
  EXPECT_EQ(order_->Load(head, 0).code(), StatusCode::kFailedPrecondition);

  Prepare(JobOf({v1::SYNC}));
  v1::PushLogHead at_7;
  at_7.set_next_step(7);
  EXPECT_TRUE(order_->Load(at_7, 7).ok());
  EXPECT_FAILS(order_->Load(at_7, 6), StatusCode::kFailedPrecondition,
               "begins at step 7, expected 6");
}

TEST_F(PushOrderTest, OnlyAJobWithoutSyncTablesBeginsAlone) {
  Prepare(JobOf({v1::ASYNC}));
  ASSERT_TRUE(order_->BeginAlone({3, 5}).ok());
  EXPECT_EQ(*order_->Check(PushFor(1, 4)), PushVerdict::kRepeat);
  Prepare(JobOf({v1::SYNC, v1::ASYNC}));
  EXPECT_FAILS(order_->BeginAlone({3, 5}), StatusCode::kInvalidArgument,
               "pushed has 2 ranks, expected 0, since a table is sync");
}

}  // namespace
}  // namespace tessera::ps
