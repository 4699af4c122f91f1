#include "worker/prediction_file.h"

#include <sys/stat.h>
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

constexpr PredictionFile::Unit kUnit = {.generation = 2, .number = 7};
constexpr PredictionFile::Unit kLaterUnit = {.generation = 2, .number = 12};
constexpr char kCluster[] = "00c1a55e00c1a55e";

// Of job 30, where 28 is the first that has not ended.
PredictionFile::Writer By(PredictionFile::Unit unit) {
  return {.cluster = kCluster, .job = 30, .ended_below = 28, .unit = unit};
}

std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

std::string Written(const std::vector<JobTask>& tasks, const std::vector<float>& outputs,
                    const std::vector<float>& labels, const std::vector<uint32_t>& bad = {}) {
  const std::string folder =
      absl::StrCat(::testing::TempDir(), "/tessera-prediction-test-", ::getpid());
  const std::string path = folder + "/predictions.csv";
  auto file = PredictionFile::Create(PosixFileSystem(), path, By(kUnit),
                                     {.tasks = tasks, .label_columns = 1});
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return "";
  EXPECT_TRUE((*file)->Append(outputs, labels, bad).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE((*file)->Finish().ok());
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove_all(folder);
  return text.str();
}

TEST(PredictionFile, LeavesNothingOfWritersThatWereLostAndNothingOfOthersGoes) {
  const std::string folder =
      absl::StrCat(::testing::TempDir(), "/tessera-prediction-test-left-", ::getpid());
  std::filesystem::remove_all(folder);
  const std::string path = folder + "/out";
  const ScoreLayout layout = {.tasks = {JobTask()}, .label_columns = 1};
  auto lost = PredictionFile::Create(PosixFileSystem(), path, By(kUnit), layout);
  auto taken_over = PredictionFile::Create(PosixFileSystem(), path, By(kLaterUnit), layout);
  ASSERT_TRUE(lost.ok() && taken_over.ok());
  const std::set<std::string> of_others = {
      "out.unit-00c1a55e00c1a55e-28-1-1.tmp",      // a job that has not ended
      "out.unit-00c1a55e00c1a55e-31-1-1.tmp",      // one that may have come later
      "out.csv.unit-00c1a55e00c1a55e-30-2-3.tmp",  // another file of the same job
      "out.csv.unit-0ddba110ddba1100-3-1-1.tmp",   // another cluster's, of another file
      "out.unit-0ddba110ddba1100-3-3-1.tmp",       // and of this one, later
      "out.unit-2-3.tmp",
      "out.unit-00c1a55e00c1a55e-3-1-1b.tmp",
      "out.unit--3-1.tmp",
      "notes.tmp"};
  const std::set<std::string> left = {
      "out.unit-00c1a55e00c1a55e-30-1-40.tmp",               // a generation before
      "out.unit-00c1a55e00c1a55e-27-5-90.tmp",               // of a job that has ended
      "out-00003-of-00004.unit-00c1a55e00c1a55e-9-1-4.tmp",  // of another, in several parts
      "yesterday.unit-00c1a55e00c1a55e-12-1-4.tmp",          // of another's other file
      "out.unit-0ddba110ddba1100-1-1-2.tmp"};                // of a command that was killed
  for (const std::set<std::string>& names : {of_others, left}) {
    for (const std::string& name : names) std::ofstream(folder + "/" + name) << "something";
  }
  ASSERT_TRUE((*lost)->Append(std::vector<float>{1}, std::vector<float>{1}, {}).ok());
  ASSERT_TRUE((*taken_over)->Append(std::vector<float>{0}, std::vector<float>{0}, {}).ok());
  ASSERT_TRUE((*taken_over)->Finish().ok());
  std::set<std::string> expected = of_others;
  expected.insert("out");
  EXPECT_EQ(NamesIn(folder), expected);
  EXPECT_FALSE((*lost)->Finish().ok()) << "it wrote what is no more";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "label,prediction\n0,0.5\n");
  std::filesystem::remove_all(folder);
}

TEST(PredictionFile, WhoHasLostAUnitTakesNothingFromTheOneThatHasItNow) {
  const std::string folder =
      absl::StrCat(::testing::TempDir(), "/tessera-prediction-test-late-", ::getpid());
  std::filesystem::remove_all(folder);
  const std::string path = folder + "/out";
  const ScoreLayout layout = {.tasks = {JobTask()}, .label_columns = 1};
  constexpr PredictionFile::Unit kNextGeneration = {.generation = 3, .number = 1};
  for (const PredictionFile::Unit unit : {kLaterUnit, kNextGeneration}) {
    const auto lost = PredictionFile::Create(PosixFileSystem(), path, By(kUnit), layout);
    const auto taken_over = PredictionFile::Create(PosixFileSystem(), path, By(unit), layout);
    ASSERT_TRUE(lost.ok() && taken_over.ok());
    EXPECT_TRUE((*lost)->Finish().ok());
    EXPECT_TRUE((*taken_over)->Finish().ok());
  }
  std::filesystem::remove_all(folder);
}

