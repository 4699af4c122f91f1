#include <numeric>
#include <random>
#include <thread>

#include "absl/time/clock.h"
#include "common/checkpoint/digest.h"
#include "ps/jobs/writer_rest.h"
#include "tests/ps/failing_memory.h"
#include "tests/ps/ps_testing.h"

// Checkpoints that are written while a job trains.
namespace tessera::ps {
namespace {

using absl::StatusCode;
using Request = v1::WriteCheckpointRequest;

Request Phase(Request::Phase phase, const std::string& folder, uint64_t step = 0,
              const std::string& base = "") {
  Request request;
  request.set_phase(phase);
  request.set_folder(folder);
  request.set_step(step);
  request.set_parts(1);
  request.set_base(base);
  return request;
}

// Gradients that are whole numbers: their sums do not depend on the order of pushes.
Block Counted(uint32_t table, uint32_t dim, uint64_t seed, uint64_t keys, uint64_t range) {
  std::mt19937_64 random(seed);
  std::set<uint64_t> chosen;
  while (chosen.size() < keys) chosen.insert(random() % range);
  Block block = {.table = table, .keys = {chosen.begin(), chosen.end()}, .values = {}};
  for (uint64_t i = 0; i < keys * dim; ++i) {
    block.values.push_back(static_cast<float>(random() % 5));
  }
  return block;
}

class LiveCheckpointTest : public testing::Test {
 protected:
  static v1::OpenJobRequest AsyncJob() {
    return Job({SgdTable("a", 4, v1::ASYNC), SgdTable("b", 1, v1::ASYNC)}, 3);
  }
  std::shared_ptr<JobShard> Open(
      const v1::OpenJobRequest& job, FileSystem& files,
      absl::FunctionRef<void(JobShard::Options&)> change = [](JobShard::Options&) {}) {
    JobShard::Options options;
    options.clock = &clock_;
    options.files = &files;
    options.checkpoint_root = "root";
    change(options);
    return *JobShard::Open(Whole(job), options);
  }
  std::shared_ptr<JobShard> Open(const v1::OpenJobRequest& job) { return Open(job, files_); }
  absl::StatusOr<v1::WriteCheckpointResponse> Call(JobShard& shard, const Request& request) {
    return shard.WriteCheckpoint(request, clock_.Monotonic());
  }
  static void Push(JobShard& shard, uint32_t rank, uint64_t sequence) {
    const uint64_t seed = 1000 * rank + sequence;
    EXPECT_OK(shard.Push(CallOf(
        PushOf(rank, sequence, {Counted(0, 4, seed, 300, 2000), Counted(1, 1, seed, 300, 2500)}))));
  }
  SavedRows Layer(const std::string& folder, const std::string& suffix = "") {
    return ReadRows(files_, "root/" + folder + "/rows-g1-00000-of-00001" + suffix);
  }
  // Of an async job after the pushes with sequences below `pushes` of every rank, in a pause.
  SavedRows Twin(uint64_t pushes) {
    FaultFileSystem files;
    const auto shard = Open(AsyncJob(), files);
    for (uint64_t s = 0; s < pushes; ++s) {
      for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, s);
    }
    EXPECT_OK(Call(*shard, Phase(Request::CUT_AND_WRITE, "twin")));
    return ReadRows(files, "root/twin/rows-g1-00000-of-00001");
  }

