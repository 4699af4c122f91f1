// Rows of jobs with push logs that change their owner: which logs lead back to them.
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/ps/partition_move_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

TEST_F(PartitionMoveTest, APushLogLeadsBackFromTheFirstCheckpointAfterTheSwitchOn) {
  const JobShard::Options options = {
      .clock = &clock_, .files = &files_, .checkpoint_root = "root", .log_root = "logs"};
  const auto logged = [](v1::OpenJobRequest job) {
    job.set_push_log(v1::RecoverySpec::ASYNC);
    return job;
  };
  const auto recover = [](v1::OpenJobRequest job, const std::string& folder, uint64_t first_step) {
    job.set_recover(true);
    job.clear_take_over();
    job.set_checkpoint(folder);
    job.set_first_step(first_step);
    return job;
  };
  std::mt19937_64 random(9);
  const std::vector<uint32_t> all = Partitions(0, kMovePartitions);
  const std::vector<uint32_t> stay = Partitions(0, 120);
  std::optional<Jobs> jobs(std::in_place, options);
  ASSERT_OK(jobs->Open(logged(Request(1, all))));
  uint64_t step = 0;
  while (step < 5) Push(*Find(*jobs, 1), step++, 200, 3000, random);
  // What is brought over while the job trains leaves its log alone.
  ASSERT_OK(jobs->Stage(logged(TakeOver(1, stay)), /*changed=*/false));
  while (step < 8) Push(*Find(*jobs, 1), step++, 200, 3000, random);
  const auto before = Rows(*Find(*jobs, 1));
  jobs.emplace(options);
  ASSERT_OK(jobs->Open(recover(logged(Request(1, all)), "", 0)));
  // The last step is applied when its rank says that all ps have it.
  v1::PullRequest next = PullOf(0, step, {});
  next.mutable_header()->set_generation(1);
  ASSERT_OK(PendingPull(*Find(*jobs, 1), next).status());
  EXPECT_TRUE(Rows(*Find(*jobs, 1)) == before);

  v1::OpenJobRequest second = logged(TakeOver(1, stay, step));
  ASSERT_OK(jobs->Open(second));
  while (step < 10) Push(*Find(*jobs, 2), step++, 200, 3000, random);
  v1::WriteCheckpointRequest request;
  request.set_job_id("job-1");
  request.set_generation(2);
  request.set_step(step);
  request.set_parts(1);
  request.set_folder("cut");
  const auto written = Find(*jobs, 2)->WriteCheckpoint(request, clock_.Monotonic());
  ASSERT_OK(written);
  v1::CheckpointManifest manifest;
  manifest.set_job_id("job-1");
  manifest.set_step(step);
  manifest.set_partition_count(kMovePartitions);
  *manifest.add_tables()->mutable_spec() = second.tables(0).spec();
  manifest.mutable_tables(0)->set_slot_floats(written->slot_floats(0));
  AddFiles(*written, manifest);
  ASSERT_OK(WriteManifest(files_, "root/cut", manifest));
  // What of the log is not needed any more goes when nobody waits for it.
  EXPECT_OK(files_.Open("logs/job-1/1/00000001.log"));
  request.set_phase(v1::WriteCheckpointRequest::COMMITTED);
  ASSERT_OK(Find(*jobs, 2)->WriteCheckpoint(request, clock_.Monotonic()));
  EXPECT_EQ(files_.Open("logs/job-1/1/00000001.log").status().code(), StatusCode::kNotFound);
  while (step < 15) Push(*Find(*jobs, 2), step++, 200, 3000, random);
  const auto last = Rows(*Find(*jobs, 2));
  jobs.emplace(options);
  ASSERT_OK(jobs->Open(recover(second, "cut", 10)));
  next = PullOf(0, step, {});
  next.mutable_header()->set_generation(2);
  ASSERT_OK(PendingPull(*Find(*jobs, 2), next).status());
  EXPECT_TRUE(Rows(*Find(*jobs, 2)) == last);
}

// Two ps with push logs, between which partitions go to and fro before any checkpoint has their
// rows.
class LoggedMoveTest : public PartitionMoveTest {
 protected:
  static constexpr size_t kPs = 2;

  LoggedMoveTest() { Restart(); }

