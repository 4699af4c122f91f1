// Jobs that are suspended and go on, pre-empted, and given other numbers of workers, on a cluster
// in this process.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/job_client.h"
#include "common/checkpoint/manifest.h"
#include "common/status_macros.h"
#include "local/cluster.h"
#include "tests/cluster/training_testing.h"

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class SuspendTest : public TrainingTest {
 protected:
  // Once the job has reached the step, it is done to it; again if it cannot be yet, or no more.
  struct Deed {
    uint64_t step = 0;
    std::function<absl::Status(client::JobClient&, const std::string& id)> what;
  };

  v1::JobSpec Long(std::vector<std::string> overrides) {
    for (const char* more : {"train.epochs=24", "train.early_stopping.patience=0",
                             "checkpoint.keep_best=false", "evaluation.every_epochs=12"}) {
      overrides.insert(overrides.begin(), more);
    }
    return Job(overrides);
  }

  // The job's last status; its checkpoint is an absolute path. `root`: of checkpoints; empty: one
  // of its own.
  v1::JobStatus Run(const std::string& name, const v1::JobSpec& spec, uint32_t ps, uint32_t workers,
                    const std::vector<Deed>& deeds, const std::string& root = "") {
    if (deeds.empty()) return *Try(name, spec, ps, workers, deeds, root);
    return RunSlowed(
        name, [&](const std::string& of) { return Try(of, spec, ps, workers, deeds, root); });
  }

  // Nothing where the job ended before all was done to it.
  std::optional<v1::JobStatus> Try(const std::string& name, const v1::JobSpec& spec, uint32_t ps,
                                   uint32_t workers, const std::vector<Deed>& deeds,
                                   const std::string& root) {
    const std::string folder = RunFolder(name);
    local::ClusterOptions options;
    options.work_folder = folder;
    options.data_root = *data_folder_;
    options.checkpoint_root = root.empty() ? folder + "/checkpoints" : root;
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
      if (deeds[next].what(client, id).ok()) ++next;
    });
    EXPECT_TRUE(status.ok()) << status.status();
    // Those workers that it did not get any more are not in its events.
    const size_t asked =
        std::count_if(status->events().begin(), status->events().end(), [](const v1::Event& event) {
          return absl::StartsWith(event.message(), "asked to go from ") &&
                 absl::StrContains(event.message(), " workers");
        });
    if (next < deeds.size() || CountEvents(*status, " workers at step ") < asked) {
      EXPECT_EQ(status->state(), v1::SUCCEEDED) << status->reason() << ": " << status->message();
      return std::nullopt;
    }
    status->set_checkpoint(options.checkpoint_root + "/" + status->checkpoint());
    EXPECT_EQ(status->restarts(), 0u);
    EXPECT_EQ(status->samples(), 24u * 12000);
    events_.clear();
    for (const v1::Event& event : status->events()) events_.push_back(event.message());
    return *std::move(status);
  }

  static absl::Status Suspend(client::JobClient& client, const std::string& id) {
    TESSERA_RETURN_IF_ERROR(client.Suspend(id));
    TESSERA_ASSIGN_OR_RETURN(const v1::JobStatus suspended, client.AwaitSuspended(id));
    EXPECT_EQ(suspended.nodes_size(), 0);
    return absl::OkStatus();
  }
  static absl::Status SuspendAndResume(client::JobClient& client, const std::string& id) {
    TESSERA_RETURN_IF_ERROR(Suspend(client, id));
    return client.Resume(id);
  }
  // It needs all workers, and another number of ps. Not OK: it began when the job had ended.
  static absl::Status RunUrgentJob(client::JobClient& client, const std::string& id,
                                   const v1::JobSpec& like) {
    v1::SubmitRequest submit;
    *submit.mutable_spec() = like;
    submit.mutable_spec()->set_name("urgent");
    submit.mutable_spec()->set_priority(5);
    submit.mutable_spec()->mutable_train()->set_epochs(1);
    submit.set_ps(1);
    submit.set_workers(3);
    TESSERA_ASSIGN_OR_RETURN(const std::string urgent, client.Submit(submit));
    TESSERA_ASSIGN_OR_RETURN(const v1::JobStatus ended,
                             client.Watch(urgent, [](const v1::JobStatus&) {}));
    EXPECT_EQ(ended.state(), v1::SUCCEEDED) << ended.message();
    TESSERA_ASSIGN_OR_RETURN(const v1::JobStatus job, client.Get(id));
    return CountEvents(job, "pre-empted at step ") > 0 ? absl::OkStatus()
                                                       : absl::UnavailableError("not pre-empted");
  }
  static Deed Workers(uint64_t step, uint32_t workers) {
    return {step, [workers](client::JobClient& client, const std::string& id) {
              v1::ScaleRequest scale;
              scale.set_job_id(id);
              scale.set_workers(workers);
              return client.Scale(scale).status();
            }};
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
    TESSERA_RETURN_IF_ERROR(Suspend(client, id));
    v1::ScaleRequest scale;
    scale.set_job_id(id);
    scale.set_ps(3);
    TESSERA_RETURN_IF_ERROR(client.Scale(scale).status());
    return client.Resume(id);
  };
  const v1::JobStatus status = Run("elsewhere", spec, 1, 2, {{40, elsewhere}});
  EXPECT_EQ(Digest(status), undisturbed);
  EXPECT_EQ(status.shares_size(), 3);
}

