// Several jobs at once on a cluster in this process.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "client/job_client.h"
#include "local/cluster.h"
#include "tests/cluster/training_testing.h"

namespace tessera {
namespace {

class JobsTest : public TrainingTest {
 protected:
  struct Wanted {
    v1::JobSpec spec;
    uint32_t ps = 1;
    uint32_t workers = 1;
  };

  // Their last statuses, with absolute paths of checkpoints. All are submitted at once.
  std::vector<v1::JobStatus> RunAll(const std::string& name, const std::vector<Wanted>& jobs,
                                    int workers) {
    local::ClusterOptions options;
    options.work_folder = RunFolder(name);
    options.data_root = *data_folder_;
    options.checkpoint_root = options.work_folder + "/checkpoints";
    options.output_root = options.work_folder;
    options.ps = 2;
    options.workers = workers;
    options.say = [](const std::string&) {};
    options.on_failure = [](const absl::Status& s) { ADD_FAILURE() << s; };
    auto cluster = local::StartInProcessCluster(options);
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    client::JobClient::Options of_client;
    of_client.master_address = (*cluster)->master_address();
    of_client.channels = &(*cluster)->channels();
    client::JobClient client(of_client);
    std::vector<std::string> ids;
    for (const Wanted& job : jobs) {
      v1::SubmitRequest submit;
      *submit.mutable_spec() = job.spec;
      submit.set_ps(job.ps);
      submit.set_workers(job.workers);
      ids.push_back(client.Submit(submit).value());
    }
    std::vector<v1::JobStatus> statuses;
    for (const std::string& id : ids) {
      auto status = client.Watch(id, [](const v1::JobStatus&) {});
      EXPECT_TRUE(status.ok()) << status.status();
      status->set_checkpoint(options.checkpoint_root + "/" + status->checkpoint());
      EXPECT_EQ(status->restarts(), 0u);
      statuses.push_back(*std::move(status));
    }
    return statuses;
  }
};

TEST_F(JobsTest, SyncJobsAtOnceEndWithTheBitsOfEachAlone) {
  const std::vector<Wanted> jobs = {
      {.spec = Job({"name=first", "train.epochs=12", "checkpoint.every_steps=40"}),
       .ps = 2,
       .workers = 2},
      {.spec = Job({"name=second", "train.epochs=12", "seed=99", "checkpoint.every_steps=30"}),
       .ps = 2,
       .workers = 1},
      {.spec = Job(
           {"name=third", "train.epochs=3", "consistency.sparse=async", "consistency.dense=async"}),
       .ps = 1,
       .workers = 1}};
  const std::vector<v1::JobStatus> together = RunAll("together", jobs, 4);
  int64_t last_start = 0;
  int64_t first_end = INT64_MAX;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Digest(together[i]), Digest(RunAll("alone", {jobs[i]}, 2)[0])) << i;
    last_start = std::max(last_start, together[i].started_unix_ms());
    first_end = std::min(first_end, together[i].finished_unix_ms());
  }
  EXPECT_LT(last_start, first_end);
  EXPECT_EQ(together[2].state(), v1::SUCCEEDED) << together[2].message();
}

}  // namespace
}  // namespace tessera