  // What is not on disk is gone.
  void Restart() {
    if (push_log_ == v1::RecoverySpec::FSYNC) files_.Crash();
    for (size_t i = 0; i < kPs; ++i) {
      ps_[i].emplace(JobShard::Options{.clock = &clock_,
                                       .files = &files_,
                                       .checkpoint_root = "root",
                                       .log_root = absl::StrCat("logs-", i)});
    }
  }
  v1::OpenJobRequest Logged(v1::OpenJobRequest job) const {
    job.set_push_log(push_log_);
    return job;
  }
  std::shared_ptr<JobShard> Shard(size_t ps) { return Find(*ps_[ps], generation_); }
  void PushBoth(uint64_t steps) {
    for (const uint64_t end = step_ + steps; step_ < end; ++step_) {
      for (size_t i = 0; i < kPs; ++i) Push(*Shard(i), step_, 200, 4000, random_);
    }
  }
  void Begin() {
    owned_ = {Partitions(0, 120), Partitions(120, kMovePartitions)};
    for (size_t i = 0; i < kPs; ++i) ASSERT_OK(ps_[i]->Open(Logged(Request(1, owned_[i]))));
    PushBoth(5);
  }
  // From then on the ps have these.
  void Move(const std::vector<std::vector<uint32_t>>& owned) {
    std::vector<std::vector<uint32_t>> come(kPs);
    for (size_t i = 0; i < kPs; ++i) {
      for (const uint32_t p : owned[i]) {
        if (!Shard(i)->Owns(p)) come[i].push_back(p);
      }
    }
    for (const bool changed : {false, true}) {
      for (size_t i = 0; i < kPs; ++i) {
        const auto staged = ps_[i]->Stage(Logged(TakeOver(generation_, come[i])), changed);
        ASSERT_OK(staged);
        ASSERT_OK(Copy(*Shard(1 - i), **staged, come[i], changed, nullptr,
                       /*training_stands=*/changed));
      }
      if (!changed) PushBoth(3);
    }
    for (size_t i = 0; i < kPs; ++i) {
      ASSERT_OK(ps_[i]->Open(Logged(TakeOver(generation_, owned[i], step_))));
    }
    ++generation_;
    switched_ = step_;
    owned_ = owned;
    PushBoth(4);
  }
  absl::Status Recover(size_t ps) {
    v1::OpenJobRequest request = Logged(Request(generation_, owned_[ps]));
    request.set_first_step(switched_);
    request.set_recover(true);
    return ps_[ps]->Open(request).status();
  }
  // The last step is applied when its rank says that all ps have it.
  std::map<uint64_t, std::string> AllRows(size_t ps) {
    v1::PullRequest next = PullOf(0, step_, {});
    next.mutable_header()->set_generation(generation_);
    EXPECT_OK(PendingPull(*Shard(ps), next).status());
    return Rows(*Shard(ps));
  }
  void ExpectBackAsTheyWere() {
    std::vector<std::map<uint64_t, std::string>> before;
    for (size_t i = 0; i < kPs; ++i) before.push_back(AllRows(i));
    Restart();
    for (size_t i = 0; i < kPs; ++i) {
      ASSERT_OK(Recover(i));
      EXPECT_TRUE(AllRows(i) == before[i]) << "ps " << i;
      EXPECT_FALSE(before[i].empty());
    }
  }

  v1::RecoverySpec::PushLog push_log_ = v1::RecoverySpec::FSYNC;
  std::optional<Jobs> ps_[kPs];
  std::mt19937_64 random_{12};
  uint64_t generation_ = 1;
  uint64_t step_ = 0;
  uint64_t switched_ = 0;
  std::vector<std::vector<uint32_t>> owned_;
};

TEST_F(LoggedMoveTest, LogsLeadBackToRowsThatNoCheckpointHas) {
  Begin();
  std::vector<uint32_t> of_both = Partitions(0, 60);
  for (const uint32_t p : Partitions(150, kMovePartitions)) of_both.push_back(p);
  Move({of_both, Partitions(60, 150)});
  ExpectBackAsTheyWere();
  PushBoth(3);
  ExpectBackAsTheyWere();
  // All that one has was in the other's memory, or its own, two generations ago.
  std::vector<uint32_t> others = Partitions(0, 60);
  for (const uint32_t p : Partitions(110, kMovePartitions)) others.push_back(p);
  Move({Partitions(60, 110), others});
  ExpectBackAsTheyWere();
  PushBoth(2);
  ExpectBackAsTheyWere();

  v1::WriteCheckpointRequest request;
  request.set_job_id("job-1");
  request.set_generation(generation_);
  request.set_step(step_);
  request.set_parts(1);
  request.set_folder("cut");
  ASSERT_OK(Shard(0)->WriteCheckpoint(request, clock_.Monotonic()));
  EXPECT_EQ(*files_.List("logs-0/job-1"),
            (std::vector<std::string>{"1", "2", "2.received", "3", "3.received"}));
  request.set_phase(v1::WriteCheckpointRequest::COMMITTED);
  ASSERT_OK(Shard(0)->WriteCheckpoint(request, clock_.Monotonic()));
  EXPECT_EQ(*files_.List("logs-0/job-1"), std::vector<std::string>{"3"});
}

