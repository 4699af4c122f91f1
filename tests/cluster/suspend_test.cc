// Jobs that are suspended and go on, pre-empted, and given other numbers of workers, on a cluster
// in this process.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/job_client.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "local/cluster.h"
#include "tests/cluster/training_testing.h"

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class SuspendTest : public TrainingTest {
 protected:
  // Once the job has reached the step, it is done to it.
  struct Deed {
    uint64_t step = 0;
    std::function<void(client::JobClient&, const std::string& id)> what;
  };

  v1::JobSpec Long(std::vector<std::string> overrides) {
    for (const char* more : {"train.epochs=24", "train.early_stopping.patience=0",
                             "checkpoint.keep_best=false", "evaluation.every_epochs=12"}) {
      overrides.insert(overrides.begin(), more);
    }
    return Job(overrides);
  }

  // The job's last status; its checkpoint is an absolute path.
  v1::JobStatus Run(const std::string& name, const v1::JobSpec& spec, uint32_t ps, uint32_t workers,
                    std::vector<Deed> deeds) {
    const std::string folder = RunFolder(name);
    local::ClusterOptions options;
    options.work_folder = folder;
    options.data_root = *data_folder_;
    options.checkpoint_root = folder + "/checkpoints";
    options.output_root = folder;
    options.ps = 3;
    options.workers = 3;
    options.least_run = absl::Milliseconds(100);
    options.say = [](const std::string&) {};
    options.on_failure = [](const absl::Status& s) { ADD_FAILURE() << s; };
    auto started = local::StartInProcessCluster(options);
    EXPECT_TRUE(started.ok()) << started.status();
    client::JobClient::Options of_client;
    of_client.master_address = (*started)->master_address();
    of_client.channels = &(*started)->channels();
    client::JobClient client(of_client);
    v1::SubmitRequest submit;
    *submit.mutable_spec() = spec;
    submit.set_ps(ps);
    submit.set_workers(workers);
    const std::string id = client.Submit(submit).value();
    size_t next = 0;
    auto status = client.Watch(id, [&](const v1::JobStatus& now) {
      if (next == deeds.size() || now.step() < deeds[next].step) return;
      if (now.state() != v1::RUNNING || now.has_worker_scaling()) return;
      deeds[next++].what(client, id);
    });
    EXPECT_EQ(next, deeds.size()) << "the job ended before it was asked";
    EXPECT_TRUE(status.ok()) << status.status();
    status->set_checkpoint(options.checkpoint_root + "/" + status->checkpoint());
    EXPECT_EQ(status->restarts(), 0u);
    EXPECT_EQ(status->samples(), 24u * 12000);
    events_.clear();
    for (const v1::Event& event : status->events()) events_.push_back(event.message());
    return *std::move(status);
  }

  static void SuspendAndResume(client::JobClient& client, const std::string& id) {
    ASSERT_TRUE(client.Suspend(id).ok());
    const auto suspended = client.AwaitSuspended(id);
    ASSERT_TRUE(suspended.ok()) << suspended.status();
    EXPECT_EQ(suspended->nodes_size(), 0);
    ASSERT_TRUE(client.Resume(id).ok());
  }
  // It needs all workers, and another number of ps.
  static void RunUrgentJob(client::JobClient& client, const v1::JobSpec& like) {
    v1::SubmitRequest submit;
    *submit.mutable_spec() = like;
    submit.mutable_spec()->set_name("urgent");
    submit.mutable_spec()->set_priority(5);
    submit.mutable_spec()->mutable_train()->set_epochs(1);
    submit.set_ps(1);
    submit.set_workers(3);
    const auto ended = client.Watch(client.Submit(submit).value(), [](const v1::JobStatus&) {});
    ASSERT_TRUE(ended.ok()) << ended.status();
    EXPECT_EQ(ended->state(), v1::SUCCEEDED) << ended->message();
  }
  static Deed Workers(uint64_t step, uint32_t workers) {
    return {step, [workers](client::JobClient& client, const std::string& id) {
              v1::ScaleRequest scale;
              scale.set_job_id(id);
              scale.set_workers(workers);
              EXPECT_TRUE(client.Scale(scale).ok());
            }};
  }

  // How often every row of every table was updated, by the checkpoint.
  static std::map<std::pair<uint32_t, uint64_t>, uint32_t> Updates(const v1::JobStatus& status) {
    EXPECT_EQ(status.state(), v1::SUCCEEDED) << status.reason() << ": " << status.message();
    FileSystem& files = PosixFileSystem();
    std::map<std::pair<uint32_t, uint64_t>, uint32_t> updates;
    auto manifest = ReadManifest(files, status.checkpoint());
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    const uint32_t tables = static_cast<uint32_t>(manifest->tables_size());
    auto reader = CheckpointReader::Open(files, status.checkpoint(), *std::move(manifest));
    EXPECT_TRUE(reader.ok()) << reader.status();
    for (uint32_t t = 0; t < tables; ++t) {
      for (uint32_t p = 0; p < (*reader)->partition_count(); ++p) {
        auto rows = (*reader)->Read(TableIndex(t), PartitionId(p));
        EXPECT_TRUE(rows.ok()) << rows.status();
        for (uint64_t i = 0; i < rows->rows(); ++i) {
          const bool once = updates.emplace(std::pair(t, rows->key(i)), rows->frequency(i)).second;
          EXPECT_TRUE(once) << "key " << rows->key(i) << " is there twice";
        }
      }
    }
    return updates;
  }

  std::vector<std::string> events_;
};