TEST(PredictionFile, GoesBehindASymbolicLinkAndNotToAPipe) {
  const std::string folder =
      absl::StrCat(::testing::TempDir(), "/tessera-prediction-test-link-", ::getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder + "/target");
  std::filesystem::create_symlink("target/real.csv", folder + "/link.csv");
  const ScoreLayout layout = {.tasks = {JobTask()}, .label_columns = 1};
  const auto file =
      PredictionFile::Create(PosixFileSystem(), folder + "/link.csv", By(kUnit), layout);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Finish().ok());
  EXPECT_TRUE(std::filesystem::is_symlink(folder + "/link.csv"));
  EXPECT_TRUE(std::filesystem::is_regular_file(folder + "/target/real.csv"));
  ASSERT_EQ(::mkfifo((folder + "/pipe").c_str(), 0600), 0);
  const auto pipe = PredictionFile::Create(PosixFileSystem(), folder + "/pipe", By(kUnit), layout);
  EXPECT_EQ(pipe.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pipe.status().message(), folder + "/pipe: is a pipe; predictions go to a regular file");
  std::filesystem::remove_all(folder);
}

JobTask WithLoss(v1::Loss loss, const std::string& name = "") {
  JobTask task;
  task.loss = loss;
  task.name = name;
  return task;
}

// As --predict out.csv with a worker's --output-root . does.
TEST(PredictionFile, GoesIntoTheFolderThatTheProcessIsIn) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::string folder =
      absl::StrCat(::testing::TempDir(), "/tessera-prediction-here-", ::getpid());
  std::filesystem::create_directory(folder);
  std::filesystem::current_path(folder);
  auto file = PredictionFile::Create(PosixFileSystem(), "out.csv", By(kUnit),
                                     {.tasks = {JobTask()}, .label_columns = 1});
  ASSERT_TRUE(file.ok()) << file.status();
  const absl::Status finished = (*file)->Finish();
  EXPECT_TRUE(finished.ok()) << finished;
  EXPECT_EQ(NamesIn("."), std::set<std::string>{"out.csv"});
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
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

TEST(PredictionFile, GivesOfEachLossWhatItsOutputsAre) {
  for (const LossInfo& info : AllLosses()) {
    if (info.outputs == math::Outputs::kClasses) {
      EXPECT_EQ(Written({WithLoss(info.loss)}, {2, 0, -3}, {1}),
                "label,prediction,probability\n1,2,1\n");
    } else {
      EXPECT_EQ(Written({WithLoss(info.loss)}, {0}, {1}), info.outputs == math::Outputs::kLogits
                                                              ? "label,prediction\n1,0.5\n"
                                                              : "label,prediction\n1,0\n")
          << LossName(info.loss);
    }
  }
}

TEST(PredictionFile, ALabelThatIsNotKnownIsEmpty) {
  EXPECT_EQ(Written({WithLoss(v1::BINARY_CROSS_ENTROPY)}, {0, 0},
                    {std::numeric_limits<float>::quiet_NaN(), 1}),
            "label,prediction\n,0.5\n1,0.5\n");
}

TEST(PredictionFile, ABadRecordHasALineWithoutValues) {
  EXPECT_EQ(Written({WithLoss(v1::BINARY_CROSS_ENTROPY)}, {0, 200}, {1, 0}, {0, 0, 1, 2, 2}),
            "label,prediction\n,\n,\n1,0.5\n,\n0,1\n,\n,\n");
  EXPECT_EQ(Written({WithLoss(v1::HUBER, "click"), WithLoss(v1::SOFTMAX_CROSS_ENTROPY, "kind")}, {},
                    {}, {0}),
            "label/click,prediction/click,label/kind,prediction/kind,probability/kind\n,,,,\n");
}

TEST(PredictionFile, HasColumnsForEveryTask) {
  EXPECT_EQ(Written({WithLoss(v1::BINARY_CROSS_ENTROPY, "click"),
                     WithLoss(v1::MEAN_SQUARED_ERROR, "price")},
                    {0, 7.5f, 200, -1}, {1, 0}),
            "label/click,prediction/click,label/price,prediction/price\n1,0.5,1,7.5\n0,1,0,-1\n");
}

}  // namespace
}  // namespace tessera::worker
