#include "worker/ring/gradient_ring.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/job/dense_layout.h"
#include "common/random.h"
#include "common/rpc/server.h"
#include "common/wire/message_bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/ring/ring_service.h"

namespace tessera::worker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// More than a piece a share, and not a multiple of anything.
constexpr uint64_t kBlocks = 4 * RingShares::kPieceBlocks + 37;
constexpr uint64_t kFloats = kBlocks * kDenseBlockFloats;

// What stands for one worker: its server, what it keeps, and its side of the ring.
struct Member {
  Member() { server = *RpcServer::Start({}, {&service}); }
  ~Member() { partials.End(); }

  // It has this rank.
  void Begin(const v1::Assignment& assignment, uint32_t rank, Channels* channels) {
    partials.Begin({.job_id = assignment.job_id(),
                    .generation = assignment.generation(),
                    .rank = rank,
                    .ranks = assignment.workers(),
                    .incarnation = assignment.ranks(static_cast<int>(rank)).incarnation()});
    directory.emplace(assignment, channels);
    v1::RingHeader header;
    header.set_job_id(assignment.job_id());
    header.set_generation(assignment.generation());
    header.set_rank(rank);
    header.set_incarnation(assignment.ranks(static_cast<int>(rank)).incarnation());
    ring.emplace(GradientRing::Options{.header = header,
                                       .blocks = kBlocks,
                                       .ranks = &*directory,
                                       .partials = &partials,
                                       .board = &board,
                                       .cancellation = &cancellation});
  }

  RingPartials partials;
  RingService service{&partials};
  std::unique_ptr<RpcServer> server;
  StatusBoard board{SystemClock()};
  Cancellation cancellation;
  std::optional<RankDirectory> directory;
  std::optional<GradientRing> ring;
};

// A rank's gradients of a step.
std::vector<float> Gradients(uint32_t rank, uint64_t step) {
  const uint64_t key = StreamKey(RandomFor::kRecordOrder, rank, step);
  std::vector<float> values(kFloats);
  for (uint64_t i = 0; i < kFloats; ++i) {
    values[i] = static_cast<float>(RandomUniformDouble(key, i) - 0.5) * (i % 7 == 0 ? 1e4f : 1);
  }
  return values;
}

class GradientRingTest : public ::testing::Test {
 protected:
  void StartRanks(uint32_t ranks) {
    shares_ = std::make_unique<RingShares>(kBlocks, ranks);
    assignment_.set_job_id("job-1");
    assignment_.set_generation(4);
    assignment_.set_workers(ranks);
    assignment_.clear_ranks();
    members_.clear();
    for (uint32_t r = 0; r < ranks; ++r) {
      members_.push_back(std::make_unique<Member>());
      assignment_.add_ranks()->set_name(absl::StrCat("worker-", r));
      SetAddress(r);
    }
    for (uint32_t r = 0; r < ranks; ++r) members_[r]->Begin(assignment_, r, channels_.get());
  }
  void SetAddress(uint32_t rank) {
    v1::RankAddress* const address = assignment_.mutable_ranks(static_cast<int>(rank));
    address->set_address(members_[rank]->server->address());
    address->set_incarnation(++last_incarnation_);
  }
  // "rank 1 (worker-1, 127.0.0.1:4711)"
  std::string NameOf(uint32_t rank) const {
    return absl::StrCat("rank ", rank, " (worker-", rank, ", ", members_[rank]->server->address(),
                        ")");
  }
  // Another worker has its rank, without anything that it had, and the others hear of it.
  void Replace(uint32_t rank) {
    members_[rank] = std::make_unique<Member>();
    SetAddress(rank);
    members_[rank]->Begin(assignment_, rank, channels_.get());
    for (const auto& member : members_) member->directory->Update(assignment_);
  }

