// Jobs whose workers sum their dense gradients among themselves (train.dense_gradients all_reduce).
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "tests/cluster/takeover_testing.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

class AllReduceTest : public TakeoverTest {
 protected:
  // An average of the parameters makes dense statistics.
  v1::JobSpec Spec(bool all_reduce, std::vector<std::string> besides = {}) {
    besides.insert(besides.end(),
                   {absl::StrCat("train.dense_gradients=", all_reduce ? "all_reduce" : "ps"),
                    "consistency.sparse=sync", "consistency.dense=sync", "model.ema_decay=0.9",
                    "train.early_stopping.patience=0", "checkpoint.keep_best=false"});
    return Job(besides);
  }

  // Bytes of all pushes.
  static double PushedBytes(const WorkerlessCluster& cluster) {
    double sum = 0;
    for (const std::string& text : cluster.PsMetrics()) {
      for (absl::string_view line : absl::StrSplit(text, '\n')) {
        double bytes = 0;
        if (absl::ConsumePrefix(&line, "tessera_ps_received_bytes_total{call=\"Push\"} ") &&
            absl::SimpleAtod(line, &bytes)) {
          sum += bytes;
        }
      }
    }
    return sum;
  }
};

TEST_F(AllReduceTest, TwoWorkersGiveTheBitsOfSumsOnThePs) {
  EXPECT_EQ(Digest(Run("all-reduce", Spec(true), {.ps = 2})),
            Digest(Run("ps", Spec(false), {.ps = 1})));
}

TEST_F(AllReduceTest, TensorsThatFillNoRowsAreSummedToTheSameBits) {
  // lamb lays each tensor in rows of its own, the last of which is filled up.
  const std::vector<std::string> lamb = {"model.optimizer={learning_rate: 0.01, lamb: {}}"};
  EXPECT_EQ(Digest(Run("all-reduce", Spec(true, lamb), {.ps = 2})),
            Digest(Run("ps", Spec(false, lamb), {.ps = 1})));
}

TEST_F(AllReduceTest, ThreeWorkersGiveTheSameBitsEachTime) {
  // Batches of 250 are not even, and of the last in a window a rank may have nothing.
  const v1::JobSpec spec =
      Spec(true, {"train.epochs=1", "train.batch_size=250", "data.shuffle_window_records=3001"});
  EXPECT_EQ(Digest(Run("first", spec, {.ps = 1, .workers = 3})),
            Digest(Run("second", spec, {.ps = 2, .workers = 3})));
}

TEST_F(AllReduceTest, OneWorkerHasNothingToSum) {
  const std::vector<std::string> one = {"train.epochs=1"};
  EXPECT_EQ(Digest(Run("all-reduce", Spec(true, one), {.ps = 1, .workers = 1})),
            Digest(Run("ps", Spec(false, one), {.ps = 1, .workers = 1})));
}

TEST_F(AllReduceTest, AWorkerThatIsLostCostsNoBitAndNoRollback) {
  const v1::JobSpec spec = Spec(true);
  const std::string undisturbed = Digest(Run("undisturbed", spec, {.ps = 2, .workers = 3}));
  for (const std::vector<bool>& through :
       std::vector<std::vector<bool>>{{true, false}, {true, true}, {false, false}}) {
    const std::string name = absl::StrCat("through-", through[0], through[1]);
    SCOPED_TRACE(name);
    const v1::JobStatus status = RunWithALoss(name, spec, through, 3);
    EXPECT_EQ(Digest(status), undisturbed);
    EXPECT_EQ(status.restarts(), 0u);
    EXPECT_EQ(status.generation(), 1u);
    EXPECT_EQ(status.samples(), 2u * 12000);
  }
}

TEST_F(AllReduceTest, RowsInAsyncModeLearnBesides) {
  const v1::JobStatus status = Run("hybrid",
                                   Job({"train.dense_gradients=all_reduce",
                                        "consistency.sparse=async", "consistency.dense=sync"}),
                                   {.ps = 2, .workers = 3});
  EXPECT_EQ(status.state(), v1::SUCCEEDED) << status.message();
  ASSERT_GT(status.evaluations_size(), 0);
  EXPECT_GT(status.evaluations().rbegin()->metrics().at("auc"), 0.6);
}

TEST_F(AllReduceTest, FourWorkersPushTheDenseGradientsOnce) {
  const std::vector<std::string> besides = {"train.steps=40", "train.epochs=0",
                                            "tables.embedding.dim=1",
                                            "model.options.hidden=[512, 256]"};
  double pushed[2];
  uint64_t steps = 0;
  for (const bool all_reduce : {false, true}) {
    WorkerlessCluster cluster(RunFolder(absl::StrCat("all-reduce-", all_reduce)));
    std::vector<std::unique_ptr<worker::Worker>> workers;
    for (int w = 0; w < 4; ++w) {
      workers.push_back(cluster.StartWorker(absl::StrCat("worker-", w), *data_folder_));
    }
    const v1::JobStatus status = cluster.Await(cluster.Submit(Spec(all_reduce, besides), 4));
    EXPECT_EQ(status.state(), v1::SUCCEEDED) << status.message();
    steps = status.step();
    pushed[all_reduce] = PushedBytes(cluster);
    for (auto& worker : workers) worker->Leave();
    for (auto& worker : workers) worker->Stop();
  }
  ASSERT_GT(steps, 0u);
  // Rows are pushed as before; of the dense gradients D, three of four copies go.
  const double copy = (pushed[0] - pushed[1]) / 3 / static_cast<double>(steps);
  // 12 x 512 + 512 x 256 + 256 and more, and their average: 4 bytes each.
  EXPECT_GT(copy, 2 * 4 * (12 * 512 + 512 * 256));
  std::printf("pushed a step: %.0f bytes through the ps, %.0f all-reduced; dense gradients: %.0f\n",
              pushed[0] / static_cast<double>(steps), pushed[1] / static_cast<double>(steps), copy);
}

TEST_F(AllReduceTest, WorkersWithoutAnAddressAreNotTaken) {
  WorkerlessCluster cluster(RunFolder("no-address"));
  worker::Worker::Options options;
  options.master_address = "master";
  options.name = "worker-0";
  options.data_root = *data_folder_;
  options.channels = &cluster.channels();
  auto silent = worker::Worker::Start(options);
  ASSERT_TRUE(silent.ok()) << silent.status();
  const std::string job_id = cluster.Submit(Spec(true, {"train.epochs=1"}), 1);
  v1::JobStatus status;
  const auto jobs = cluster.Jobs();
  for (int i = 0; i < 300 && status.message().find("and 1 of those") == std::string::npos; ++i) {
    grpc::ClientContext context;
    v1::GetRequest request;
    request.set_job_id(job_id);
    ASSERT_TRUE(jobs->Get(&context, request, &status).ok());
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_THAT(status.message(), HasSubstr("0 of 1 workers are here (none); start tessera-worker"));
  EXPECT_THAT(status.message(), HasSubstr("--listen HOST:PORT (no wildcard): by "
                                          "train.dense_gradients: all_reduce its workers call each "
                                          "other, and 1 of those here have no address"));
  const auto serves = cluster.StartWorker("worker-1", *data_folder_);
  EXPECT_EQ(cluster.Await(job_id).state(), v1::SUCCEEDED);
  (*silent)->Stop();
  serves->Stop();
}

}  // namespace
}  // namespace tessera
