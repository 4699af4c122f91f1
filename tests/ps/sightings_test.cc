// How often keys without a row were seen: in a cut, in a checkpoint, at another ps.
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/checkpoint/checksum.h"
#include "common/checkpoint/manifest.h"
#include "ps/jobs/sightings_file.h"
#include "ps/tables/admission.h"
#include "tests/ps/partition_move_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

v1::AdmissionSpec After(uint32_t sightings) {
  v1::AdmissionSpec spec;
  spec.set_after_sightings(sightings);
  return spec;
}

std::vector<Sighting> AllOf(const Admission& admission, const PartitionSet& partitions) {
  std::vector<Sighting> all;
  for (const PartitionId p : partitions.owned()) {
    const std::vector<Sighting> some = admission.Sightings(p);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::vector<Sighting> TakeCut(Admission& admission, const PartitionSet& partitions) {
  std::vector<Sighting> all;
  for (const PartitionId p : partitions.owned()) {
    const std::vector<Sighting> some = admission.TakeCut(p);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

void Sight(Admission& admission, std::mt19937_64& random, int keys) {
  std::vector<uint64_t> some;
  for (int i = 0; i < keys; ++i) some.push_back(random() % 5000);
  absl::MutexLock lock(&admission.mu);
  admission.Sight(std::move(some));
}

TEST(Sightings, ACutHasThoseOfItsMomentAndCopiesOnlyPartitionsThatCountOn) {
  const PartitionSet partitions = *PartitionSet::New(4, {0, 1, 2, 3});
  const auto admission = *Admission::New(After(5), 1, "t", &partitions);
  std::mt19937_64 random(1);
  Sight(*admission, random, 10000);
  for (int cut = 0; cut < 3; ++cut) {
    const uint64_t bytes = admission->bytes();
    const std::vector<Sighting> moment = AllOf(*admission, partitions);
    EXPECT_GT(moment.size(), 1000u);
    admission->BeginCut();
    EXPECT_EQ(admission->bytes(), bytes);
    {
      absl::MutexLock lock(&admission->mu);
      admission->Sight({1});
    }
    EXPECT_GT(admission->bytes(), bytes);
    EXPECT_LT(admission->bytes(), bytes + bytes / 2) << "one of four";
    Sight(*admission, random, 3000);
    EXPECT_EQ(TakeCut(*admission, partitions), moment);
    EXPECT_NE(AllOf(*admission, partitions), moment);
    admission->DropCut();
    EXPECT_LE(admission->bytes(), 2 * bytes) << "a filter may have grown";
  }
}

TEST(Sightings, ACutThatIsReadWhileOthersCountHasAllOfAnUpdateOrNothing) {
  const PartitionSet partitions = *PartitionSet::New(4, {0, 1, 2, 3});
  const auto admission = *Admission::New(After(255), 1, "t", &partitions);
  std::vector<uint64_t> keys(20'000);
  std::iota(keys.begin(), keys.end(), 0);
  std::thread counts([&] {
    for (int i = 0; i < 250; ++i) {
      absl::MutexLock lock(&admission->mu);
      admission->Sight(keys);
    }
  });
  for (int most = 0; most < 200;) {
    admission->BeginCut();
    const std::vector<Sighting> cut = TakeCut(*admission, partitions);
    admission->DropCut();
    ASSERT_TRUE(cut.empty() || cut.size() == keys.size()) << cut.size();
    for (const Sighting& sighting : cut) ASSERT_EQ(sighting.count, cut[0].count);
    if (!cut.empty()) most = cut[0].count;
  }
  counts.join();
}

TEST(Sightings, ComeBackAsTheyWere) {
  const PartitionSet partitions = *PartitionSet::New(2, {0, 1});
  const auto admission = *Admission::New(After(200), 1, "t", &partitions);
  std::mt19937_64 random(2);
  for (int i = 0; i < 300; ++i) Sight(*admission, random, 50);
  const auto other = *Admission::New(After(200), 1, "t", &partitions);
  for (const PartitionId p : partitions.owned()) {
    std::string bytes;
    AppendSightings(admission->Sightings(p), bytes);
    const auto parsed = ParseSightings(bytes);
    ASSERT_OK(parsed);
    // In two pieces, in the place of something else.
    other->SetSightings(p, {{77, 1}});
    const size_t half = parsed->size() / 2;
    other->SetSightings(p, absl::MakeConstSpan(*parsed).first(half));
    other->AddSightings(p, absl::MakeConstSpan(*parsed).subspan(half));
  }
  EXPECT_EQ(AllOf(*other, partitions), AllOf(*admission, partitions));
  EXPECT_FAILS(ParseSightings("abcd"), StatusCode::kInvalidArgument, "4 bytes of sightings");
  EXPECT_FAILS(ParseSightings(std::string(5, '\0')), StatusCode::kInvalidArgument,
               "sightings of a key: 0");
}

class SightingsCheckpointTest : public testing::Test {
 protected:
  static constexpr uint64_t kSteps = 12;
  static constexpr uint64_t kCut = 7;

  static v1::OpenJobRequest TestJob(uint32_t partitions = 16) {
    v1::PsTable waiting = AdamTable("waiting", 2, v1::SYNC);
    *waiting.mutable_spec()->mutable_admission() = After(4);
    v1::PsTable others = AdamTable("others", 2, v1::SYNC);
    *others.mutable_spec()->mutable_admission() = After(3);
    others.mutable_spec()->mutable_admission()->set_probability(0.5f);
    return Job({waiting, AdamTable("all", 1, v1::SYNC), others}, 1, partitions);
  }
  // The same keys and gradients at a step, whoever pushes.
  static void Push(ShardedJob& job, uint64_t step) {
    std::mt19937_64 random(step);
    std::set<uint64_t> keys;
    for (int i = 0; i < 2000; ++i) keys.insert(random() % 6000);
    std::vector<Block> blocks;
    for (const uint32_t t : {0, 1, 2}) {
      const size_t dim = t == 1 ? 1 : 2;
      Block& block = blocks.emplace_back(Block{t, {keys.begin(), keys.end()}, {}});
      for (size_t i = 0; i < keys.size() * dim; ++i) {
        block.values.push_back(static_cast<float>(random() % 100) / 50 - 1);
      }
    }
    job.Push(0, step, blocks);
  }
  static v1::OpenJobRequest From(v1::OpenJobRequest job, const std::string& folder) {
    job.set_checkpoint(folder);
    job.set_first_step(kCut);
    return job;
  }
  // Rows at the end of a job that has cut on its way.
  SavedRows Undisturbed() {
    ShardedJob job(TestJob(), 2, files_, clock_);
    for (uint64_t step = 0; step < kSteps; ++step) {
      if (step == 3) EXPECT_OK(job.Checkpoint(step, "step-3"));
      if (step == kCut) EXPECT_OK(job.Checkpoint(step, "step-7", "step-3"));
      Push(job, step);
    }
    return job.Rows(kSteps);
  }
  SavedRows GoOn(const v1::OpenJobRequest& request, uint32_t ps) {
    ShardedJob job(request, ps, files_, clock_);
    EXPECT_OK(job.status());
    if (!job.status().ok()) return {};
    for (uint64_t step = kCut; step < kSteps; ++step) Push(job, step);
    return job.Rows(kSteps);
  }

  HandClock clock_;
  FaultFileSystem files_;
};

TEST_F(SightingsCheckpointTest, AJobThatGoesOnFromACheckpointHasTheSameBitsOnAnyNumberOfPs) {
  const SavedRows expected = Undisturbed();
  EXPECT_GT(expected.size(), 6000u);
  const auto manifest = ReadManifest(files_, "root/step-7");
  ASSERT_OK(manifest);
  ASSERT_EQ(manifest->sightings_size(), 2);
  EXPECT_EQ(manifest->sightings(0).name(), "sightings-g1-00000-of-00002");
  EXPECT_EQ(manifest->format_version(), 3u);
  ASSERT_OK(files_.Remove("root/step-3"));
  for (const uint32_t ps : {1u, 2u, 3u, 5u}) {
    EXPECT_EQ(GoOn(From(TestJob(), "step-7"), ps), expected) << ps << " ps";
  }
}

TEST_F(SightingsCheckpointTest, AnotherNumberOfPartitionsCountsAnew) {
  const SavedRows expected = Undisturbed();
  EXPECT_LT(GoOn(From(TestJob(32), "step-7"), 2).size(), expected.size());
}

TEST_F(SightingsCheckpointTest, DamageIsFound) {
  Undisturbed();
  const std::string path = "root/step-7/sightings-g1-00001-of-00002";
  ASSERT_OK(VerifyCheckpoint(files_, "root/step-7"));
  const std::string sound = files_.Content(path);
  for (size_t at = 0; at < sound.size(); at += 97) {
    std::string damaged = sound;
    damaged[at] = static_cast<char>(damaged[at] ^ 8);
    files_.SetContent(path, damaged);
    EXPECT_FAILS(VerifyCheckpoint(files_, "root/step-7"), StatusCode::kDataLoss, path);
    ShardedJob job(From(TestJob(), "step-7"), 1, files_, clock_);
    EXPECT_EQ(job.status().code(), StatusCode::kDataLoss) << at;
  }
  ASSERT_OK(files_.Remove(path));
  EXPECT_FAILS(VerifyCheckpoint(files_, "root/step-7"), StatusCode::kDataLoss, path);
  EXPECT_FAILS(ShardedJob(From(TestJob(), "step-7"), 1, files_, clock_).status(),
               StatusCode::kDataLoss, "missing");
}

// A job of one table, one partition, and two keys that wait for their rows.
class SightingsFormatTest : public SightingsCheckpointTest {
 protected:
  SightingsFormatTest() {
    v1::PsTable waiting = AdamTable("waiting", 1, v1::SYNC);
    *waiting.mutable_spec()->mutable_admission() = After(200);
    request_ = Job({waiting}, 1, 1);
    ShardedJob job(request_, 1, files_, clock_);
    job.Push(0, 0, {{0, {7}, {1}}});
    job.Push(0, 1, {{0, {7, uint64_t{1} << 40}, {1, 1}}});
    EXPECT_OK(job.Checkpoint(2, "step-2"));
    request_.set_checkpoint("step-2");
    request_.set_first_step(2);
  }
  static constexpr char kPath[] = "root/step-2/sightings-g1-00000-of-00001";
  v1::OpenJobRequest request_;
};

TEST_F(SightingsFormatTest, StaysFromBuildToBuild) {
  // A change of these bytes is a new version.
  const std::string bytes = files_.Content(kPath);
  ASSERT_EQ(bytes.size(), 24 + 24 + 2 * 5 + 8 + 24);
  EXPECT_EQ(bytes.substr(0, 16), std::string("TSSRSIG1\x01\0\0\0\x01\0\0\0", 16));
  EXPECT_EQ(bytes.substr(24, 16), std::string("\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(ChecksumText(Checksum64Of(bytes)), "130b3e04355792e3");
}

TEST_F(SightingsFormatTest, OfALaterVersionIsRefusedByName) {
  ASSERT_OK(ShardedJob(request_, 1, files_, clock_).status());
  std::string later = files_.Content(kPath);
  later[8] = 2;
  const uint64_t checksum = Checksum64Of(later.substr(0, 16));
  std::memcpy(&later[16], &checksum, sizeof(checksum));
  files_.SetContent(kPath, later);
  EXPECT_FAILS(ShardedJob(request_, 1, files_, clock_).status(), StatusCode::kFailedPrecondition,
               std::string(kPath) + ": has format 2, this build reads 1");
}

TEST_F(SightingsCheckpointTest, OfAJobThatCountsNoneThereIsNoFile) {
  ShardedJob job(Job({AdamTable("all", 1, v1::SYNC)}, 1, 4), 1, files_, clock_);
  ASSERT_OK(job.Checkpoint(0, "none"));
  const auto manifest = ReadManifest(files_, "root/none");
  ASSERT_OK(manifest);
  EXPECT_TRUE(manifest->sightings().empty());
  EXPECT_EQ(manifest->format_version(), 2u);
}

class SightingsMoveTest : public PartitionMoveTest {
 protected:
  static v1::OpenJobRequest Waiting(v1::OpenJobRequest request) {
    *request.mutable_tables(0)->mutable_spec()->mutable_admission() = After(4);
    return request;
  }
};

TEST_F(SightingsMoveTest, ComeWithTheirPartition) {
  Jobs still({.clock = &clock_, .files = &files_, .checkpoint_root = "root"});
  const std::vector<uint32_t> all = Partitions(0, kMovePartitions);
  const std::vector<uint32_t> stays = Partitions(0, 90), moves = Partitions(90, kMovePartitions);
  ASSERT_OK(still.Open(Waiting(Request(1, all))));
  ASSERT_OK(old_.Open(Waiting(Request(1, stays))));
  ASSERT_OK(other_.Open(Waiting(Request(1, moves))));
  uint64_t step = 0;
  const auto train = [&](absl::Span<JobShard* const> shards) {
    for (JobShard* shard : shards) {
      std::mt19937_64 random(step);
      std::set<uint64_t> keys;
      for (int i = 0; i < 1500; ++i) {
        const uint64_t key = random() % 6000;
        if (shard->Owns(PartitionOf(key, kMovePartitions).value())) keys.insert(key);
      }
      const Block block = {0, {keys.begin(), keys.end()}, std::vector<float>(3 * keys.size(), 1)};
      v1::PushRequest push = PushOf(0, step, {block});
      push.mutable_header()->set_generation(shard->request().generation());
      ASSERT_OK(PushAll(*shard, push));
    }
    ++step;
  };
  const auto of_still = Find(still, 1), from = Find(other_, 1), near = Find(old_, 1);
  while (step < 6) train({of_still.get(), from.get(), near.get()});
  // To the one that has the other partitions, in three rounds.
  const auto staged = old_.Stage(Waiting(TakeOver(1, all)), /*changed=*/false);
  ASSERT_OK(staged);
  for (int round = 0; round < 3; ++round) {
    ASSERT_OK(Copy(*from, **staged, moves, /*changed=*/round > 0));
    if (round < 2) train({of_still.get(), from.get(), near.get()});
  }
  ASSERT_OK(old_.Open(Waiting(TakeOver(1, all, step))));
  const auto taken = Find(old_, 2);
  EXPECT_TRUE(Rows(*taken) == Rows(*of_still));
  while (step < 12) train({of_still.get(), taken.get()});
  EXPECT_TRUE(Rows(*taken) == Rows(*of_still));
  EXPECT_GT(Rows(*taken).size(), 1000u);
  EXPECT_EQ(taken->Stats().tables(0).dropped_gradients() +
                from->Stats().tables(0).dropped_gradients() +
                near->Stats().tables(0).dropped_gradients(),
            of_still->Stats().tables(0).dropped_gradients());
}

TEST_F(SightingsMoveTest, OfAPartitionThatIsNotHereAreRefused) {
  ASSERT_OK(old_.Open(Waiting(Request(1, {1}))));
  v1::RowChunk chunk;
  chunk.set_sightings_of(2);
  chunk.set_checksum(Checksum64Of(""));
  EXPECT_FAILS(Find(old_, 1)->Receive(chunk), StatusCode::kInvalidArgument,
               "sightings of partition 2 of table 0");
  chunk.set_sightings_of(1);
  chunk.set_table(1);
  EXPECT_FAILS(Find(old_, 1)->Receive(chunk), StatusCode::kInvalidArgument, "of table 1");
  chunk.set_table(0);
  chunk.set_records("abc");
  EXPECT_FAILS(Find(old_, 1)->Receive(chunk), StatusCode::kDataLoss, "damaged");
  chunk.set_checksum(Checksum64Of("abc"));
  EXPECT_FAILS(Find(old_, 1)->Receive(chunk), StatusCode::kInvalidArgument, "3 bytes");
}

}  // namespace
}  // namespace tessera::ps