  struct Result {
    absl::StatusOr<bool> summed = absl::UnknownError("not called");
    std::vector<float> values;
  };
  Result Reduce(uint32_t rank, uint64_t step, bool contributes = true) {
    Result result;
    result.values = Gradients(rank, step);
    // Of a rank that has none they are not read.
    if (!contributes) std::fill(result.values.begin(), result.values.end(), std::nanf(""));
    result.summed = members_[rank]->ring->Reduce(step, contributes, absl::MakeSpan(result.values));
    return result;
  }
  // All ranks at once; `contributes` by rank, empty: all do.
  std::vector<Result> ReduceAll(uint64_t step, const std::vector<bool>& contributes = {}) {
    std::vector<Result> results(members_.size());
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < members_.size(); ++r) {
      threads.emplace_back(
          [&, r] { results[r] = Reduce(r, step, contributes.empty() || contributes[r]); });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  // All ps have the rank's pushes of the steps below, and none has another.
  void ResumeAt(uint32_t rank, uint64_t step) {
    members_[rank]->ring->Resume({.next = step, .end = step});
  }
  // Returns when `rank` has taken sums with gradients of `of`.
  void AwaitTaken(uint32_t rank, uint32_t of, uint64_t step) {
    v1::TraceGradientsRequest request;
    v1::RingHeader* const header = request.mutable_header();
    header->set_job_id(assignment_.job_id());
    header->set_generation(assignment_.generation());
    header->set_rank(of);
    header->set_incarnation(assignment_.ranks(static_cast<int>(of)).incarnation());
    header->set_to_rank(rank);
    request.set_step(step);
    bool taken = false;
    while (!taken) {
      members_[rank]->partials.TraceGradients(request,
                                              [&taken](absl::StatusOr<grpc::ByteBuffer> answer) {
                                                v1::TraceGradientsResponse response;
                                                ASSERT_TRUE(answer.ok()) << answer.status();
                                                ASSERT_TRUE(wire::FromBytes(*answer, &response));
                                                taken = response.taken();
                                              });
      if (!taken) absl::SleepFor(absl::Milliseconds(2));
    }
  }

  // In the order of the ring, in float.
  float Sum(const std::vector<std::vector<float>>& gradients, uint32_t share, uint64_t i,
            const std::vector<bool>& contributes) const {
    const uint32_t ranks = shares_->ranks();
    std::optional<float> sum;
    for (uint32_t hop = 1; hop <= ranks; ++hop) {
      const uint32_t rank = (share + hop) % ranks;
      if (!contributes.empty() && !contributes[rank]) continue;
      sum = sum.has_value() ? *sum + gradients[rank][i] : gradients[rank][i];
    }
    return sum.value_or(0);
  }
  void ExpectSums(uint64_t step, const std::vector<Result>& results,
                  const std::vector<bool>& contributes = {}) const {
    std::vector<std::vector<float>> gradients;
    for (uint32_t r = 0; r < results.size(); ++r) gradients.push_back(Gradients(r, step));
    for (uint32_t r = 0; r < results.size(); ++r) {
      ASSERT_TRUE(results[r].summed.ok()) << results[r].summed.status();
      EXPECT_TRUE(*results[r].summed);
      const RingShares::Blocks share = members_[r]->ring->share();
      for (uint64_t i = 0; i < kFloats; ++i) {
        const bool own = i >= share.begin * kDenseBlockFloats && i < share.end * kDenseBlockFloats;
        if (!own && !contributes.empty() && !contributes[r]) {
          ASSERT_TRUE(std::isnan(results[r].values[i])) << "rank " << r << ", float " << i;
          continue;
        }
        const float expected = own ? Sum(gradients, r, i, contributes) : gradients[r][i];
        ASSERT_EQ(results[r].values[i], expected) << "rank " << r << ", float " << i;
      }
    }
  }

  const std::unique_ptr<Channels> channels_ = NewNetworkChannels();
  uint64_t last_incarnation_ = 0;
  v1::Assignment assignment_;
  std::unique_ptr<RingShares> shares_;
  std::vector<std::unique_ptr<Member>> members_;
};

TEST_F(GradientRingTest, EveryRankEndsWithTheSumOfItsShareInTheOrderOfTheRing) {
  for (const uint32_t ranks : {2u, 3u, 4u}) {
    SCOPED_TRACE(ranks);
    StartRanks(ranks);
    for (const uint64_t step : {7u, 8u}) ExpectSums(step, ReduceAll(step));
  }
}

TEST_F(GradientRingTest, ARankWithoutSamplesPassesOnWhatItTakes) {
  StartRanks(3);
  for (const std::vector<bool>& contributes :
       std::vector<std::vector<bool>>{{true, false, true}, {false, false, true}}) {
    ExpectSums(3, ReduceAll(3, contributes), contributes);
    StartRanks(3);
  }
  const std::vector<Result> results = ReduceAll(4, {false, false, false});
  for (uint32_t r = 0; r < results.size(); ++r) {
    ASSERT_TRUE(results[r].summed.ok()) << results[r].summed.status();
    EXPECT_FALSE(*results[r].summed) << "nothing is pushed of a step in which nobody has samples";
    const RingShares::Blocks share = members_[r]->ring->share();
    for (uint64_t i = share.begin * kDenseBlockFloats; i < share.end * kDenseBlockFloats; ++i) {
      ASSERT_EQ(results[r].values[i], 0) << "rank " << r << ", float " << i;
    }
  }
}

TEST_F(GradientRingTest, WhoTakesOverARankInTheMiddleOfAStepGetsTheSameBits) {
  StartRanks(3);
  for (const uint32_t lost : {0u, 1u, 2u}) {
    SCOPED_TRACE(lost);
    const uint64_t step = 10 + lost;
    std::vector<Result> results(3);
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < 3; ++r) {
      if (r == lost) continue;
      threads.emplace_back([&, r] { results[r] = Reduce(r, step); });
    }
    // It takes part until its neighbour has some of its partial sums, and is gone.
    std::thread partly([&, member = members_[lost].get()] {
      std::vector<float> values = Gradients(lost, step);
      member->ring->Reduce(step, true, absl::MakeSpan(values)).IgnoreError();
    });
    absl::SleepFor(absl::Milliseconds(5));
    members_[lost]->cancellation.Cancel();
    partly.join();
    Replace(lost);
    results[lost] = Reduce(lost, step);
    for (std::thread& thread : threads) thread.join();
    ExpectSums(step, results);
  }
}