  HandClock clock_;
  FaultFileSystem files_;
};

TEST_F(LiveCheckpointTest, HasTheRowsOfTheCutWhileThreadsGoOnPushing) {
  constexpr uint64_t kBefore = 5;
  const auto shard = Open(AsyncJob());
  for (uint64_t s = 0; s < kBefore; ++s) {
    for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, s);
  }
  ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-1")));
  std::atomic<bool> done = false;
  std::atomic<int> begun = 0;
  uint64_t sequences[3];
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      uint64_t sequence = kBefore;
      do {
        Push(*shard, rank, sequence++);
        if (sequence == kBefore + 1) ++begun;
      } while (!done);
      sequences[rank] = sequence;
    });
  }
  while (begun < 3) std::this_thread::yield();
  const auto written = Call(*shard, Phase(Request::WRITE, "step-1"));
  done = true;
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK(written);
  const SavedRows expected = Twin(kBefore);
  EXPECT_EQ(Layer("step-1"), expected);
  EXPECT_EQ(written->rows(0) + written->rows(1), expected.size());

  // And an increment over it, cut now, has what came since.
  const uint64_t most = *std::max_element(sequences, sequences + 3);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    for (uint64_t s = sequences[rank]; s < most; ++s) Push(*shard, rank, s);
  }
  ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-2", 0, "step-1")));
  Push(*shard, 0, most);
  const auto increment = Call(*shard, Phase(Request::WRITE, "step-2"));
  ASSERT_OK(increment);
  ASSERT_EQ(increment->files_size(), 2);
  SavedRows whole = Layer("step-2");
  for (auto& [key, row] : Layer("step-2", "-layer-1")) whole[key] = row;
  EXPECT_EQ(whole, Twin(most));
}

TEST_F(LiveCheckpointTest, OfASyncJobIsTheFileThatIsWrittenInAPause) {
  v1::PsTable every_row = AdamTable("every", 3, v1::SYNC);
  every_row.mutable_spec()->set_update(v1::EVERY_ROW);
  v1::PsTable expiring = AdamTable("expiring", 2, v1::SYNC);
  expiring.mutable_spec()->mutable_expiry()->set_after_steps(3);
  const v1::OpenJobRequest job = Job(
      {AdamTable("adam", 5, v1::SYNC), every_row, expiring, DenseTable("dense", 8, v1::SYNC)}, 2);
  const auto push = [](JobShard& shard, uint64_t step) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const uint64_t seed = step * 10 + rank;
      EXPECT_OK(shard.Push(CallOf(PushOf(rank, step,
                                         {Counted(0, 5, seed, 100, 400),
                                          Counted(1, 3, seed, 20, 50),
                                          Counted(2, 2, seed, 50, 900),
                                          {3, {0, 1}, std::vector<float>(16, 0.5f)}}))));
    }
  };
  std::string content[2], last[2];
  for (const bool live : {false, true}) {
    FaultFileSystem files;
    const auto shard = Open(job, files);
    EXPECT_OK(shard->Assign(AssignOf({{3, {0, 1}, std::vector<float>(16, 1.0f)}})));
    for (uint64_t step = 0; step < 6; ++step) push(*shard, step);
    ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-6", 6)));
    if (live) {
      for (uint64_t step = 6; step < 9; ++step) push(*shard, step);
    }
    ASSERT_OK(Call(*shard, Phase(Request::WRITE, "step-6")));
    if (!live) {
      for (uint64_t step = 6; step < 9; ++step) push(*shard, step);
    }
    content[live] = files.Content("root/step-6/rows-g1-00000-of-00001");
    ASSERT_OK(Call(*shard, Phase(Request::CUT_AND_WRITE, "step-9", 9)));
    last[live] = files.Content("root/step-9/rows-g1-00000-of-00001");
  }
  EXPECT_GT(content[0].size(), 1000u);
  EXPECT_TRUE(content[0] == content[1]) << "bytes differ";
  EXPECT_TRUE(last[0] == last[1]) << "bytes differ after it";
}