TEST_F(SuspendTest, APreemptedSyncJobEndsWithTheSameBits) {
  const v1::JobSpec spec = Long({});
  const std::string undisturbed = Digest(Run("undisturbed", spec, 2, 2, {}));
  const auto preempt = [&spec](client::JobClient& client, const std::string& id) {
    return RunUrgentJob(client, id, spec);
  };
  EXPECT_EQ(Digest(Run("preempted", spec, 2, 2, {{20, preempt}})), undisturbed);
  EXPECT_THAT(events_, Contains(HasSubstr("to be pre-empted by urgent-2, of priority 5")));
}

TEST_F(SuspendTest, EveryUpdateOfAnAsyncJobCountsOnceHoweverManyWorkersItHas) {
  // Who makes up a batch depends on the windows; those of one batch are the same whoever has them.
  const v1::JobSpec spec = Long({"consistency.sparse=async", "consistency.dense=async",
                                 "data.shuffle_window_records=256", "data.shard_records=256"});
  const auto undisturbed = Updates(Run("undisturbed", spec, 2, 1, {}));
  EXPECT_GT(undisturbed.size(), 1000u);
  EXPECT_EQ(Updates(Run("scaled", spec, 2, 1, {Workers(100, 3), Workers(500, 2)})), undisturbed);
  EXPECT_THAT(events_, Contains(HasSubstr("goes from 1 to 3 workers")));
  EXPECT_THAT(events_, Contains(HasSubstr("goes from 3 to 2 workers")));
}

// Larger windows keep their shape within an epoch, and get another in the next; what counts
// whatever they are is how many samples there were.
TEST_F(SuspendTest, EverySampleOfAnAsyncJobCountsOnceHoweverManyWorkersItHas) {
  const v1::JobSpec spec = Long({"consistency.sparse=async", "consistency.dense=async"});
  const auto status = Run("scaled", spec, 2, 1, {Workers(100, 3), Workers(500, 2)});
  EXPECT_EQ(status.state(), v1::SUCCEEDED) << status.message();
  EXPECT_THAT(events_, Contains(HasSubstr("goes from 1 to 3 workers")));
  EXPECT_THAT(events_, Contains(HasSubstr("goes from 3 to 2 workers")));
}

TEST_F(SuspendTest, ASyncJobWithOtherWorkersIsFromThereOnOneThatHasSoManyThoughItIsInterrupted) {
  // Of small windows most end within an epoch, of which the rest is cut anew.
  const v1::JobSpec spec =
      Long({"checkpoint.keep=100", "data.shuffle_window_records=500", "data.shard_records=500"});
  for (const auto& [from, to] : {std::pair(1, 3), std::pair(3, 2)}) {
    const std::string name = absl::StrCat("from-", from, "-to-", to);
    SCOPED_TRACE(name);
    const v1::JobStatus scaled = Run(
        name, spec, 2, from, {Workers(40, to), {150, SuspendAndResume}, {400, SuspendAndResume}});
    EXPECT_EQ(CountEvents(scaled, "resumed by a user"), 2u);
    const std::string switched = absl::StrCat("goes from ", from, " to ", to, " workers at step ");
    uint64_t step = 0;
    for (absl::string_view event : events_) {
      if (absl::ConsumePrefix(&event, switched)) {
        ASSERT_TRUE(absl::SimpleAtoi(event, &step)) << event;
      }
    }
    ASSERT_GT(step, 0u);
    v1::JobSpec like = spec;
    const std::filesystem::path job = std::filesystem::path(scaled.checkpoint()).parent_path();
    like.mutable_start()->set_checkpoint(job.filename() / CheckpointFolderName(step));
    const v1::JobStatus undisturbed = Run(name + "-again", like, 2, to, {}, job.parent_path());
    EXPECT_EQ(Digest(scaled), Digest(undisturbed));
  }
}

}  // namespace
}  // namespace tessera