TEST_F(LoggedMoveTest, WithoutAllOfThoseLogsNobodyComesBack) {
  Begin();
  Move({Partitions(0, 150), Partitions(150, kMovePartitions)});
  const auto damage = [&](const std::string& path, uint64_t left, StatusCode code,
                          const std::string& why) {
    const std::string whole = files_.Content(path);
    files_.SetContent(path, whole.substr(0, left));
    Restart();
    // Nor at the second try.
    for (int i = 0; i < 2; ++i) EXPECT_FAILS(Recover(0), code, why);
    files_.SetContent(path, whole);
  };
  for (const std::string log : {"logs-0/job-1/1", "logs-0/job-1/2.received"}) {
    const std::string path = log + "/00000001.log";
    const uint64_t size = files_.Content(path).size();
    damage(path, size - 10, StatusCode::kDataLoss, log + ": the log goes to record");
    damage(path, 20, StatusCode::kFailedPrecondition, log + ": the push log has no segment");
    damage(path, 0, StatusCode::kFailedPrecondition, log + ": the push log has no segment");
  }
  Restart();
  EXPECT_OK(Recover(0));
}

TEST_F(LoggedMoveTest, WhatComesWhileTrainingStandsIsLoggedAfterwards) {
  push_log_ = v1::RecoverySpec::ASYNC;
  Begin();
  Move({Partitions(0, 150), Partitions(150, kMovePartitions)});
  const auto here = Shard(0);
  Restart();
  EXPECT_FAILS(Recover(0), StatusCode::kDataLoss, "2.received: the log goes to record");
  here->FinishTakeOver();
  EXPECT_OK(Recover(0));
}

TEST_F(LoggedMoveTest, WhoFollowsLeavesWhatIsReceivedForALaterGeneration) {
  Begin();
  Jobs spare({.clock = &clock_, .files = &files_, .checkpoint_root = "root", .log_root = "logs-2"});
  ASSERT_OK(spare.Stage(Logged(TakeOver(1, Partitions(0, 50))), /*changed=*/false));
  v1::OpenJobRequest follow = Logged(Request(1, owned_[0]));
  follow.set_follow("ps-0");
  follow.set_pair(1);
  ASSERT_OK(spare.BeginFollowing(follow));
  ASSERT_OK(spare.OpenFollower(follow));
  EXPECT_EQ(*files_.List("logs-2/job-1"), (std::vector<std::string>{"1", "2.received"}));
}

TEST_F(LoggedMoveTest, ADiskThatTakesNoRowsIsNoErrorOfAMove) {
  Begin();
  const std::vector<uint32_t> come = Partitions(120, kMovePartitions);
  // Not even the begin of a log, or some rows.
  for (const uint64_t room : {0, 4000}) {
    files_.SetCapacity(files_.bytes() + room);
    const auto staged = ps_[0]->Stage(Logged(TakeOver(1, come)), /*changed=*/false);
    ASSERT_OK(staged);
    EXPECT_EQ(files_.Exists("logs-0/job-1/2.received/00000001.log"), room > 0);
    ASSERT_OK(Copy(*Shard(1), **staged, come, /*changed=*/false));
    EXPECT_EQ(*files_.List("logs-0/job-1"), std::vector<std::string>{"1"});
    files_.Repair();
  }
  ASSERT_OK(ps_[0]->Open(Logged(TakeOver(1, Partitions(0, kMovePartitions), step_))));
  EXPECT_EQ(*files_.List("logs-0/job-1"), (std::vector<std::string>{"1", "2"}));
  generation_ = 2;
  switched_ = step_;
  owned_ = {Partitions(0, kMovePartitions), {}};
  Restart();
  EXPECT_FAILS(Recover(0), StatusCode::kFailedPrecondition, "no segment that begins at the start");
}

}  // namespace
}  // namespace tessera::ps