TEST_F(LiveCheckpointTest, PushesGoOnWhileTheDiskStandsStill) {
  WatchedFiles disk(files_);
  const auto shard = Open(AsyncJob(), disk);
  for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, 0);
  int pushed = 0;
  disk.on_create = [&](const std::string&) {
    // The thread that writes is here, and nothing else waits for it.
    for (uint64_t s = 1; s < 4; ++s) {
      for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, s);
    }
    PendingPull pull(*shard, PullOf(0, 0, {{0, {1, 2, 123456}}}));
    EXPECT_TRUE(pull.answered());
    EXPECT_FAILS(Call(*shard, Phase(Request::CUT, "step-2")), StatusCode::kUnavailable,
                 "another checkpoint is being written");
    EXPECT_OK(Call(*shard, Phase(Request::DROP, "step-1")));
    ++pushed;
  };
  ASSERT_OK(Call(*shard, Phase(Request::CUT_AND_WRITE, "step-1")));
  EXPECT_EQ(pushed, 1);
  EXPECT_EQ(Layer("step-1"), Twin(1));
}

TEST_F(LiveCheckpointTest, ADropThatComesLateLeavesTheNextCut) {
  const auto shard = Open(AsyncJob());
  ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-1")));
  ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-2")));
  EXPECT_OK(Call(*shard, Phase(Request::DROP, "step-1")));
  EXPECT_OK(Call(*shard, Phase(Request::WRITE, "step-2")));
}

TEST_F(LiveCheckpointTest, IsWrittenOnceAndOnlyIfItWasCut) {
  const auto shard = Open(AsyncJob());
  for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, 0);
  EXPECT_FAILS(Call(*shard, Phase(Request::WRITE, "step-1")), StatusCode::kUnavailable,
               "no such cut");
  ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-1")));
  EXPECT_FAILS(Call(*shard, Phase(Request::WRITE, "step-2")), StatusCode::kUnavailable,
               "no such cut");
  ASSERT_OK(Call(*shard, Phase(Request::WRITE, "step-1")));
  EXPECT_FAILS(Call(*shard, Phase(Request::WRITE, "step-1")), StatusCode::kUnavailable,
               "no such cut");
  ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-2", 0, "step-1")));
  EXPECT_OK(Call(*shard, Phase(Request::DROP, "step-2")));
  EXPECT_OK(Call(*shard, Phase(Request::DROP, "step-2")));
  EXPECT_FAILS(Call(*shard, Phase(Request::WRITE, "step-2")), StatusCode::kUnavailable,
               "no such cut");
  // What the dropped one had taken is not lost: the next holds every row.
  ASSERT_OK(Call(*shard, Phase(Request::CUT_AND_WRITE, "step-3", 0, "step-1")));
  EXPECT_EQ(Layer("step-3"), Twin(1));
}

TEST_F(LiveCheckpointTest, OfALaterCutTakesThePlaceOfOneThatNobodyWrote) {
  const auto shard = Open(AsyncJob());
  for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, 0);
  ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-1")));
  for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, 1);
  ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-2", 0, "step-1")));
  for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, 2);
  ASSERT_OK(Call(*shard, Phase(Request::WRITE, "step-2")));
  EXPECT_EQ(Layer("step-2"), Twin(2));
}

TEST_F(LiveCheckpointTest, AFullDiskInTheMiddleCostsOnlyThisCheckpoint) {
  const auto shard = Open(AsyncJob());
  for (uint64_t s = 0; s < 2; ++s) {
    for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, s);
  }
  ASSERT_OK(Call(*shard, Phase(Request::CUT_AND_WRITE, "step-1")));
  for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, 2);
  ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-2", 0, "step-1")));
  for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, 3);
  files_.SetCapacity(files_.Content("root/step-1/rows-g1-00000-of-00001").size() + 5000);
  EXPECT_FAILS(Call(*shard, Phase(Request::WRITE, "step-2")), StatusCode::kResourceExhausted, "");
  EXPECT_FALSE(files_.Exists("root/step-2/rows-g1-00000-of-00001-layer-1"));
  files_.Repair();
  for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, 4);
  const auto whole = Call(*shard, Phase(Request::CUT_AND_WRITE, "step-3", 0, "step-1"));
  ASSERT_OK(whole);
  EXPECT_EQ(whole->files_size(), 1);
  EXPECT_EQ(Layer("step-3"), Twin(5));
}