TEST_F(GradientRingTest, WhoWaitsForARankThatHangsAsksTheOneThatTakesItOverAtOnce) {
  StartRanks(2);
  std::optional<Result> result;
  std::thread waiting([&] { result = Reduce(1, 4); });
  while (members_[1]->board.waits().empty()) absl::SleepFor(absl::Milliseconds(20));
  const std::unique_ptr<Member> hangs = std::move(members_[0]);
  const absl::Time start = absl::Now();
  Replace(0);
  Reduce(0, 4);
  waiting.join();
  ASSERT_TRUE(result->summed.ok()) << result->summed.status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(10)) << "an attempt may wait for 20 s";
}

TEST_F(GradientRingTest, WhoTakesOverAfterAllHadTheSumsFindsThemStill) {
  StartRanks(3);
  const std::vector<Result> first = ReduceAll(5);
  Replace(1);
  // The others wait for the ps, and call nobody.
  const Result again = Reduce(1, 5);
  ASSERT_TRUE(again.summed.ok()) << again.summed.status();
  EXPECT_TRUE(again.values == first[1].values);
}

TEST_F(GradientRingTest, PartialSumsThatNobodyMakesAgainSendTheJobToItsCheckpoint) {
  StartRanks(2);
  members_[0]->partials.ResumeAt(6, 6);
  const Result result = Reduce(1, 5);
  EXPECT_EQ(result.summed.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(
      std::string(result.summed.status().message()),
      AllOf(HasSubstr(NameOf(0) + ": partial sums of step 5"), HasSubstr("rank 0 is at step 6")));
}

TEST_F(GradientRingTest, ARankOfAnOlderGenerationIsRefused) {
  StartRanks(2);
  members_[0]->partials.Begin({.job_id = "job-1", .generation = 5, .rank = 0, .ranks = 2});
  const Result result = Reduce(1, 5);
  EXPECT_EQ(result.summed.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(result.summed.status().message()),
              HasSubstr("generation 4 of job job-1"));
}

TEST_F(GradientRingTest, WhomItWaitsForIsNamedAndCancellationEndsTheWait) {
  StartRanks(2);
  absl::Status status;
  std::thread waiting([&] { status = Reduce(1, 17).summed.status(); });
  while (members_[1]->board.waits().empty()) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_THAT(members_[1]->board.waits(),
              Contains(HasSubstr(
                  absl::StrCat("waits for ", NameOf(0), ": partial sums of step 17, since"))));
  members_[1]->cancellation.Cancel();
  waiting.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

TEST_F(GradientRingTest, ARankThatNobodyHasYetIsWaitedFor) {
  StartRanks(3);
  v1::Assignment vacant = assignment_;
  vacant.mutable_ranks(2)->set_name("nobody");
  vacant.mutable_ranks(2)->clear_address();
  vacant.mutable_ranks(2)->clear_incarnation();
  for (uint32_t r : {0u, 1u}) members_[r]->Begin(vacant, r, channels_.get());
  std::vector<Result> results(3);
  std::vector<std::thread> threads;
  for (uint32_t r : {0u, 1u}) {
    threads.emplace_back([&, r] { results[r] = Reduce(r, 1); });
  }
  while (members_[0]->board.waits().empty()) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_THAT(members_[0]->board.waits(), Contains(HasSubstr("rank 2 (nobody")));
  for (uint32_t r : {0u, 1u}) members_[r]->directory->Update(assignment_);
  members_[0]->directory->Update(vacant);  // one that is lost again stays where it was
  results[2] = Reduce(2, 1);
  for (std::thread& thread : threads) thread.join();
  ExpectSums(1, results);
}

TEST_F(GradientRingTest, ARankDoesNotPushBeforeItsPartialSumsAreTaken) {
  StartRanks(2);
  // Rank 0 has all that it needs, and rank 1 has taken nothing.
  members_[1]->partials.BeginStep(9);
  const std::vector<float> own = Gradients(1, 9);
  std::optional<absl::StatusOr<bool>> summed;
  std::vector<float> values = Gradients(0, 9);
  for (uint32_t piece = 0; piece < shares_->Pieces(0); ++piece) {
    const RingShares::Blocks blocks = shares_->Piece(0, piece);
    v1::TakePartialResponse answer;
    answer.add_partial()->set_sums(
        reinterpret_cast<const char*>(own.data() + blocks.begin * kDenseBlockFloats),
        blocks.size() * kDenseBlockFloats * sizeof(float));
    const grpc::Slice slice(answer.SerializeAsString());
    members_[1]->partials.Offer(0, piece, grpc::ByteBuffer(&slice, 1));
  }
  std::thread reducing(
      [&] { summed = members_[0]->ring->Reduce(9, true, absl::MakeSpan(values)); });
  while (members_[0]->board.waits().empty()) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_THAT(members_[0]->board.waits(),
              Contains(HasSubstr(NameOf(1) + ": to take the partial sums of step 9")));
  members_[1]->partials.SetTaken();
  reducing.join();
  EXPECT_TRUE(summed->ok()) << summed->status();
}

TEST_F(GradientRingTest, GradientsThatNobodyHasTakenAreFoundNowhere) {
  StartRanks(3);
  for (uint32_t r = 0; r < 3; ++r) ResumeAt(r, 5);
  // Of rank 0 a batch that its workers die of before its gradients leave.
  std::vector<Result> results(3);
  std::vector<std::thread> threads;
  for (uint32_t r : {1u, 2u}) {
    threads.emplace_back([&, r] { results[r] = Reduce(r, 5); });
  }
  AwaitTaken(2, /*of=*/1, 5);
  Replace(0);
  ResumeAt(0, 5);
  const absl::StatusOr<bool> found = members_[0]->ring->Trace(5);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(*found) << "rank 2 has partial sums of rank 1 alone";
  results[0] = Reduce(0, 5, /*contributes=*/false);
  for (std::thread& thread : threads) thread.join();
  ExpectSums(5, results, {false, true, true});
}

TEST_F(GradientRingTest, GradientsAreFoundFurtherRoundThoughNextToThemNobodyHasThem) {
  StartRanks(4);
  for (uint32_t r = 0; r < 4; ++r) ResumeAt(r, 5);
  std::vector<std::thread> threads;
  for (uint32_t r : {0u, 1u, 2u}) {
    threads.emplace_back([&, r] { Reduce(r, 5); });
  }
  AwaitTaken(2, /*of=*/0, 5);
  for (uint32_t r : {0u, 1u}) members_[r]->cancellation.Cancel();
  for (uint32_t r : {0u, 1u}) threads[r].join();
  // They ask each other, and neither waits for the other's answer before it gives its own.
  for (uint32_t r : {0u, 1u}) Replace(r);
  absl::StatusOr<bool> found[2];
  for (uint32_t r : {0u, 1u}) {
    ResumeAt(r, 5);
    threads[r] = std::thread([&, r] { found[r] = members_[r]->ring->Trace(5); });
  }
  for (uint32_t r : {0u, 1u}) threads[r].join();
  for (const absl::StatusOr<bool>& taken : found) {
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_TRUE(*taken);
  }
  members_[2]->cancellation.Cancel();
  threads[2].join();
}

TEST_F(GradientRingTest, GradientsThatSomePsHasInItsSumsAreFound) {
  StartRanks(2);
  members_[1]->ring->Resume({.next = 5, .end = 6});
  ResumeAt(0, 5);
  EXPECT_TRUE(*members_[0]->ring->Trace(5));
  EXPECT_FALSE(*members_[0]->ring->Trace(6));
}

TEST_F(GradientRingTest, WhatIsOnItsWayFromAWorkerThatHasLostItsRankIsNotUsed) {
  StartRanks(3);
  for (uint32_t r = 0; r < 3; ++r) ResumeAt(r, 5);
  std::thread lost([&, member = members_[0].get()] {
    std::vector<float> values = Gradients(0, 5);
    member->ring->Reduce(5, true, absl::MakeSpan(values)).IgnoreError();
  });
  while (members_[0]->board.waits().empty()) absl::SleepFor(absl::Milliseconds(20));
  // Another has its rank, and rank 1 has not heard where: it asks the one that it knows.
  std::unique_ptr<Member> hangs = std::move(members_[0]);
  members_[0] = std::make_unique<Member>();
  SetAddress(0);
  members_[0]->Begin(assignment_, 0, channels_.get());
  ResumeAt(0, 5);
  EXPECT_FALSE(*members_[0]->ring->Trace(5));
  std::vector<Result> results(3);
  std::vector<std::thread> threads;
  for (uint32_t r : {1u, 2u}) {
    threads.emplace_back([&, r] { results[r] = Reduce(r, 5); });
  }
  while (members_[1]->board.waits().empty()) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(*members_[0]->ring->Trace(5));
  for (uint32_t r : {1u, 2u}) members_[r]->directory->Update(assignment_);
  results[0] = Reduce(0, 5, /*contributes=*/false);
  for (std::thread& thread : threads) thread.join();
  ExpectSums(5, results, {false, true, true});
  hangs->cancellation.Cancel();
  lost.join();
}

TEST_F(GradientRingTest, WhoAsksForGradientsWaitsForARankThatIsBeingTakenOver) {
  StartRanks(2);
  ResumeAt(0, 5);
  absl::StatusOr<bool> found = absl::UnknownError("not called");
  std::thread asking([&] { found = members_[0]->ring->Trace(5); });
  while (members_[0]->board.waits().empty()) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_THAT(members_[0]->board.waits(),
              Contains(HasSubstr("whether it has gradients of step 5")));
  Replace(1);
  ResumeAt(1, 5);
  asking.join();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(*found);
}

// The ps, as far as a ring knows them: a step is applied when all ranks have pushed it.
class Pushes {
 public:
  explicit Pushes(uint32_t ranks) : next_(ranks), shares_(ranks) {}

  uint64_t Next(uint32_t rank) const {
    absl::MutexLock lock(&mu_);
    return next_[rank];
  }
  void Push(uint32_t rank, uint64_t step, std::vector<float> share) {
    absl::MutexLock lock(&mu_);
    EXPECT_EQ(next_[rank], step);
    next_[rank] = step + 1;
    shares_[rank].push_back(std::move(share));
  }
  // Steps below are applied.
  uint64_t Applied() const {
    absl::MutexLock lock(&mu_);
    return *std::min_element(next_.begin(), next_.end());
  }
  const std::vector<float>& Share(uint32_t rank, uint64_t step) const {
    return shares_[rank][step];
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<uint64_t> next_;                           // [ranks]
  std::vector<std::vector<std::vector<float>>> shares_;  // [ranks, steps]
};

TEST_F(GradientRingTest, ASingleDeathAtAnyMomentCostsNoBitAndNoStep) {
  constexpr uint32_t kRanks = 3;
  constexpr uint64_t kSteps = 60;
  StartRanks(kRanks);
  Pushes pushes(kRanks);
  std::vector<std::vector<float>> base;
  for (uint32_t r = 0; r < kRanks; ++r) base.push_back(Gradients(r, 0));
  const auto train = [&](Member* member, uint32_t rank) {
    member->partials.ResumeAt(pushes.Next(rank), pushes.Next(rank));
    for (uint64_t step = pushes.Next(rank); step < kSteps; ++step) {
      while (pushes.Applied() < step) {
        if (!member->cancellation.SleepFor(absl::Milliseconds(1))) return;
      }
      std::vector<float> values = base[rank];
      values[member->ring->share().begin * kDenseBlockFloats] += static_cast<float>(step);
      const auto summed = member->ring->Reduce(step, true, absl::MakeSpan(values));
      if (member->cancellation.cancelled()) return;
      ASSERT_TRUE(summed.ok()) << summed.status();
      const RingShares::Blocks share = member->ring->share();
      pushes.Push(rank, step,
                  {values.begin() + static_cast<ptrdiff_t>(share.begin * kDenseBlockFloats),
                   values.begin() + static_cast<ptrdiff_t>(share.end * kDenseBlockFloats)});
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < kRanks; ++r) threads.emplace_back(train, members_[r].get(), r);
  const uint64_t key = StreamKey(RandomFor::kBackoff, 5);
  for (uint64_t draw = 0; pushes.Applied() + 2 < kSteps && !HasFailure(); draw += 2) {
    absl::SleepFor(absl::Milliseconds(30) * RandomUniformDouble(key, draw));
    const auto rank = static_cast<uint32_t>(kRanks * RandomUniformDouble(key, draw + 1));
    members_[rank]->cancellation.Cancel();
    threads[rank].join();
    Replace(rank);
    threads[rank] = std::thread(train, members_[rank].get(), rank);
    // One at a time: until all have come past it.
    const uint64_t step = pushes.Next(rank);
    while (pushes.Applied() <= std::min(step, kSteps - 1) && !HasFailure()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  for (const auto& member : members_) {
    if (HasFailure()) member->cancellation.Cancel();
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_FALSE(HasFailure());
  for (uint32_t r = 0; r < kRanks; ++r) {
    const uint64_t begin = members_[r]->ring->share().begin * kDenseBlockFloats;
    for (uint64_t step = 0; step < kSteps; ++step) {
      std::vector<std::vector<float>> gradients = base;
      gradients[r][begin] += static_cast<float>(step);
      const std::vector<float>& share = pushes.Share(r, step);
      for (uint64_t i = 0; i < share.size(); i += 97) {
        ASSERT_EQ(share[i], Sum(gradients, r, begin + i, {}))
            << "rank " << r << ", step " << step << ", float " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::worker
