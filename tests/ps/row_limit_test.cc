#include "ps/tables/row_limit.h"

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "ps/jobs/jobs.h"
#include "ps/service/ps_metrics.h"
#include "tests/common/metric_value.h"
#include "tests/ps/ps_testing.h"

// All rows of a ps stay in memory, which has a bound.
namespace tessera::ps {
namespace {

using absl::StatusCode;

class RowLimitTest : public testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;
  static constexpr uint64_t kLimit = 16 * kMiB;
  static constexpr uint32_t kDim = 64;
  static constexpr size_t kBatch = 1000;

  // One that measures when it is told to (Weigh).
  std::unique_ptr<RowLimit> Limit(uint64_t bytes = kLimit) {
    RowLimit::Options options;
    options.bytes = bytes;
    options.clock = &clock_;
    options.look = absl::InfiniteDuration();
    return std::make_unique<RowLimit>(options);
  }
  // One that measures by itself.
  std::unique_ptr<RowLimit> WatchfulLimit() {
    RowLimit::Options options;
    options.bytes = kLimit;
    options.clock = &clock_;
    options.look = absl::Milliseconds(1);
    return std::make_unique<RowLimit>(options);
  }
  absl::StatusOr<std::shared_ptr<JobShard>> TryOpen(v1::OpenJobRequest job, RowLimit* limit) {
    return JobShard::Open(
        Whole(std::move(job)),
        {.clock = &clock_, .files = &files_, .checkpoint_root = "root", .limit = limit});
  }
  std::shared_ptr<JobShard> Open(v1::OpenJobRequest job, RowLimit* limit) {
    auto shard = TryOpen(std::move(job), limit);
    EXPECT_OK(shard);
    return shard.ok() ? *std::move(shard) : nullptr;
  }
  static v1::OpenJobRequest AsyncJob() {
    return Job({SgdTable("a", kDim, v1::ASYNC), SgdTable("b", kDim, v1::ASYNC)});
  }
  static std::vector<uint64_t> Keys(uint64_t begin, size_t count = kBatch) {
    std::vector<uint64_t> keys(count);
    std::iota(keys.begin(), keys.end(), begin);
    return keys;
  }
  static absl::Status Pull(JobShard& shard, const std::vector<uint64_t>& keys,
                           bool read_only = false, uint32_t table = 0) {
    return PendingPull(shard, PullOf(0, 0, {{table, keys}}, read_only)).status();
  }
  // Makes rows of the keys from 0 on, `batch` at a time, until there is no room, also as measured;
  // returns how many there are.
  static uint64_t Fill(JobShard& shard, RowLimit& limit, size_t batch = kBatch) {
    uint64_t rows = shard.rows();
    for (bool full = false; !full;) {
      for (full = true; Pull(shard, Keys(rows, batch)).ok(); full = false) rows += batch;
      limit.Weigh();
    }
    return rows;
  }
  // Until there is no room for one more.
  static uint64_t FillToTheLast(JobShard& shard, RowLimit& limit) {
    Fill(shard, limit);
    return Fill(shard, limit, 1);
  }
  static absl::Status Push(JobShard& shard, uint64_t sequence, const std::vector<uint64_t>& keys) {
    return shard.Push(
        CallOf(PushOf(0, sequence, {{0, keys, std::vector<float>(keys.size() * kDim, 1)}})));
  }
  static float Value(JobShard& shard, uint64_t key) {
    PendingPull pull(shard, PullOf(0, 0, {{0, {key}}}, /*read_only=*/true));
    EXPECT_OK(pull.status());
    return pull.values()[0];
  }
  HandClock clock_;
  FaultFileSystem files_;
};

TEST_F(RowLimitTest, GivesRoomUntilItIsTakenAndTakesBackWhatWasNotUsed) {
  const auto limit = Limit(1000);
  {
    auto first = limit->Take(600);
    ASSERT_TRUE(first.has_value());
    EXPECT_FALSE(limit->Take(401).has_value());
    EXPECT_FALSE(limit->HasRoom(401));
    EXPECT_TRUE(limit->Take(400).has_value());
    first->Use(100);
  }
  EXPECT_EQ(limit->rows(), 100);
  EXPECT_TRUE(limit->HasRoom(900));
  // The next look sees the rows themselves; here no table has made any.
  limit->Weigh();
  EXPECT_EQ(limit->rows(), 0);
}

TEST_F(RowLimitTest, AllElseThatIsResidentTakesRoomToo) {
  RowLimit::Options options;
  options.bytes = 1024 * kMiB;
  options.resident = [] { return 300 * kMiB; };
  options.copy_bytes = 100 * kMiB;
  options.clock = &clock_;
  RowLimit limit(options);
  // Beside it there is a margin of a sixteenth.
  EXPECT_EQ(limit.others(), 464 * kMiB);
  EXPECT_TRUE(limit.HasRoom(560 * kMiB));
  EXPECT_FALSE(limit.HasRoom(560 * kMiB + 1));
  EXPECT_FAILS(
      limit.Refuse("job-1", "a test's row", /*may_last=*/true), StatusCode::kResourceExhausted,
      "a test's row: the rows of this ps take 0 bytes and 486539264 are kept for all else, "
      "of 1073741824 (--memory); give tessera-ps more --memory, a --spill-dir for rows to "
      "leave to, or use more ps");
}

TEST_F(RowLimitTest, WhatRisesBesideRowsCountsAtOnceAndForHours) {
  MemoryBeside beside(1600 * kMiB, MemoryBeside::Rows::kStay);
  beside.Measure(100 * kMiB, 0, absl::Seconds(100));
  beside.Measure(900 * kMiB, 0, absl::Seconds(101));
  EXPECT_EQ(beside.bytes(), 964 * kMiB);
  beside.Measure(100 * kMiB, 0, absl::Seconds(101) + absl::Hours(2));
  EXPECT_NEAR(static_cast<double>(beside.bytes()), 564.0 * kMiB, 1);
}

// Else the job would not find room where it was, when it comes back to its checkpoint.
TEST_F(RowLimitTest, MemoryOfAClosedJobIsNotTakenForAllElseWhileItGoes) {
  uint64_t resident = 800 * kMiB;
  RowLimit::Options options;
  options.bytes = 1600 * kMiB;
  options.clock = &clock_;
  options.look = absl::InfiniteDuration();
  options.resident = [&resident] { return resident; };
  RowLimit limit(options);
  std::shared_ptr<JobShard> shard = Open(AsyncJob(), &limit);
  ASSERT_OK(Pull(*shard, Keys(0, 8 * kBatch)));
  resident = 900 * kMiB;
  limit.Weigh();
  const uint64_t others = limit.others(), rows = limit.rows();
  ASSERT_GT(rows, kMiB);
  shard.reset();
  limit.Weigh();
  EXPECT_EQ(limit.others(), others);
  EXPECT_EQ(limit.rows(), 0);
  // What has not gone by then is something else.
  clock_.Advance(absl::Seconds(11));
  limit.Weigh();
  EXPECT_EQ(limit.others(), others + rows);
}

TEST_F(RowLimitTest, SaysAfterATimeWithoutRoomThatItLasts) {
  const auto limit = Limit();
  const auto refuse = [&] { return limit->Refuse("job-1", "rows", /*may_last=*/true).code(); };
  const auto ask_for = [&](absl::Duration time) {
    StatusCode code = refuse();
    for (absl::Duration t; t < time; t += absl::Seconds(20)) {
      clock_.Advance(absl::Seconds(20));
      limit->Weigh();
      code = refuse();
    }
    return code;
  };
  EXPECT_EQ(ask_for(absl::Minutes(4)), StatusCode::kResourceExhausted);
  EXPECT_EQ(ask_for(absl::Minutes(1)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(limit->Refuse("job-1", "rows", /*may_last=*/false).code(),
            StatusCode::kResourceExhausted);
  // Who asks later has a time of its own.
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(refuse(), StatusCode::kResourceExhausted);
}

TEST_F(RowLimitTest, OfSeveralJobsWithoutRoomItTellsTheLargestAndTheOthersWaitForWhatItLeaves) {
  const auto limit = Limit();
  v1::OpenJobRequest other = AsyncJob();
  other.set_job_id("job-2");
  const auto small = Open(other, limit.get());
  auto large = Open(AsyncJob(), limit.get());
  const auto pull_small = [&](const std::vector<uint64_t>& keys) {
    v1::PullRequest request = PullOf(0, 0, {{0, keys}});
    request.mutable_header()->set_job_id("job-2");
    return PendingPull(*small, request).status().code();
  };
  ASSERT_EQ(pull_small(Keys(0)), StatusCode::kOk);
  Fill(*large, *limit);
  uint64_t wanted = kLimit;
  const auto wait = [&](absl::Duration time, bool large_too) {
    StatusCode codes[2] = {StatusCode::kOk, StatusCode::kOk};
    for (absl::Duration t; t < time; t += absl::Seconds(20)) {
      clock_.Advance(absl::Seconds(20));
      limit->Weigh();
      codes[0] = pull_small(Keys(wanted));
      if (large_too) codes[1] = Pull(*large, Keys(kLimit)).code();
    }
    return std::pair(codes[0], codes[1]);
  };
  using Codes = std::pair<StatusCode, StatusCode>;
  constexpr StatusCode kWaits = StatusCode::kResourceExhausted;
  constexpr StatusCode kTold = StatusCode::kFailedPrecondition;
  wait(absl::Minutes(2), false);  // the small one has been waiting for longer
  EXPECT_EQ(wait(absl::Minutes(5), true), Codes(kWaits, kWaits));
  EXPECT_EQ(wait(absl::Seconds(20), true), Codes(kWaits, kTold));
  EXPECT_EQ(wait(absl::Minutes(4), true), Codes(kWaits, kTold)) << "nobody has ended it yet";
  large.reset();
  limit->Weigh();
  EXPECT_EQ(pull_small(Keys(wanted)), StatusCode::kOk);
  // A job that others leave no room for is told in the end, though they lack none.
  large = Open(AsyncJob(), limit.get());
  Fill(*large, *limit);
  wanted = 2 * kLimit;
  EXPECT_EQ(wait(absl::Minutes(5), false).first, kWaits);
  EXPECT_EQ(wait(absl::Seconds(20), false).first, kTold);
}

TEST_F(RowLimitTest, DoesNotSayThatItLastsWhenRoomHasCome) {
  const auto limit = Limit();
  auto shard = Open(AsyncJob(), limit.get());
  Fill(*shard, *limit);
  const auto pull_for = [&](absl::Duration time) {
    for (absl::Duration t; t < time; t += absl::Seconds(20)) {
      clock_.Advance(absl::Seconds(20));
      limit->Weigh();
      EXPECT_FALSE(Pull(*shard, Keys(kLimit)).ok());
    }
    return Pull(*shard, Keys(kLimit)).code();
  };
  EXPECT_EQ(pull_for(absl::Minutes(4)), StatusCode::kResourceExhausted);
  shard.reset();
  shard = Open(AsyncJob(), limit.get());
  limit->Weigh();
  Fill(*shard, *limit);
  EXPECT_EQ(pull_for(absl::Minutes(4)), StatusCode::kResourceExhausted);
  EXPECT_EQ(pull_for(absl::Minutes(1)), StatusCode::kFailedPrecondition);
}

TEST_F(RowLimitTest, RefusesRowsThatDoNotFitAndChangesNothing) {
  const auto limit = Limit();
  const auto shard = Open(AsyncJob(), limit.get());
  const uint64_t rows = Fill(*shard, *limit);
  EXPECT_GT(rows * kDim * 4, kLimit / 2);
  EXPECT_LE(rows * kDim * 4, kLimit);
  EXPECT_FAILS(Pull(*shard, Keys(rows)), StatusCode::kResourceExhausted,
               absl::StrCat("job job-1, table a: no memory for 1000 rows of 288 bytes more than "
                            "the ",
                            rows, " that it has here: the rows of this ps take "));
  EXPECT_EQ(shard->rows(), rows);
  // Of most of these there are rows.
  EXPECT_FAILS(Pull(*shard, Keys(0, rows + kBatch)), StatusCode::kResourceExhausted,
               "no memory for 1000 rows");
  EXPECT_EQ(shard->rows(), rows);
  // Reads of what is there, and those that make nothing, are answered.
  EXPECT_OK(Pull(*shard, Keys(0)));
  EXPECT_OK(Pull(*shard, Keys(rows), /*read_only=*/true));
  EXPECT_EQ(shard->rows(), rows);
}

TEST_F(RowLimitTest, PushesOfRowsThatAreThereGoOnAndOthersAreRefusedWhole) {
  const auto limit = Limit();
  const auto shard = Open(AsyncJob(), limit.get());
  const uint64_t full = FillToTheLast(*shard, *limit);
  ASSERT_OK(Push(*shard, 0, Keys(0)));
  EXPECT_EQ(Value(*shard, 7), -1);
  std::vector<uint64_t> keys = Keys(0);
  keys.back() = uint64_t{1} << 63;
  EXPECT_FAILS(Push(*shard, 1, keys), StatusCode::kResourceExhausted,
               "table a: no memory for 1 rows");
  EXPECT_EQ(Value(*shard, 7), -1);
  EXPECT_EQ(shard->rows(), full);
  // Its number is still free.
  ASSERT_OK(Push(*shard, 1, Keys(0)));
  EXPECT_EQ(Value(*shard, 7), -2);
}

TEST_F(RowLimitTest, KeysThatGetNoRowNeedNoRoom) {
  v1::OpenJobRequest job = AsyncJob();
  job.mutable_tables(1)->mutable_spec()->mutable_admission()->set_probability(1e-9);
  const auto limit = Limit();
  const auto shard = Open(job, limit.get());
  FillToTheLast(*shard, *limit);
  EXPECT_OK(Pull(*shard, Keys(0), /*read_only=*/false, /*table=*/1));
  EXPECT_OK(shard->Push(CallOf(PushOf(0, 0, {{1, Keys(0), std::vector<float>(kBatch * kDim)}}))));
}

TEST_F(RowLimitTest, AnotherJobGoesOnAndGetsTheRoomOfOneThatEnds) {
  const auto limit = Limit();
  v1::OpenJobRequest other = AsyncJob();
  other.set_job_id("job-2");
  const auto second = Open(other, limit.get());
  const auto pull = [&](const std::vector<uint64_t>& keys) {
    v1::PullRequest request = PullOf(0, 0, {{0, keys}});
    request.mutable_header()->set_job_id("job-2");
    return PendingPull(*second, request).status();
  };
  ASSERT_OK(pull(Keys(0)));
  auto first = Open(AsyncJob(), limit.get());
  Fill(*first, *limit);
  EXPECT_OK(pull(Keys(0)));
  EXPECT_FAILS(pull(Keys(kBatch)), StatusCode::kResourceExhausted,
               "job job-2, table a: no memory for 1000 rows");
  first.reset();
  limit->Weigh();
  EXPECT_OK(pull(Keys(kBatch, 10 * kBatch)));
}

TEST_F(RowLimitTest, ExpiredRowsMakeRoomAlsoForAnotherTable) {
  v1::OpenJobRequest job = AsyncJob();
  job.mutable_tables(0)->mutable_spec()->mutable_expiry()->set_min_frequency(1);
  const auto limit = WatchfulLimit();
  const auto shard = Open(job, limit.get());
  Fill(*shard, *limit);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_OK(Push(*shard, i, Keys(0)));
  EXPECT_FALSE(Pull(*shard, Keys(0, 20 * kBatch), /*read_only=*/false, /*table=*/1).ok());
  v1::WriteCheckpointRequest cut;
  cut.set_phase(v1::WriteCheckpointRequest::CUT_AND_WRITE);
  cut.set_folder("step-1");
  cut.set_parts(1);
  ASSERT_OK(shard->WriteCheckpoint(cut, clock_.Monotonic()));
  ASSERT_EQ(shard->rows(), kBatch);
  // In a time that is far too long.
  absl::Status pulled = absl::UnknownError("not tried");
  for (const absl::Time end = absl::Now() + absl::Minutes(1); absl::Now() < end;) {
    pulled = Pull(*shard, Keys(0, 20 * kBatch), /*read_only=*/false, /*table=*/1);
    if (pulled.ok()) break;
    absl::SleepFor(absl::Milliseconds(10));
  }
  ASSERT_OK(pulled);
  EXPECT_EQ(shard->rows(), 21 * kBatch);
  EXPECT_EQ(Value(*shard, 7), -3);
}

TEST_F(RowLimitTest, ACheckpointThatDoesNotFitIsRefused) {
  {
    ShardedJob job(AsyncJob(), 1, files_, clock_);
    for (uint64_t i = 0; i < 80; ++i) {
      job.Push(0, i, {{0, Keys(i * kBatch), std::vector<float>(kBatch * kDim, 1)}});
    }
    ASSERT_OK(job.Checkpoint(0, "step-1"));
  }
  v1::OpenJobRequest again = AsyncJob();
  again.set_checkpoint("step-1");
  const auto limit = Limit();
  EXPECT_FAILS(TryOpen(again, limit.get()), StatusCode::kResourceExhausted,
               "checkpoint step-1: job job-1, table a: no memory for ");
  // What was restored of it takes no room any more.
  limit->Weigh();
  EXPECT_LT(limit->rows(), kLimit / 4);
  EXPECT_OK(TryOpen(again, Limit(64 * kMiB).get()));
}

TEST_F(RowLimitTest, ItsMetricsSayWhatTakesMemory) {
  const auto limit = Limit();
  Jobs jobs({.clock = &clock_, .files = &files_, .checkpoint_root = "root", .limit = limit.get()});
  ASSERT_OK(jobs.Open(Whole(AsyncJob())));
  MetricsRegistry registry;
  TaskQueue requests("requests", 1, 1);
  SharedRegions regions(0);
  const auto collector = AddPsCollector(registry, jobs, requests, regions, nullptr, limit.get());
  ASSERT_OK(Pull(**jobs.Find("job-1"), Keys(0)));
  const std::string text = registry.Text();
  EXPECT_EQ(MetricValue(text, "tessera_ps_memory_bytes{of=\"limit\"}"), kLimit);
  EXPECT_GE(MetricValue(text, "tessera_ps_memory_bytes{of=\"rows\"}"), kBatch * 288);
  EXPECT_EQ(MetricValue(text, "tessera_ps_memory_bytes{of=\"others\"}"), 0);
}

}  // namespace
}  // namespace tessera::ps