TEST_F(LiveCheckpointTest, EndsWhenTheShardIsClosedWhileItIsWritten) {
  WatchedFiles disk(files_);
  const auto shard = Open(AsyncJob(), disk);
  for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, 0);
  ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-1")));
  disk.on_create = [&](const std::string&) {
    Push(*shard, 0, 1);
    shard->Close(absl::AbortedError("job job-1 was closed"));
  };
  EXPECT_FAILS(Call(*shard, Phase(Request::WRITE, "step-1")), StatusCode::kAborted, "was closed");
  EXPECT_THAT(files_.Files(), testing::IsEmpty());
}

TEST_F(LiveCheckpointTest, GivesUpTheCheckpointNotThePushWhenCopiesHaveNoRoom) {
  const auto shard = Open(AsyncJob(), files_, [](JobShard::Options& options) {
    options.max_copied_bytes = 40000;  // a push of ours copies 24,000 at most
    options.copy_room_limit = absl::ZeroDuration();
  });
  for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, 0);
  ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-1")));
  for (uint64_t s = 1; s < 8; ++s) {
    for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, s);
  }
  EXPECT_FAILS(Call(*shard, Phase(Request::WRITE, "step-1")), StatusCode::kResourceExhausted,
               "more rows changed");
  EXPECT_THAT(files_.Files(), testing::IsEmpty());
  ASSERT_OK(Call(*shard, Phase(Request::CUT_AND_WRITE, "step-2")));
  EXPECT_EQ(Layer("step-2"), Twin(8));
}

TEST_F(LiveCheckpointTest, CopiesOfAllJobsShareTheirRoom) {
  CutRoom room(30000);  // a push of ours reserves 16,800
  const auto share = [&](JobShard::Options& options) {
    options.cut_room = &room;
    options.copy_room_limit = absl::ZeroDuration();
  };
  FaultFileSystem other_files;
  const auto shard = Open(AsyncJob(), files_, share);
  const auto other = Open(AsyncJob(), other_files, share);
  for (JobShard* one : {shard.get(), other.get()}) {
    for (uint32_t rank = 0; rank < 3; ++rank) Push(*one, rank, 0);
    ASSERT_OK(Call(*one, Phase(Request::CUT, "step-1")));
  }
  for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, 1);
  EXPECT_GT(room.copied(), 13200u);
  EXPECT_LT(room.copied(), 30000u);
  Push(*other, 0, 1);
  EXPECT_FAILS(Call(*shard, Phase(Request::WRITE, "step-1")), StatusCode::kResourceExhausted,
               "more rows changed");
  EXPECT_OK(Call(*other, Phase(Request::WRITE, "step-1")));
  EXPECT_EQ(room.copied(), 0u);
}

TEST_F(LiveCheckpointTest, PushesWaitForTheWriterWhereCopiesHaveNoRoom) {
  WatchedFiles disk(files_);
  const auto shard = Open(AsyncJob(), disk, [](JobShard::Options& options) {
    options.max_copied_bytes = 40000;
    options.copy_room_limit = absl::Minutes(5);
  });
  for (uint32_t rank = 0; rank < 3; ++rank) Push(*shard, rank, 0);
  ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-1")));
  // More than fits: it ends when rows have been written.
  std::atomic<int> pushed = 0;
  std::thread pusher;
  disk.on_create = [&](const std::string&) {
    pusher = std::thread([&] {
      for (uint64_t s = 1; s < 8; ++s) {
        for (uint32_t rank = 0; rank < 3; ++rank) {
          Push(*shard, rank, s);
          ++pushed;
        }
      }
    });
    // The first has room for its copies, however long it takes.
    while (pushed < 1) absl::SleepFor(absl::Milliseconds(1));
    // Nothing has been written yet, and nothing is until this returns.
    for (int i = 0; i < 300 && pushed < 21; ++i) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_LT(pushed, 21);
  };
  EXPECT_OK(Call(*shard, Phase(Request::WRITE, "step-1")));
  pusher.join();
  EXPECT_EQ(Layer("step-1"), Twin(1));
}

