#include "worker/prediction_file.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

std::string Written(const std::vector<JobTask>& tasks, const std::vector<float>& outputs,
                    const std::vector<float>& labels) {
  const std::string folder =
      absl::StrCat(::testing::TempDir(), "/tessera-prediction-test-", ::getpid());
  const std::string path = folder + "/predictions.csv";
  auto file = PredictionFile::Create(PosixFileSystem(), path, /*unit=*/7,
                                     {.tasks = tasks, .label_columns = 1});
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return "";
  EXPECT_TRUE((*file)->Append(outputs, labels).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE((*file)->Finish().ok());
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove_all(folder);
  return text.str();
}

TEST(PredictionFile, LeavesNothingOfWhoWroteItBeforeAndNothingOfOthersGoes) {
  const std::string folder =
      absl::StrCat(::testing::TempDir(), "/tessera-prediction-test-left-", ::getpid());
  std::filesystem::remove_all(folder);
  const std::string path = folder + "/out";
  const ScoreLayout layout = {.tasks = {JobTask()}, .label_columns = 1};
  auto lost = PredictionFile::Create(PosixFileSystem(), path, /*unit=*/7, layout);
  auto taken_over = PredictionFile::Create(PosixFileSystem(), path, /*unit=*/12, layout);
  ASSERT_TRUE(lost.ok() && taken_over.ok());
  std::ofstream(folder + "/out.csv.unit-3.tmp") << "of another file";
  std::ofstream(folder + "/out.unit-3b.tmp") << "of somebody";
  ASSERT_TRUE((*lost)->Append(std::vector<float>{1}, std::vector<float>{1}).ok());
  ASSERT_TRUE((*taken_over)->Append(std::vector<float>{0}, std::vector<float>{0}).ok());
  ASSERT_TRUE((*taken_over)->Finish().ok());
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  EXPECT_EQ(names, (std::set<std::string>{"out", "out.csv.unit-3.tmp", "out.unit-3b.tmp"}));
  EXPECT_FALSE((*lost)->Finish().ok()) << "it wrote what is no more";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "label,prediction\n0,0.5\n");
  std::filesystem::remove_all(folder);
}

JobTask WithLoss(v1::Loss loss, const std::string& name = "") {
  JobTask task;
  task.loss = loss;
  task.name = name;
  return task;
}

TEST(PredictionFile, GivesProbabilitiesOfLogits) {
  // log(3): odds of 3 to 1.
  EXPECT_EQ(Written({WithLoss(v1::BINARY_CROSS_ENTROPY)}, {0, 200, -200}, {1, 1, 0}),
            absl::StrCat("label,prediction\n1,0.5\n1,1\n0,1.38389653e-87\n"));
}

TEST(PredictionFile, GivesTheOutputsOfARegressionAsTheyAre) {
  EXPECT_EQ(Written({WithLoss(v1::HUBER)}, {0.5f, -1234567.25f}, {3.25f, 1234567.5f}),
            "label,prediction\n3.25,0.5\n1234567.5,-1234567.25\n");
}

TEST(PredictionFile, GivesTheLikeliestOfSeveralClassesAndItsProbability) {
  // Class, its log probability, that of the label.
  EXPECT_EQ(Written({WithLoss(v1::SOFTMAX_CROSS_ENTROPY)}, {2, std::log(0.75f), -3}, {1}),
            "label,prediction,probability\n1,2,0.75\n");
}

TEST(PredictionFile, HasColumnsForEveryTask) {
  EXPECT_EQ(Written({WithLoss(v1::BINARY_CROSS_ENTROPY, "click"),
                     WithLoss(v1::MEAN_SQUARED_ERROR, "price")},
                    {0, 7.5f, 200, -1}, {1, 0}),
            "label/click,prediction/click,label/price,prediction/price\n1,0.5,1,7.5\n0,1,0,-1\n");
}

}  // namespace
}  // namespace tessera::worker
