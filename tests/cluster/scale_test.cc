// Jobs whose set of ps changes while they train, on a cluster in this process.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/job_client.h"
#include "local/cluster.h"
#include "tests/cluster/training_testing.h"

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class ScaleTest : public TrainingTest {
 protected:
  // Once the job has reached the step, it is asked to have so many ps, less those.
  struct Request {
    uint64_t step = 0;
    uint32_t ps = 0;
    std::vector<std::string> drain = {};
  };
  struct Cluster {
    int ps = 3;  // processes
    uint32_t first = 1;
    int workers = 2;
    uint64_t ps_memory_bytes = 0;
  };

  v1::JobSpec Long(std::vector<std::string> overrides) {
    for (const char* more : {"train.epochs=32", "train.early_stopping.patience=0",
                             "checkpoint.keep_best=false", "evaluation.every_epochs=16"}) {
      overrides.insert(overrides.begin(), more);
    }
    return Job(overrides);
  }

  // The job's last status; its checkpoint is an absolute path.
  v1::JobStatus Run(const std::string& name, const v1::JobSpec& spec, const Cluster& cluster,
                    const std::vector<Request>& requests) {
    if (requests.empty()) return *Try(name, spec, cluster, requests);
    v1::JobStatus status =
        RunSlowed(name, [&](const std::string& of) { return Try(of, spec, cluster, requests); });
    EXPECT_EQ(CountEvents(status, " partitions have moved ("), requests.size());
    EXPECT_EQ(status.shares_size(), requests.back().ps);
    return status;
  }

  // Nothing where the job ended before all requests were made, or done.
  std::optional<v1::JobStatus> Try(const std::string& name, const v1::JobSpec& spec,
                                   const Cluster& cluster, const std::vector<Request>& requests) {
    const std::string folder = RunFolder(name);
    local::ClusterOptions options;
    options.work_folder = folder;
    options.data_root = *data_folder_;
    options.checkpoint_root = folder + "/checkpoints";
    options.output_root = folder;
    options.ps = cluster.ps;
    options.workers = cluster.workers;
    options.ps_memory_bytes = cluster.ps_memory_bytes;
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
    submit.set_ps(cluster.first);
    submit.set_workers(static_cast<uint32_t>(cluster.workers));
    const std::string id = client.Submit(submit).value();
    size_t next = 0;
    auto status = client.Watch(id, [&](const v1::JobStatus& now) {
      if (next == requests.size() || now.step() < requests[next].step) return;
      if (now.has_scaling()) return;
      v1::ScaleRequest scale;
      scale.set_job_id(id);
      scale.set_ps(requests[next].ps);
      for (const std::string& drained : requests[next].drain) scale.add_drain(drained);
      const auto answer = client.Scale(scale);
      if (answer.ok()) ++next;
    });
    EXPECT_TRUE(status.ok()) << status.status();
    EXPECT_EQ(CountEvents(*status, "the move is given up: "),
              CountEvents(*status, "the move is given up: the job is at its end"));
    if (CountEvents(*status, " partitions have moved (") < requests.size()) {
      EXPECT_EQ(status->state(), v1::SUCCEEDED) << status->reason() << ": " << status->message();
      return std::nullopt;
    }
    status->set_checkpoint(options.checkpoint_root + "/" + status->checkpoint());
    EXPECT_EQ(status->restarts(), 0u);
    events_.clear();
    for (const v1::Event& event : status->events()) events_.push_back(event.message());
    return *std::move(status);
  }

  std::vector<std::string> events_;
};

TEST_F(ScaleTest, ASyncJobThatGrowsAndShrinksEndsWithTheBitsOfOneThatDidNot) {
  const v1::JobSpec spec = Long({});
  const std::string undisturbed = Digest(Run("undisturbed", spec, {.ps = 1}, {}));
  EXPECT_EQ(Digest(Run("grown", spec, {}, {{40, 3}})), undisturbed);
  EXPECT_EQ(Digest(Run("shrunk", spec, {.first = 3}, {{40, 1}})), undisturbed);
  EXPECT_EQ(Digest(Run("often", spec, {}, {{20, 2}, {45, 3}, {70, 0, {"ps-0"}}, {95, 1}})),
            undisturbed);
}

TEST_F(ScaleTest, ASyncJobWithCheckpointsOnTheWayEndsWithTheSameBits) {
  const v1::JobSpec spec = Long({"checkpoint.every_steps=30"});
  const std::string undisturbed = Digest(Run("undisturbed", spec, {.ps = 1}, {}));
  EXPECT_EQ(Digest(Run("moved", spec, {}, {{20, 3}, {60, 2}, {100, 3}})), undisturbed);
}

TEST_F(ScaleTest, EveryUpdateOfAnAsyncJobCountsOnceWhateverThePsDid) {
  const v1::JobSpec spec = Long({"consistency.sparse=async", "consistency.dense=async"});
  const auto undisturbed = Updates(Run("undisturbed", spec, {.ps = 1}, {}));
  EXPECT_GT(undisturbed.size(), 1000u);
  EXPECT_EQ(Updates(Run("grown", spec, {}, {{40, 3}})), undisturbed);
  EXPECT_EQ(Updates(Run("often", spec, {.first = 3}, {{20, 1}, {60, 2}, {100, 3}})), undisturbed);
}

TEST_F(ScaleTest, AJobWithPushLogsThatGrowsAndShrinksEndsWithTheSameBits) {
  const v1::JobSpec spec = Long({});
  const std::string undisturbed = Digest(Run("undisturbed", spec, {.ps = 1}, {}));
  const v1::JobSpec logged = Long({"recovery.push_log=async"});
  EXPECT_EQ(Digest(Run("logged", logged, {}, {{40, 3}, {120, 1}})), undisturbed);
  EXPECT_THAT(events_, Not(Contains(HasSubstr("by the checkpoint of step"))));
}

TEST_F(ScaleTest, AJobThatSpillsGrowsAndShrinksToTheSameBits) {
  const v1::JobSpec spec = Long({});
  const std::string undisturbed = Digest(Run("undisturbed", spec, {.ps = 1}, {}));
  EXPECT_EQ(Digest(Run("spilled", spec, {.ps_memory_bytes = 1 << 20}, {{40, 3}, {120, 1}})),
            undisturbed);
  EXPECT_THAT(events_, Not(Contains(HasSubstr("by the checkpoint of step"))));
}

}  // namespace
}  // namespace tessera
