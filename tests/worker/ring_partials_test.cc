#include "worker/ring/ring_partials.h"

#include <memory>
#include <new>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What became of a call.
using Outcome = std::shared_ptr<std::optional<absl::StatusOr<std::string>>>;

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

// Rank 1 of 3, generation 4, incarnation 5.
class RingPartialsTest : public ::testing::Test {
 protected:
  RingPartialsTest() { Begin(4); }

  void Begin(uint64_t generation) {
    partials_.Begin(
        {.job_id = "job-1", .generation = generation, .rank = 1, .ranks = 3, .incarnation = 5});
  }

  // Of rank 2, unless a test changes it.
  v1::TakePartialRequest Request(uint64_t step, uint32_t share = 0, uint32_t piece = 0) const {
    v1::TakePartialRequest request;
    request.mutable_header()->set_job_id("job-1");
    request.mutable_header()->set_generation(4);
    request.mutable_header()->set_rank(2);
    request.mutable_header()->set_incarnation(7);
    request.mutable_header()->set_to_rank(1);
    request.set_step(step);
    request.set_share(share);
    request.set_piece(piece);
    return request;
  }
  static RingPartials::Answer Into(const Outcome& outcome) {
    return [outcome](absl::StatusOr<grpc::ByteBuffer> answer) {
      ASSERT_FALSE(outcome->has_value()) << "a call is answered once";
      if (!answer.ok()) {
        *outcome = answer.status();
        return;
      }
      std::vector<grpc::Slice> slices;
      std::string text;
      if (answer->Valid()) {
        EXPECT_TRUE(answer->Dump(&slices).ok());
      }
      for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
      *outcome = text;
    };
  }
  Outcome Take(const v1::TakePartialRequest& request, uint64_t* call = nullptr) {
    auto outcome = std::make_shared<std::optional<absl::StatusOr<std::string>>>();
    const uint64_t number = partials_.TakePartial(request, Into(outcome));
    if (call != nullptr) *call = number;
    return outcome;
  }
  // By rank 0.
  Outcome AwaitTaken(uint64_t step) {
    auto outcome = std::make_shared<std::optional<absl::StatusOr<std::string>>>();
    v1::AwaitTakenRequest request;
    *request.mutable_header() = Request(step).header();
    request.mutable_header()->set_rank(0);
    request.set_step(step);
    partials_.AwaitTaken(request, Into(outcome));
    return outcome;
  }
  // By a worker that has taken over rank 0 or 2; worker `before` has rank 0.
  Outcome Trace(uint32_t rank, uint64_t step, uint64_t incarnation, uint64_t before) {
    auto outcome = std::make_shared<std::optional<absl::StatusOr<std::string>>>();
    v1::TraceGradientsRequest request;
    *request.mutable_header() = Request(step).header();
    request.mutable_header()->set_rank(rank);
    request.mutable_header()->set_incarnation(incarnation);
    request.set_step(step);
    request.set_incarnation_before(before);
    partials_.TraceGradients(request, Into(outcome));
    return outcome;
  }
  // What is answered to a call of Trace.
  static bool Taken(const Outcome& outcome) {
    v1::TraceGradientsResponse response;
    EXPECT_TRUE(StatusOf(outcome).ok()) << StatusOf(outcome);
    EXPECT_TRUE(response.ParseFromString(TextOf(outcome)));
    EXPECT_EQ(response.incarnation(), 5u);
    return response.taken();
  }
  // "": it waits, or failed.
  static std::string TextOf(const Outcome& outcome) {
    return StatusOf(outcome).ok() ? ***outcome : "";
  }
  static absl::Status StatusOf(const Outcome& outcome) {
    return outcome->has_value() ? (*outcome)->status() : absl::UnknownError("it waits");
  }

  RingPartials partials_;
};

TEST_F(RingPartialsTest, ACallIsHeldUntilItsPieceIsThere) {
  const Outcome early = Take(Request(5, 2, 1));
  partials_.BeginStep(5);
  partials_.Offer(2, 0, Bytes("another"));
  EXPECT_FALSE(early->has_value());
  partials_.Offer(2, 1, Bytes("sums"));
  EXPECT_EQ(TextOf(early), "sums");
  EXPECT_EQ(TextOf(Take(Request(5, 2, 1))), "sums") << "again, the same";
}