TEST_F(SuspendTest, ASyncJobThatIsSuspendedEndsWithTheBitsOfOneThatIsNot) {
  const v1::JobSpec spec = Long({"checkpoint.every_steps=50"});
  const std::string undisturbed = Digest(Run("undisturbed", spec, 2, 2, {}));
  const auto suspended =
      Run("suspended", spec, 2, 2,
          {{30, SuspendAndResume}, {90, SuspendAndResume}, {200, SuspendAndResume}});
  EXPECT_EQ(Digest(suspended), undisturbed);
  EXPECT_THAT(events_, Contains(HasSubstr("resumed by a user")));
  const v1::JobSpec logged = Long({"checkpoint.every_steps=50", "recovery.push_log=async"});
  EXPECT_EQ(Digest(Run("logged", logged, 2, 2, {{60, SuspendAndResume}})), undisturbed);
}

TEST_F(SuspendTest, ASuspendedSyncJobGoesOnWithOtherPsToTheSameBits) {
  const v1::JobSpec spec = Long({});
  const std::string undisturbed = Digest(Run("undisturbed", spec, 1, 2, {}));
  const auto elsewhere = [](client::JobClient& client, const std::string& id) {
    ASSERT_TRUE(client.Suspend(id).ok());
    ASSERT_TRUE(client.AwaitSuspended(id).ok());
    v1::ScaleRequest scale;
    scale.set_job_id(id);
    scale.set_ps(3);
    ASSERT_TRUE(client.Scale(scale).ok());
    ASSERT_TRUE(client.Resume(id).ok());
  };
  const v1::JobStatus status = Run("elsewhere", spec, 1, 2, {{40, elsewhere}});
  EXPECT_EQ(Digest(status), undisturbed);
  EXPECT_EQ(status.shares_size(), 3);
}

TEST_F(SuspendTest, APreemptedSyncJobEndsWithTheSameBits) {
  const v1::JobSpec spec = Long({});
  const std::string undisturbed = Digest(Run("undisturbed", spec, 2, 2, {}));
  v1::JobSpec held = spec;
  const v1::JobStatus status =
      Run("preempted", held, 2, 2, {{20, [&spec](client::JobClient& client, const std::string& id) {
                                       RunUrgentJob(client, spec);
                                     }}});
  EXPECT_EQ(Digest(status), undisturbed);
  EXPECT_THAT(events_, Contains(HasSubstr("to be pre-empted by urgent-2, of priority 5")));
}

TEST_F(SuspendTest, EveryUpdateOfAnAsyncJobCountsOnceHoweverManyWorkersItHas) {
  const v1::JobSpec spec = Long({"consistency.sparse=async", "consistency.dense=async"});
  // Who makes up a batch depends on the windows, which keep their shape within an epoch; what
  // counts whatever they are is how many samples there were.
  const auto status = Run("scaled", spec, 2, 1, {Workers(100, 3), Workers(500, 2)});
  EXPECT_EQ(status.state(), v1::SUCCEEDED) << status.message();
  EXPECT_THAT(events_, Contains(HasSubstr("goes from 1 to 3 workers")));
  EXPECT_THAT(events_, Contains(HasSubstr("goes from 3 to 2 workers")));
  EXPECT_GT(Updates(status).size(), 1000u);
}

TEST_F(SuspendTest, ASyncJobWithOtherWorkersIsTheSameWheneverItIsInterruptedAfterThat) {
  const v1::JobSpec spec = Long({});
  const auto status = Run("scaled", spec, 2, 1, {Workers(40, 3), Workers(200, 2)});
  EXPECT_EQ(status.state(), v1::SUCCEEDED) << status.message();
  EXPECT_THAT(events_, Contains(HasSubstr("goes from 1 to 3 workers")));
  EXPECT_THAT(events_, Contains(HasSubstr("goes from 3 to 2 workers")));
}

}  // namespace
}  // namespace tessera
