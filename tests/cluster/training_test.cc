// Whole jobs on a cluster in this process: master, ps and workers over gRPC's in-process transport.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/digest.h"
#include "common/file_system.h"
#include "common/math/metrics/binary_metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/training_testing.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST_F(TrainingTest, SyncGivesTheSameBitsOnOneAndThreePs) {
  // A norm that gradients exceed: clipping adds up rows that lie on different ps.
  const v1::JobSpec spec = Job({"train.clip.norm=0.05"});
  const std::string one = Digest(Run("one", spec, {.ps = 1}));
  EXPECT_EQ(one, Digest(Run("three", spec, {.ps = 3})));
  EXPECT_NE(one, Digest(Run("seed", Job({"train.clip.norm=0.05", "seed=2"}), {.ps = 1})));
}

TEST_F(TrainingTest, SyncGivesTheSameBitsWithRowsAndGradientsAsBfloat16OnTheWire) {
  const v1::JobSpec spec = Job({"tables.embedding.wire_type=bfloat16", "train.epochs=1"});
  const std::string one = Digest(Run("one", spec, {.ps = 1}));
  EXPECT_EQ(one, Digest(Run("three", spec, {.ps = 3})));
  EXPECT_NE(one, Digest(Run("wide", Job({"train.epochs=1"}), {.ps = 1})));
}

TEST_F(TrainingTest, SyncGivesTheSameBitsOnThreeWorkersEachTime) {
  const v1::JobSpec spec = Job({"train.epochs=1", "train.batch_size=250"});
  EXPECT_EQ(Digest(Run("first", spec, {.ps = 1, .workers = 3})),
            Digest(Run("second", spec, {.ps = 2, .workers = 3})));
}

TEST_F(TrainingTest, SyncGivesTheSameBitsHoweverOftenItIsCheckpointed) {
  const v1::JobSpec rarely = Job({"consistency.sparse=sync", "consistency.dense=sync"});
  const v1::JobSpec often = Job({"consistency.sparse=sync", "consistency.dense=sync",
                                 "checkpoint.every_steps=2", "checkpoint.keep=2"});
  const v1::JobStatus status = Run("often", often, {.ps = 2});
  EXPECT_EQ(Digest(Run("rarely", rarely, {.ps = 2})), Digest(status));
  // One that was cut on the way: the bits of a job that ended there.
  const std::string last = status.checkpoint();
  const std::string before = absl::StrCat(last.substr(0, last.rfind("step-")),
                                          absl::StrFormat("step-%012d", status.step() - 2));
  const auto digest = DigestCheckpoint(PosixFileSystem(), before);
  ASSERT_TRUE(digest.ok()) << digest.status();
  v1::JobSpec shorter = rarely;
  shorter.mutable_train()->set_steps(status.step() - 2);
  EXPECT_EQ(*digest, Digest(Run("shorter", shorter, {.ps = 1})));
}

TEST_F(TrainingTest, EveryMixOfModesLearns) {
  struct Modes {
    std::string sparse, dense, besides;
  };
  const std::string none = "consistency.max_lead=0", one = "consistency.max_lead=1";
  for (const auto& [sparse, dense, besides] : std::vector<Modes>{{"sync", "sync", none},
                                                                 {"sync", "async", none},
                                                                 {"async", "sync", none},
                                                                 {"async", "async", none},
                                                                 {"bounded", "bounded", one},
                                                                 {"async", "bounded", none}}) {
    const std::string modes = absl::StrCat(sparse, "-", dense);
    SCOPED_TRACE(modes);
    const v1::JobStatus status =
        Run(modes,
            Job({absl::StrCat("consistency.sparse=", sparse),
                 absl::StrCat("consistency.dense=", dense), besides, "train.epochs=4"}),
            {.workers = 3});
    ASSERT_EQ(status.state(), v1::SUCCEEDED) << status.message();
    EXPECT_GT(status.final_metrics().at("test").metrics().at("auc"), 0.65);
    EXPECT_EQ(status.final_metrics().at("validation").samples(), 3000u);
    EXPECT_EQ(status.samples(), 4u * 12000u);
  }
}

TEST_F(TrainingTest, LinearAndDeepModelsOfTheZooTrain) {
  for (const char* model : {"lr", "fm", "dnn", "wide_deep", "deepfm"}) {
    SCOPED_TRACE(model);
    const bool deep = std::string(model) != "lr" && std::string(model) != "fm";
    std::vector<std::string> overrides = {std::string("model.name=") + model,
                                          "tables.linear.optimizer.learning_rate=0.02",
                                          "tables.embedding.optimizer.learning_rate=0.02"};
    overrides.push_back(deep ? "model.options={hidden: [16], batch_norm: true, dropout: 0.1}"
                             : "model.options=");
    const v1::JobStatus status = Run(model, Job(overrides), {});
    ASSERT_EQ(status.state(), v1::SUCCEEDED) << status.message();
    EXPECT_GT(status.final_metrics().at("test").metrics().at("auc"), 0.65);
  }
}