TEST_F(LiveCheckpointTest, AStepOfATableLargerThanTheRoomForCopiesWaitsAndStaysWithinIt) {
  constexpr uint32_t kDim = 64;
  constexpr uint64_t kRows = 2000;
  v1::PsTable every_row = SgdTable("every_row", kDim, v1::ASYNC);
  every_row.mutable_spec()->set_update(v1::EVERY_ROW);
  every_row.mutable_spec()->mutable_optimizer()->set_l2(0.25f);
  WatchedFiles disk(files_);
  const auto shard = Open(Job({every_row}), disk, [](JobShard::Options& options) {
    options.max_copied_bytes = kRows * (16 + kDim * 4) / 4;
    options.copy_room_limit = absl::Seconds(20);
  });
  const auto push = [&](uint64_t sequence) {
    EXPECT_OK(
        shard->Push(CallOf(PushOf(0, sequence, {{0, {sequence}, std::vector<float>(kDim, 1)}}))));
  };
  std::vector<uint64_t> keys(kRows);
  std::iota(keys.begin(), keys.end(), 0);
  EXPECT_OK(PendingPull(*shard, PullOf(0, 0, {{0, keys}})).status());
  push(0);
  ASSERT_OK(Call(*shard, Phase(Request::CUT_AND_WRITE, "twin")));
  ASSERT_OK(Call(*shard, Phase(Request::CUT, "step-1")));
  std::atomic<bool> pushed = false;
  std::thread pusher;
  disk.on_create = [&](const std::string&) {
    pusher = std::thread([&] {
      push(1);
      push(2);
      pushed = true;
    });
    // Nothing has been read yet: three quarters must have been before the first push goes on.
    for (int i = 0; i < 300 && !pushed; ++i) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_FALSE(pushed);
  };
  EXPECT_OK(Call(*shard, Phase(Request::WRITE, "step-1")));
  pusher.join();
  EXPECT_EQ(Layer("step-1"), Layer("twin"));
}

TEST(WriterRest, GivesPushesTheirPartOfTheTimeWhileThereAreAny) {
  const absl::Duration worked = absl::Milliseconds(40);
  EXPECT_EQ(WriterRest(worked, /*busy=*/false, 0.25, 0, 100), absl::ZeroDuration());
  EXPECT_EQ(WriterRest(worked, true, 0.25, 0, 100), absl::Milliseconds(120));
  EXPECT_EQ(WriterRest(worked, true, 1, 0, 100), absl::ZeroDuration());
  EXPECT_EQ(WriterRest(worked, true, 0.25, 49, 100), absl::Milliseconds(120));
  EXPECT_EQ(WriterRest(worked, true, 0.25, 50, 100), absl::ZeroDuration());
  EXPECT_EQ(WriterRest(absl::Minutes(1), true, 0.25, 0, 100), absl::Seconds(1));
}

// At each of its allocations but small ones, of which absl's formatting makes some that must not
// fail.
TEST_F(LiveCheckpointTest, AfterOneThatThereWasNoMemoryForTheNextIsWritten) {
  SKIP_WITHOUT_FAILING_MEMORY();
  bool fails = true;
  for (int64_t at = 0; fails; ++at) {
    SCOPED_TRACE(at);
    const auto shard = Open(AsyncJob());
    Push(*shard, 0, 0);
    fails = failing_memory::FailsAt(
        at, 64, [&] { (void)Call(*shard, Phase(Request::CUT_AND_WRITE, "step-1")); });
    if (const auto next = Call(*shard, Phase(Request::CUT_AND_WRITE, "step-2")); !next.ok()) {
      EXPECT_FAILS(next, StatusCode::kAborted, "start again from the last checkpoint");
    }
    EXPECT_OK(shard->EndCut(absl::ZeroDuration()));
  }
}

}  // namespace
}  // namespace tessera::ps
