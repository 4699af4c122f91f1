#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/checkpoint/digest.h"
#include "common/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/commands_testing.h"

namespace tessera::local {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

constexpr char kMetrics[] = "evaluation.metrics=[auc, logloss, calibration, gauc]";

class EvaluateCommandTest : public LocalCommandsTest {
 protected:
  // A job of two epochs and two workers, measured by more than one kind of metric.
  void Train(std::vector<std::string> more = {}) {
    std::vector<std::string> flags = {"--output", "json",  "--set",
                                      kMetrics,   "--set", "evaluation.group_by=c0"};
    flags.insert(flags.end(), more.begin(), more.end());
    ASSERT_EQ(RunLocal("run", flags), 0) << err_;
    trained_ = LastObject();
    checkpoint_ = trained_["checkpoint"];
  }
  int Evaluate(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"evaluate",  job_(),   "--checkpoint",
                                          checkpoint_, "--data", data_()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }
  std::string Lines(const std::string& name) const {
    std::ifstream in(fs::path(data_()) / name);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  void Write(const std::string& name, const std::string& lines) const {
    std::ofstream(fs::path(data_()) / name) << lines;
  }

  nlohmann::json trained_;
  std::string checkpoint_;
};

TEST_F(EvaluateCommandTest, MeasuresWhatTheJobMeasuredToTheLastBit) {
  // Two workers train and measure, in batches that do not end where their parts do, with bad
  // records; one worker measures again.
  std::string lines = Lines("validation.csv");
  int record = 0;
  for (size_t at = lines.find('\n'); at + 1 < lines.size(); at = lines.find('\n', at + 1)) {
    if (++record % 70 == 0) lines[at + 1] = 'x';
  }
  Write("validation.csv", lines);
  std::vector<std::string> flags = {
      "--set", "model.ema_decay=0.9", "--set", "checkpoint.keep_best=false",
      "--set", "train.batch_size=96", "--set", "data.max_bad_records=9"};
  Train(flags);
  const auto digest = [this] { return *DigestCheckpoint(PosixFileSystem(), checkpoint_); };
  const std::string before = digest();
  flags.insert(flags.end(), {"--json", "--set", kMetrics, "--set", "evaluation.group_by=c0"});
  ASSERT_EQ(Evaluate(flags), 0) << err_;
  const nlohmann::json found = LastObject();
  ASSERT_EQ(found["metrics"]["test"].size(), 4u);
  EXPECT_EQ(found["metrics"], trained_["metrics"]);
  EXPECT_EQ(found["evaluations"][0]["split"], "validation");
  EXPECT_EQ(found["evaluations"][1]["split"], "test");
  EXPECT_EQ(found["evaluations"][1]["samples"], 500);
  EXPECT_EQ(found["steps"], trained_["steps"]);
  EXPECT_EQ(found["checkpoint"], checkpoint_);
  EXPECT_EQ(found["bad_records"], 7);
  EXPECT_EQ(digest(), before);
  // What was measured within the job's run, from its history.
  std::ifstream figures(fs::path(trained_["curves"].get<std::string>()).replace_extension("json"));
  const nlohmann::json last = nlohmann::json::parse(figures)["evaluations"].back();
  EXPECT_EQ(found["evaluations"][0]["metrics"], last["metrics"]);
  EXPECT_EQ(found["evaluations"][0]["epoch"], last["epoch"]);
}

TEST_F(EvaluateCommandTest, MeasuresTheFilesAndMetricsThatAreNamedInATable) {
  Train();
  ASSERT_EQ(Evaluate({"--metrics", "pr_auc,rmse", "--metrics", "gauc", "--set",
                      "evaluation.group_by=c0"}),
            0)
      << err_;
  EXPECT_THAT(out_, testing::ContainsRegex(checkpoint_ + ": step 16\n"
                                                         " +validation +test\n"
                                                         "samples +500 +500\n"
                                                         "gauc +0\\.[0-9]{6} +0\\.[0-9]{6}\n"
                                                         "pr_auc +0\\.[0-9]{6} +0\\.[0-9]{6}\n"
                                                         "rmse +0\\.[0-9]{6} +0\\.[0-9]{6}\n"));
  // The job's own metrics again, of the test split's records in two files.
  const std::string all = Lines("test.csv");
  const std::string header = all.substr(0, all.find('\n') + 1);
  const size_t middle = all.find('\n', all.size() / 2) + 1;
  Write("part-1.csv", all.substr(0, middle));
  Write("part-2.csv", header + all.substr(middle));
  ASSERT_EQ(Evaluate({"--json", "--files", "part-*.csv"}), 0) << err_;
  const nlohmann::json found = LastObject();
  EXPECT_EQ(found["metrics"].size(), 1u);
  EXPECT_EQ(found["evaluations"][0]["samples"], 500);
  EXPECT_EQ(found["metrics"]["test"]["auc"], trained_["metrics"]["test"]["auc"]);
  EXPECT_EQ(found["metrics"]["test"]["logloss"], trained_["metrics"]["test"]["logloss"]);
  ASSERT_EQ(Evaluate({"--json", "--split", "validation"}), 0) << err_;
  EXPECT_EQ(LastObject()["metrics"].size(), 1u);
  EXPECT_EQ(LastObject()["metrics"]["validation"]["auc"], trained_["metrics"]["validation"]["auc"]);
}

TEST_F(EvaluateCommandTest, MetricsWithoutGroupsAreOfJobsWhoseOthersHaveThem) {
  Train();
  ASSERT_EQ(Evaluate({"--json", "--metrics", "auc", "--set", "evaluation.group_by=c0"}), 0) << err_;
  const nlohmann::json found = LastObject()["metrics"]["test"];
  EXPECT_EQ(found.size(), 1u);
  EXPECT_EQ(found["auc"], trained_["metrics"]["test"]["auc"]);
}

TEST_F(EvaluateCommandTest, WhatIsNotDefinedIsNotANumber) {
  Train();
  std::string ones, line;
  std::ifstream in(fs::path(data_()) / "test.csv");
  for (bool header = true; std::getline(in, line); header = false) {
    if (header || line[0] == '1') ones += line + "\n";
  }
  Write("ones.csv", ones);
  ASSERT_EQ(Evaluate({"--files", "ones.csv"}), 0) << err_;
  EXPECT_THAT(out_, testing::ContainsRegex("auc +undefined\n"));
  ASSERT_EQ(Evaluate({"--files", "ones.csv", "--json"}), 0) << err_;
  EXPECT_TRUE(LastObject()["metrics"]["test"]["auc"].is_null());
  EXPECT_TRUE(LastObject()["metrics"]["test"]["logloss"].is_number());
}

TEST_F(EvaluateCommandTest, BadInputIsRefusedAndNamed) {
  Train();
  const auto refuses = [this](const std::vector<std::string>& arguments, int code,
                              const std::string& message) {
    EXPECT_EQ(Evaluate(arguments), code) << message;
    EXPECT_THAT(out_ + err_, HasSubstr(message));
    EXPECT_THAT(out_, Not(HasSubstr("samples")));
  };
  const std::string all = Lines("test.csv");
  std::string unlabelled, without, line;
  std::ifstream in(fs::path(data_()) / "test.csv");
  while (std::getline(in, line)) {
    unlabelled += line.substr(line.find(',') + 1) + "\n";
    without += line.substr(0, line.rfind(',')) + "\n";
  }
  Write("unlabelled.csv", unlabelled);
  Write("without.csv", without);
  Write("empty.csv", "");
  Write("header.csv", all.substr(0, all.find('\n') + 1));
  const size_t label = all.find('\n') + 1;
  Write("hole.csv", all.substr(0, label) + all.substr(label + 1));
  refuses({"--files", "unlabelled.csv"}, 1,
          "unlabelled.csv: line 1: the header has no column \"label\"");
  refuses({"--files", "without.csv"}, 1, "without.csv: line 1: the header has no column \"c7\"");
  refuses({"--files", "empty.csv"}, 1, "empty.csv: is empty; expected records");
  refuses({"--files", "header.csv"}, 1, "header.csv: has a header and no records");
  refuses({"--files", "hole.csv"}, 1, "hole.csv:2: column \"label\"");
  refuses({"--files", "none.csv"}, 1, "no file \"none.csv\" below the data root");
  refuses({"--set", "model.name=fm", "--set", "model.options="}, 1,
          "model.name: fm in this job and deepfm");
  refuses({"--metrics", "acu"}, 2, "'acu'");
  refuses({"--metrics", "gauc"}, 2, "evaluation.group_by");
  refuses({"--split", "test", "--set", "data.test.files="}, 2,
          "--split test: data.test.files is empty");
  refuses({"--split", "train"}, 2, "--split");
  checkpoint_ = data_();
  refuses({}, 3, data_());
}

}  // namespace
}  // namespace tessera::local