TEST_F(TrainingTest, AResumedJobEndsWithTheBitsOfOneThatWentThrough) {
  const std::string through = Digest(Run("through", Job({"checkpoint.keep_best=false"}), {}));
  const v1::JobStatus half = Run("half", Job({"checkpoint.keep_best=false", "train.epochs=1"}), {});
  ASSERT_EQ(half.state(), v1::SUCCEEDED) << half.message();
  const std::filesystem::path folder = half.checkpoint();
  const std::string root = folder.parent_path().parent_path();
  const std::string relative = folder.lexically_relative(root);
  EXPECT_EQ(
      Digest(Run("resumed", Job({"checkpoint.keep_best=false", "start.checkpoint=" + relative}),
                 {.ps = 3, .checkpoint_root = root})),
      through);
}

TEST_F(TrainingTest, PredictsEveryRecordInOrderAndAsWellAsTheTestSaid) {
  const v1::JobStatus trained = Run("train", Job({}), {});
  ASSERT_EQ(trained.state(), v1::SUCCEEDED) << trained.message();
  const std::filesystem::path folder = trained.checkpoint();
  const std::string root = folder.parent_path().parent_path();
  const v1::JobStatus predicted =
      Run("predict", Job({"start.checkpoint=" + folder.lexically_relative(root).string()}),
          {.ps = 1, .workers = 1, .checkpoint_root = root}, v1::PREDICT, "out/predictions.csv");
  ASSERT_EQ(predicted.state(), v1::SUCCEEDED) << predicted.message();

  std::ifstream file(PathOf("predict") + "/out/predictions.csv");
  std::ifstream truth(*data_folder_ + "/test.csv");
  std::string line, expected;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, "label,prediction");
  std::getline(truth, expected);
  std::vector<float> logits, labels;
  while (std::getline(file, line)) {
    ASSERT_TRUE(std::getline(truth, expected));
    EXPECT_EQ(line[0], expected[0]) << "label of record " << labels.size();
    labels.push_back(line[0] == '1' ? 1.0f : 0.0f);
    const double p = std::stod(line.substr(2));
    logits.push_back(static_cast<float>(std::log(p / (1 - p))));
  }
  EXPECT_EQ(labels.size(), 3000u);
  EXPECT_NEAR(math::ComputeBinaryMetrics(logits, labels).auc,
              trained.final_metrics().at("test").metrics().at("auc"), 1e-4);
}

// The generated data with one line replaced.
class BadDataTest : public TrainingTest {
 protected:
  std::string DataWith(const std::string& bad_line) {
    const std::string folder = RunFolder("data");
    std::filesystem::create_directories(folder);
    for (const char* name : {"train.csv", "validation.csv", "test.csv"}) {
      std::filesystem::copy_file(*data_folder_ + "/" + name, folder + "/" + name);
    }
    std::ifstream in(*data_folder_ + "/train.csv");
    std::ofstream out(folder + "/train.csv");
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      out << (number == 77 ? bad_line : line) << "\n";
    }
    return folder;
  }
};

TEST_F(BadDataTest, ABadRecordFailsTheJobAndIsNamedByFileAndLine) {
  for (const char* bad :
       {"maybe,0,0,0,0,1,1,1,1,1,1,1,1", "1,nan,0,0,0,1,1,1,1,1,1,1,1",
        "1,0,0,0,0,-5,1,1,1,1,1,1,1", "1,0,0", "1,0,0,0,0,9223372036854775808,1,1,1,1,1,1,1"}) {
    SCOPED_TRACE(bad);
    const v1::JobStatus status = Run("run", Job({}), {.data_root = DataWith(bad)});
    EXPECT_EQ(status.state(), v1::FAILED);
    EXPECT_THAT(status.message(), HasSubstr("train.csv:77"));
  }
}

TEST_F(BadDataTest, ABadRecordWithinTheBudgetIsCountedAndLeftOut) {
  const v1::JobStatus status = Run("run", Job({"data.max_bad_records=1", "train.epochs=3"}),
                                   {.data_root = DataWith("maybe,0,0,0,0,1,1,1,1,1,1,1,1")});
  ASSERT_EQ(status.state(), v1::SUCCEEDED) << status.message();
  EXPECT_EQ(status.bad_records(), 1u);
  EXPECT_EQ(status.samples(), 3u * 11999u);
}

TEST_F(BadDataTest, AMissingFileFailsTheJobAndIsNamed) {
  const v1::JobStatus status = Run("run", Job({"data.train.files=clicks.csv"}), {});
  EXPECT_EQ(status.state(), v1::FAILED);
  EXPECT_THAT(status.message(), HasSubstr("clicks.csv"));
}

}  // namespace
}  // namespace tessera