TEST_F(RingPartialsTest, PartialSumsAreKeptUntilTheNextStepBegins) {
  partials_.BeginStep(5);
  partials_.Offer(0, 0, Bytes("of 5"));
  const Outcome ahead = Take(Request(6));
  EXPECT_EQ(TextOf(Take(Request(5))), "of 5");
  partials_.BeginStep(6);
  EXPECT_FALSE(ahead->has_value()) << "what is of another step is not an answer";
  EXPECT_THAT(std::string(StatusOf(Take(Request(5))).message()),
              HasSubstr("rank 1 is at step 6, and the partial sums of step 5 were lost with"));
  partials_.Offer(0, 0, Bytes("of 6"));
  EXPECT_EQ(TextOf(ahead), "of 6");
  partials_.BeginStep(6);
  EXPECT_EQ(TextOf(Take(Request(6))), "of 6") << "a step that is begun again keeps what it has";
}

TEST_F(RingPartialsTest, WhoTookARankOverSaysWhatItWillNotMakeAgain) {
  const Outcome waits = Take(Request(5));
  const Outcome before = AwaitTaken(5);
  const Outcome ahead = AwaitTaken(6);
  partials_.ResumeAt(6, 6);
  ASSERT_TRUE(waits->has_value());
  EXPECT_EQ(StatusOf(waits).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(StatusOf(before).ok()) << "the worker before it had pushed, so it had taken all";
  EXPECT_FALSE(ahead->has_value());
}

TEST_F(RingPartialsTest, TheRankBeforeHearsWhenAllIsTaken) {
  partials_.BeginStep(5);
  const Outcome of_5 = AwaitTaken(5);
  EXPECT_TRUE(StatusOf(AwaitTaken(4)).ok()) << "step 5 begins when all had what they need of 4";
  EXPECT_FALSE(of_5->has_value());
  partials_.SetTaken();
  EXPECT_TRUE(StatusOf(of_5).ok());
  EXPECT_TRUE(StatusOf(AwaitTaken(5)).ok());
  EXPECT_FALSE(AwaitTaken(6)->has_value());
}

TEST_F(RingPartialsTest, WhoseGradientsAreInWhatWasTakenIsKnownByRankAndStep) {
  partials_.ResumeAt(5, 5);
  EXPECT_FALSE(Taken(Trace(0, 5, 7, 7)));
  partials_.BeginStep(5);
  EXPECT_FALSE(Taken(Trace(0, 5, 7, 7)));
  EXPECT_TRUE(partials_.MarkTaken(0, 7).ok()) << "nobody has samples so far";
  EXPECT_FALSE(Taken(Trace(0, 5, 7, 7)));
  EXPECT_TRUE(partials_.MarkTaken(1, 7).ok());
  EXPECT_TRUE(Taken(Trace(0, 5, 7, 7)));
  EXPECT_FALSE(Taken(Trace(2, 5, 7, 7))) << "of the rank before alone";
  EXPECT_TRUE(partials_.MarkTaken(2, 7).ok());
  EXPECT_TRUE(partials_.MarkTaken(1, 7).ok());
  EXPECT_TRUE(Taken(Trace(2, 5, 7, 7)));
  EXPECT_FALSE(Taken(Trace(2, 6, 7, 7))) << "of a step to come";
  partials_.BeginStep(5);
  EXPECT_TRUE(Taken(Trace(2, 5, 7, 7))) << "a step that is begun again keeps what it has";
  partials_.BeginStep(6);
  EXPECT_FALSE(Taken(Trace(2, 6, 7, 7)));
  Begin(4);
  partials_.ResumeAt(6, 6);
  EXPECT_FALSE(Taken(Trace(0, 6, 7, 7)));
}

TEST_F(RingPartialsTest, FromAWorkerThatHasLostItsRankNothingIsTakenOnceThatIsSaid) {
  partials_.ResumeAt(5, 5);
  partials_.BeginStep(5);
  EXPECT_FALSE(Taken(Trace(0, 5, /*incarnation=*/8, /*before=*/8)));
  EXPECT_EQ(partials_.MarkTaken(1, 7).code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(Taken(Trace(0, 5, 8, 8)));
  // A call that is late takes nothing back.
  EXPECT_FALSE(Taken(Trace(2, 5, 9, /*before=*/6)));
  EXPECT_EQ(partials_.MarkTaken(1, 7).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(partials_.MarkTaken(1, 8).ok());
  EXPECT_TRUE(Taken(Trace(0, 5, 8, 8)));
}

TEST_F(RingPartialsTest, WhoTookARankOverAnswersWhenItKnowsWhatThatHasPushed) {
  const Outcome of_5 = Trace(2, 5, 7, 7);
  const Outcome of_6 = Trace(2, 6, 7, 7);
  EXPECT_EQ(partials_.MarkTaken(1, 6).code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(of_5->has_value());
  partials_.ResumeAt(5, /*pushed_end=*/6);
  EXPECT_TRUE(Taken(of_5)) << "some ps have it";
  EXPECT_FALSE(Taken(of_6));
  const Outcome held = Trace(2, 5, 7, 7);
  Begin(4);
  const Outcome again = Trace(2, 5, 7, 7);
  EXPECT_FALSE(again->has_value());
  partials_.End();
  EXPECT_EQ(StatusOf(again).code(), absl::StatusCode::kUnavailable);
}

TEST_F(RingPartialsTest, WhoTracesGradientsHasAnotherRankAndHasItStill) {
  partials_.ResumeAt(5, 5);
  EXPECT_EQ(StatusOf(Trace(1, 5, 7, 7)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusOf(Trace(3, 5, 7, 7)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(StatusOf(Trace(2, 5, 9, 7)).ok());
  EXPECT_EQ(StatusOf(Trace(2, 5, 8, 7)).code(), absl::StatusCode::kAborted);
}

TEST_F(RingPartialsTest, OfAnotherGenerationNothingIsAnswered) {
  partials_.BeginStep(5);
  partials_.Offer(0, 0, Bytes("sums"));
  v1::TakePartialRequest request = Request(5);
  request.mutable_header()->set_generation(3);
  EXPECT_EQ(StatusOf(Take(request)).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(StatusOf(Take(request)).message()),
              HasSubstr("generation 3 of job job-1 is over"));
  request.mutable_header()->set_generation(5);
  EXPECT_EQ(StatusOf(Take(request)).code(), absl::StatusCode::kUnavailable);
  const Outcome held = Take(Request(6));
  Begin(5);
  EXPECT_EQ(StatusOf(held).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(StatusOf(Take(Request(5))).code(), absl::StatusCode::kAborted) << "of 4";
  EXPECT_FALSE(Take(request)->has_value()) << "what generation 4 had is gone";
}

TEST_F(RingPartialsTest, AWorkerThatLostItsRankIsRefused) {
  v1::TakePartialRequest request = Request(5);
  request.mutable_header()->set_incarnation(9);
  Take(request);
  EXPECT_EQ(StatusOf(Take(Request(5))).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(StatusOf(Take(Request(5))).message()),
              AllOf(HasSubstr("rank 2 is another worker's"), HasSubstr("incarnation 9")));
}

TEST_F(RingPartialsTest, OnlyNeighboursAndOnlyThisRankAreAnswered) {
  v1::TakePartialRequest request = Request(5);
  request.mutable_header()->set_rank(0);
  EXPECT_EQ(StatusOf(Take(request)).code(), absl::StatusCode::kInvalidArgument);
  request = Request(5);
  request.mutable_header()->set_to_rank(0);
  EXPECT_EQ(StatusOf(Take(request)).code(), absl::StatusCode::kUnavailable)
      << "the caller is about to hear where rank 0 is";
  request = Request(5);
  request.mutable_header()->set_job_id("job-2");
  EXPECT_EQ(StatusOf(Take(request)).code(), absl::StatusCode::kUnavailable);
  partials_.End();
  EXPECT_EQ(StatusOf(Take(Request(5))).code(), absl::StatusCode::kUnavailable);
}

TEST_F(RingPartialsTest, ACallerThatHangsUpLeavesNothingBehind) {
  uint64_t call = 0;
  const Outcome gone = Take(Request(5), &call);
  partials_.Withdraw(call);
  EXPECT_EQ(StatusOf(gone).code(), absl::StatusCode::kCancelled);
  partials_.Withdraw(call);
  partials_.BeginStep(5);
  partials_.Offer(0, 0, Bytes("sums"));
}

TEST_F(RingPartialsTest, AnAnswerThatThrowsLeavesTheOthersTheirs) {
  partials_.TakePartial(Request(5),
                        [](const absl::StatusOr<grpc::ByteBuffer>&) { throw std::bad_alloc(); });
  const Outcome other = Take(Request(5));
  partials_.BeginStep(5);
  partials_.Offer(0, 0, Bytes("sums"));
  EXPECT_EQ(TextOf(other), "sums");
}

TEST_F(RingPartialsTest, CallsThatWaitAreBounded) {
  for (size_t i = 0; i < RingPartials::kMaxWaiting; ++i) {
    ASSERT_FALSE(Take(Request(5))->has_value());
  }
  EXPECT_EQ(StatusOf(Take(Request(5))).code(), absl::StatusCode::kResourceExhausted);
  partials_.BeginStep(5);
  partials_.Offer(0, 0, Bytes("sums"));
  EXPECT_FALSE(Take(Request(6))->has_value());
}

}  // namespace
}  // namespace tessera::worker
