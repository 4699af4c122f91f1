#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "client/commands/tessera_app.h"
#include "client/job_client.h"
#include "common/checkpoint/digest.h"
#include "common/checkpoint/manifest.h"
#include "common/config/yaml_job.h"
#include "common/failpoint.h"
#include "common/file_system.h"
#include "cuda/devices.h"
#include "cuda/stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "local/cluster.h"
#include "local/commands/local_commands.h"
#include "local/commands/shown_run.h"
#include "local/commands/work_folder.h"
#include "tests/local/commands_testing.h"

// The commands as a user types them, on clusters in this process.
namespace tessera::local {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

// Pairs of a click and no click that the predictions order rightly; equal ones count half.
double Auc(const std::vector<std::pair<double, double>>& label_and_prediction) {
  double right = 0, pairs = 0;
  for (const auto& [label, prediction] : label_and_prediction) {
    if (label != 1) continue;
    for (const auto& [other_label, other] : label_and_prediction) {
      if (other_label != 0) continue;
      ++pairs;
      right += prediction > other ? 1 : prediction == other ? 0.5 : 0;
    }
  }
  return right / pairs;
}

TEST_F(LocalCommandsTest, LocalEndsWithOneObjectForScriptsAndPredictAgreesWithIt) {
  ASSERT_EQ(RunLocal("run", {"--output", "json", "--truth", data_() + "/truth.json"}), 0) << err_;
  const nlohmann::json result = LastObject();
  EXPECT_EQ(result["state"], "Succeeded");
  EXPECT_EQ(result["steps"], 16);
  EXPECT_EQ(result["epochs"], 2);
  EXPECT_GT(result["samples_per_second"], 0);
  EXPECT_GT(result["seconds_to_first_step"], 0);
  EXPECT_TRUE(result["metrics"]["validation"]["logloss"].is_number());
  EXPECT_GT(result["best_possible"]["test"]["auc"], result["metrics"]["test"]["auc"]);
  const std::string checkpoint = result["checkpoint"];
  EXPECT_TRUE(fs::exists(fs::path(checkpoint) / "MANIFEST.json")) << checkpoint;
  // What it leaves to look at, and to draw beside other runs.
  const std::string curves = result["curves"];
  std::ifstream page(curves);
  EXPECT_THAT(std::string((std::istreambuf_iterator<char>(page)), {}),
              HasSubstr("loss in training"));
  std::ifstream figures(fs::path(curves).replace_extension("json"));
  const nlohmann::json job = nlohmann::json::parse(figures);
  uint64_t samples = 0;
  for (const nlohmann::json& point : job["history"]) samples += point["samples"].get<uint64_t>();
  EXPECT_EQ(samples, job["samples"]);
  EXPECT_EQ(job["history"].back()["step"], 16);
  EXPECT_EQ(
      Run({"plot", fs::path(curves).replace_extension("json"), "--output", folder_ / "page.html"}),
      0)
      << err_;

  const std::string file = folder_ / "predictions.csv";
  ASSERT_EQ(Run({"predict", job_(), "--checkpoint", checkpoint, "--data", data_(), "--output", file,
                 "--json"}),
            0)
      << err_;
  EXPECT_EQ(LastObject()["output"], file);
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "label,prediction");
  std::vector<std::pair<double, double>> predictions;
  while (std::getline(in, line)) {
    const size_t comma = line.find(',');
    ASSERT_NE(comma, std::string::npos) << line;
    predictions.emplace_back(std::stod(line.substr(0, comma)), std::stod(line.substr(comma + 1)));
  }
  EXPECT_EQ(predictions.size(), 500u);
  EXPECT_NEAR(Auc(predictions), result["metrics"]["test"]["auc"], 1e-4);

  // ".." leaves the folder that a link names, not the link's own.
  fs::create_directories(folder_ / "real/deep");
  fs::create_directory_symlink(folder_ / "real/deep", folder_ / "link");
  ASSERT_EQ(Run({"predict", job_(), "--checkpoint", checkpoint, "--data", data_(), "--output",
                 folder_ / "link/../behind.csv"}),
            0)
      << err_;
  EXPECT_TRUE(fs::exists(folder_ / "real/behind.csv"));
  ASSERT_EQ(Run({"export", checkpoint, "--output", folder_ / "link/../behind.onnx"}), 0) << err_;
  EXPECT_TRUE(fs::exists(folder_ / "real/behind.onnx"));

  // One that fails leaves what is there.
  std::ifstream good(fs::path(data_()) / "test.csv");
  std::ofstream bad(fs::path(data_()) / "bad.csv");
  for (int i = 0; i < 3; ++i) {
    std::getline(good, line);
    bad << line << "\n";
  }
  bad << "nothing,of,this\n";
  bad.close();
  EXPECT_EQ(Run({"predict", job_(), "--checkpoint", checkpoint, "--data", data_(), "--output", file,
                 "--set", "data.test.files=bad.csv"}),
            1);
  EXPECT_GT(fs::file_size(file), 500u);
  EXPECT_THAT(out_, AllOf(HasSubstr("Failed (DataError)"), testing::Not(HasSubstr("output"))));
  EXPECT_EQ(Run({"predict", job_(), "--checkpoint", checkpoint, "--output", ""}), 2);

  // The same without the labels, as data is that is to be predicted.
  std::ifstream labelled(fs::path(data_()) / "test.csv");
  std::ofstream unlabelled(fs::path(data_()) / "new.csv");
  while (std::getline(labelled, line)) unlabelled << line.substr(line.find(',') + 1) << "\n";
  unlabelled.close();
  const std::string unknown = folder_ / "unknown.csv";
  ASSERT_EQ(Run({"predict", job_(), "--checkpoint", checkpoint, "--data", data_(), "--output",
                 unknown, "--set", "data.test.files=new.csv"}),
            0)
      << err_;
  std::ifstream known(file), predicted(unknown);
  std::string other;
  std::getline(known, line);
  std::getline(predicted, other);
  EXPECT_EQ(other, "label,prediction");
  while (std::getline(known, line)) {
    ASSERT_TRUE(std::getline(predicted, other));
    EXPECT_EQ(other, line.substr(line.find(',')));
  }
}

// In a build without CUDA kernels are emulated: the whole way of a job's tensors to a card and
// back.
TEST_F(LocalCommandsTest, AJobOnACardLearnsWhatItLearnsOnTheCpu) {
  const auto device = cuda::ListDevices().ok() ? "cuda" : "emulated";
  if (!cuda::ListDevices().ok() && cuda::Stream::Emulated() == nullptr) {
    GTEST_SKIP() << cuda::ListDevices().status();
  }
  ASSERT_EQ(RunLocal("cpu", {"--output", "json", "--device", "cpu"}), 0) << err_;
  const double expected = LastObject()["metrics"]["validation"]["logloss"];
  ASSERT_EQ(RunLocal("card", {"--output", "json", "--device", device}), 0) << err_;
  EXPECT_NEAR(LastObject()["metrics"]["validation"]["logloss"], expected, 1e-3);
}

TEST_F(LocalCommandsTest, ADeviceThatIsNoneIsRefusedWithThoseThatAre) {
  for (const std::string word : {"gpu", "cuda:x", "cuda0"}) {
    EXPECT_EQ(RunLocal("none", {"--device", word}), 2);
    EXPECT_THAT(err_, testing::HasSubstr("auto, cpu, cuda, cuda:N")) << word;
  }
}

TEST_F(LocalCommandsTest, ACardLearnsInEveryPrecision) {
  const auto device = cuda::ListDevices().ok() ? "cuda" : "emulated";
  if (!cuda::ListDevices().ok() && cuda::Stream::Emulated() == nullptr) {
    GTEST_SKIP() << cuda::ListDevices().status();
  }
  std::vector<double> losses;
  for (const std::string precision : {"float32", "tf32", "bfloat16", "float16"}) {
    ASSERT_EQ(RunLocal(precision, {"--output", "json", "--device", device, "--set",
                                   "train.precision=" + precision}),
              0)
        << err_;
    losses.push_back(LastObject()["metrics"]["validation"]["logloss"]);
    EXPECT_NEAR(losses.back(), losses[0], 0.003) << precision;
  }
  if (cuda::ListDevices().ok()) return;
  for (size_t i = 1; i < losses.size(); ++i) EXPECT_NE(losses[i], losses[0]) << "nothing rounds";
}

TEST_F(LocalCommandsTest, ACardThatKeepsRowsLearnsAsWell) {
  const auto device = cuda::ListDevices().ok() ? "cuda" : "emulated";
  if (!cuda::ListDevices().ok() && cuda::Stream::Emulated() == nullptr) {
    GTEST_SKIP() << cuda::ListDevices().status();
  }
  const std::vector<std::string> async = {"--output", "json",  "--device",
                                          device,     "--set", "consistency.sparse=async"};
  ASSERT_EQ(RunLocal("none", async), 0) << err_;
  const double expected = LastObject()["metrics"]["validation"]["logloss"];
  std::vector<std::string> keeping = async;
  keeping.insert(keeping.end(),
                 {"--set", "train.row_cache.bytes=1000000", "--set", "train.row_cache.max_age=4"});
  ASSERT_EQ(RunLocal("kept", keeping), 0) << err_;
  EXPECT_NEAR(LastObject()["metrics"]["validation"]["logloss"], expected, 0.02);
  keeping = async;
  keeping.insert(keeping.end(), {"--set", "train.row_cache.share=0.5"});
  ASSERT_EQ(RunLocal("share", keeping), 0) << err_;
  EXPECT_NEAR(LastObject()["metrics"]["validation"]["logloss"], expected, 0.02);
  // In sync none is, however many are kept.
  ASSERT_EQ(RunLocal("sync", {"--output", "json", "--device", device}), 0) << err_;
  const double sync = LastObject()["metrics"]["validation"]["logloss"];
  ASSERT_EQ(RunLocal("sync-kept", {"--output", "json", "--device", device, "--set",
                                   "train.row_cache.bytes=1000000"}),
            0)
      << err_;
  EXPECT_EQ(LastObject()["metrics"]["validation"]["logloss"], sync);
}

// Of one worker, whose card keeps all rows, each batch finds what those before it have made of
// them: it learns what sync learns, while the ps are told at the end of each unit.
TEST_F(LocalCommandsTest, ACardThatTrainsItsRowsLearnsWhatSyncLearns) {
  const auto device = cuda::ListDevices().ok() ? "cuda" : "emulated";
  if (!cuda::ListDevices().ok() && cuda::Stream::Emulated() == nullptr) {
    GTEST_SKIP() << cuda::ListDevices().status();
  }
  ASSERT_EQ(RunLocal("sync", {"--output", "json", "--device", "cpu"}, "1"), 0) << err_;
  const double expected = LastObject()["metrics"]["validation"]["logloss"];
  std::vector<std::string> trains = {"--output", "json",
                                     "--device", device,
                                     "--set",    "consistency.sparse=async",
                                     "--set",    "train.row_cache.bytes=10000000",
                                     "--set",    "train.row_cache.write_back=true"};
  ASSERT_EQ(RunLocal("trained", trains, "1"), 0) << err_;
  EXPECT_NEAR(LastObject()["metrics"]["validation"]["logloss"], expected, 1e-3);
  trains.insert(trains.end(), {"--set", "consistency.dense=async"});
  ASSERT_EQ(RunLocal("dense", trains, "1"), 0) << err_;
  EXPECT_NEAR(LastObject()["metrics"]["validation"]["logloss"], expected, 1e-3);
  EXPECT_EQ(RunLocal("two", trains), 2);
  EXPECT_NE(err_.find("workers: found 2, expected 1: with train.row_cache.write_back"),
            std::string::npos)
      << err_;
}

TEST_F(LocalCommandsTest, AConnectionThatBreaksUnderScoresCostsNoRestart) {
  ASSERT_TRUE(ArmFailpoints("worker.scores.send=error@1").ok());
  EXPECT_EQ(RunLocal("run", {"--output", "json"}), 0) << err_;
  EXPECT_EQ(LastObject()["restarts"], 0);
  ASSERT_TRUE(ArmFailpoints("").ok());
}

TEST_F(LocalCommandsTest, ACardThatFailsEndsAJobInOneProcessAndSaysSo) {
  const auto device = cuda::ListDevices().ok() ? "cuda" : "emulated";
  if (!cuda::ListDevices().ok() && cuda::Stream::Emulated() == nullptr) {
    GTEST_SKIP() << cuda::ListDevices().status();
  }
  for (const char* failpoint : {"worker.device.work=error@3", "worker.device.open=error"}) {
    ASSERT_TRUE(ArmFailpoints(failpoint).ok());
    EXPECT_NE(RunLocal(failpoint, {"--device", device}), 0);
    EXPECT_THAT(err_, HasSubstr("the device is lost")) << failpoint;
    ASSERT_TRUE(ArmFailpoints("").ok());
  }
}

TEST_F(LocalCommandsTest, DevicesListsTheCardsOrSaysWhyThereIsNone) {
  const int code = Run({"devices"});
  if (cuda::ListDevices().ok()) {
    EXPECT_EQ(code, 0);
    EXPECT_THAT(out_, HasSubstr("cuda:0  "));
  } else {
    EXPECT_NE(code, 0);
    EXPECT_THAT(err_, HasSubstr(std::string(cuda::ListDevices().status().message())));
  }
}

TEST_F(LocalCommandsTest, AJobThatAsksForACardWhereThereIsNoneEndsAndSaysWhy) {
  if (cuda::ListDevices().ok()) GTEST_SKIP() << "there is a card";
  EXPECT_NE(RunLocal("run", {"--set", "train.device=cuda"}), 0);
  EXPECT_THAT(err_, HasSubstr("train.device: cuda"));
}

TEST_F(LocalCommandsTest, APrecisionOfCardsOnTheCpuEndsAJobAndSaysWhy) {
  EXPECT_NE(RunLocal("run", {"--device", "cpu", "--set", "train.precision=float16"}), 0);
  EXPECT_THAT(err_, HasSubstr("train.precision: float16 needs a card"));
}

TEST_F(LocalCommandsTest, WhatIsLearnedDoesNotDependOnTheDataCache) {
  std::vector<nlohmann::json> metrics;
  for (const char* const cache : {"1GiB", "1kb"}) {
    const std::vector<std::string> flags = {"--data-cache", cache, "--output", "json"};
    ASSERT_EQ(RunLocal(cache, flags, "1"), 0) << err_;
    metrics.push_back(LastObject()["metrics"]);
  }
  EXPECT_EQ(metrics[0], metrics[1]);
  EXPECT_EQ(RunLocal("wrong", {"--data-cache", "much"}), 2);
  EXPECT_THAT(err_, HasSubstr("--data-cache"));
}

TEST_F(LocalCommandsTest, LocalShowsProgressAndWhatToDoNext) {
  ASSERT_EQ(RunLocal("run", {"--truth", data_() + "/truth.json"}), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("starting 1 master, 1 ps, 2 workers in this process"));
  EXPECT_THAT(err_, HasSubstr("live: ps-0 worker-0 worker-1"));
  EXPECT_THAT(out_, HasSubstr("the best that any model could reach on this data is 0."));
  EXPECT_THAT(out_, HasSubstr("next:\n  tessera predict "));
}

TEST(ShownRunDeathTest, ProgressThatNobodyReadsAnyMoreDoesNotEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        int ends[2];
        if (pipe(ends) != 0) _exit(1);
        close(ends[0]);
        client::CommandContext context;
        context.err = fdopen(ends[1], "w");
        ShownRun(context).Say("a line of progress");
        _exit(7);
      },
      testing::ExitedWithCode(7), "");
}

TEST_F(LocalCommandsTest, LocalSaysTheWarningsOfCheck) {
  ASSERT_EQ(RunLocal("run", {"--set", "data.columns.c7.pooling=sequence", "--set",
                             "data.columns.c7.max_length=1"}),
            0)
      << err_;
  EXPECT_THAT(err_, HasSubstr("warning: data.columns: column c7 is read by nothing in the model"));
}

TEST_F(LocalCommandsTest, LocalStartsFromAnEarlierRun) {
  ASSERT_EQ(RunLocal("first", {"--output", "json"}), 0) << err_;
  const std::string checkpoint = LastObject()["checkpoint"];
  ASSERT_EQ(
      RunLocal("second", {"--output", "json", "--start", checkpoint, "--set", "train.epochs=3"}), 0)
      << err_;
  EXPECT_THAT(err_, HasSubstr("step 16"));
  EXPECT_EQ(LastObject()["steps"], 24);
  EXPECT_EQ(RunLocal("done", {"--output", "json", "--start", checkpoint}), 1);
  EXPECT_THAT(std::string(LastObject()["message"]),
              HasSubstr("train.epochs: start.checkpoint has 2 of 2 epochs already; raise it, or "
                        "set start.warm"));
  // Its parameters alone: all steps are made anew.
  ASSERT_EQ(
      RunLocal("third", {"--output", "json", "--start", checkpoint, "--set", "start.warm=true",
                         "--set", "model.optimizer.adam=", "--set", "model.optimizer.sgd={}"}),
      0)
      << err_;
  EXPECT_EQ(LastObject()["steps"], 16);
}

TEST_F(LocalCommandsTest, AnUnfinishedJobStartsFromWhatItWasToldAtFirst) {
  const auto train = [this](const std::string& work, std::vector<std::string> more) {
    more.insert(more.end(), {"--output", "json"});
    EXPECT_EQ(RunLocal(work, more, "1"), 0) << err_;
    return LastObject()["checkpoint"].get<std::string>();
  };
  const auto digest = [](const std::string& checkpoint) {
    return DigestCheckpoint(PosixFileSystem(), checkpoint).value();
  };
  const std::string first = train("first", {}), other = train("other", {"--set", "seed=9"});
  const std::string expected =
      digest(train("whole", {"--start", first, "--set", "train.epochs=3"}));
  ASSERT_NE(expected, digest(train("wrong", {"--start", other, "--set", "train.epochs=3"})));

  // What a run leaves that is cut off before its first step: its job waits for a ps more.
  const fs::path root = folder_ / "cut" / "checkpoints";
  ASSERT_TRUE(LinkCheckpoint(first, root).ok());
  {
    ClusterOptions options;
    options.work_folder = folder_ / "cut";
    options.data_root = data_();
    options.checkpoint_root = root;
    const auto cluster = StartInProcessCluster(options);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    client::JobClient::Options client;
    client.master_address = (*cluster)->master_address();
    client.channels = &(*cluster)->channels();
    v1::SubmitRequest request;
    *request.mutable_spec() = LoadJobFile(job_()).value().spec;
    request.mutable_spec()->mutable_train()->set_epochs(3);
    request.mutable_spec()->mutable_start()->set_checkpoint(kLinkedCheckpoint);
    request.set_workers(1);
    request.set_ps(2);
    ASSERT_TRUE(client::JobClient(client).Submit(request).ok());
  }
  EXPECT_EQ(RunLocal("cut", {"--start", other}, "1"), 1);
  EXPECT_THAT(err_, HasSubstr("go on with it (--resume)"));
  EXPECT_EQ(RunLocal("cut", {"--ps", "2", "--resume", "--start", other}, "1"), 2);
  EXPECT_THAT(err_, HasSubstr("--start does not go with --resume"));
  EXPECT_EQ(fs::read_symlink(root / kLinkedCheckpoint), fs::canonical(first));
  // Of a file that takes parameters only, which waits for --start.
  const std::vector<std::string> resume = {"--ps", "2", "--resume", "--set", "start.warm=true"};
  EXPECT_EQ(digest(train("cut", resume)), expected);

  // When it has ended, the next one may start from another.
  train("cut", {"--start", other, "--set", "train.epochs=3"});
  EXPECT_EQ(fs::read_symlink(root / kLinkedCheckpoint), fs::canonical(other));
}

TEST_F(LocalCommandsTest, WhatIsWrongIsFoundBeforeAnythingStarts) {
  EXPECT_EQ(RunLocal("run", {"--set", "train.epoch=2"}), 2);
  EXPECT_THAT(err_, HasSubstr("train.epoch: unknown field; did you mean 'epochs'?"));
  EXPECT_EQ(RunLocal("run", {"--set", "model.options.hiden=[8]"}), 2);
  EXPECT_THAT(err_, HasSubstr("model.options.hiden: "));
  EXPECT_EQ(RunLocal("run", {"--truth", "/no/such"}), 3);
  EXPECT_EQ(RunLocal("run", {"--start", folder_}), 3);
  EXPECT_EQ(RunLocal("none", {"--resume"}), 3);
  EXPECT_THAT(err_, HasSubstr("--work-dir"));
  EXPECT_EQ(Run({"local", job_(), "--data", "/no/such", "--work-dir", folder_ / "run"}), 3);
  EXPECT_THAT(err_, HasSubstr("--data /no/such: no such folder"));
  EXPECT_FALSE(fs::exists(folder_ / "run" / "master"));
}

TEST_F(LocalCommandsTest, AJobThatFailsHasExitCode1AndItsReason) {
  EXPECT_EQ(RunLocal("run", {"--set", "data.train.files=none.csv"}), 1);
  EXPECT_THAT(out_, HasSubstr("Failed (DataError)"));
  EXPECT_THAT(out_, HasSubstr("none.csv"));
}

// Predictions of a model whose labels are any numbers, so that a line's label says which record it
// is of.
class PredictTest : public LocalCommandsTest {
 protected:
  void SetUp() override {
    LocalCommandsTest::SetUp();
    std::ofstream(folder_ / "job.yaml") << R"(
name: rows
seed: 1
data:
  format: csv
  header: true
  max_bad_records: 2
  columns:
    - {name: label, role: label, default_value: "0"}
    - {name: price, role: dense, transform: log1p}
    - {name: user, role: sparse, table: linear}
  train: {files: train.csv}
  test: {files: train.csv}
tables:
  - {name: linear, dim: 1, initializer: {constant: {}}, optimizer: {learning_rate: 0.1, sgd: {}}}
model: {name: lr, loss: mean_squared_error, optimizer: {learning_rate: 0.1, sgd: {}}}
train: {batch_size: 4, epochs: 1}
)";
    Write("train.csv", {"1,0.1,1", "2,0.2,2", "3,0.3,3", "4,0.4,4", "5,0.5,5"});
  }
  void Write(const std::string& name, const std::vector<std::string>& rows) {
    std::ofstream file(fs::path(data_()) / name);
    file << "label,price,user\n";
    for (const std::string& row : rows) file << row << "\n";
  }
  // The folder of its checkpoint.
  std::string Train(const std::vector<std::string>& sets = {}) {
    std::vector<std::string> arguments = {"local",         folder_ / "job.yaml", "--data",
                                          data_(),         "--in-process",       "--work-dir",
                                          folder_ / "run", "--output",           "json"};
    for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
    EXPECT_EQ(Run(arguments), 0) << err_;
    return LastObject()["checkpoint"];
  }
  int Predict(const std::string& checkpoint, const std::vector<std::string>& sets,
              const std::string& form = "--json") {
    std::vector<std::string> arguments = {
        "predict", folder_ / "job.yaml", "--checkpoint",     checkpoint, "--data",
        data_(),   "--output",           folder_ / "out.csv"};
    if (!form.empty()) arguments.push_back(form);
    for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
    return Run(arguments);
  }
  std::vector<std::string> Lines() const {
    std::ifstream file(folder_ / "out.csv");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  // Of the lines: "?" for one without a label, "-" for one without a prediction either.
  std::vector<std::string> Labels() const {
    std::vector<std::string> labels;
    for (const std::string& line : Lines()) {
      const std::string label = line.substr(0, line.find(','));
      labels.push_back(!label.empty() ? label : line == "," ? "-" : "?");
    }
    return labels;
  }
};

TEST_F(PredictTest, ABadRecordHasALineWithoutValuesInItsPlace) {
  const std::string checkpoint = Train();
  Write("first.csv", {"1,x,1", "2,0.2,2", "3,0.3,3", "4,0.4,4", "5,0.5,5", "6,0.6,6"});
  Write("last.csv", {"7,0.7,7", "8,0.8,8", "9,0.9,9", "10,1,-1"});
  ASSERT_EQ(Predict(checkpoint, {"data.test.files=[first.csv, last.csv]"}), 0) << err_;
  EXPECT_EQ(LastObject()["bad_records"], 2);
  EXPECT_THAT(Labels(), ElementsAre("label", "-", "2", "3", "4", "5", "6", "7", "8", "9", "-"));
  const std::vector<std::string> lines = Lines();
  // Between two batches, and where nothing is good.
  Write("between.csv", {"1,0.1,1", "2,0.2,2", "3,0.3,3", "4,0.4,4", "", "nan,1,1", "5,0.5,5"});
  ASSERT_EQ(Predict(checkpoint, {"data.test.files=between.csv"}, ""), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("  left empty  1 bad records\n"));
  EXPECT_THAT(Labels(), ElementsAre("label", "1", "2", "3", "4", "-", "5"));
  EXPECT_EQ(Lines()[2], lines[2]);
  Write("none.csv", {"1", "2"});
  ASSERT_EQ(Predict(checkpoint, {"data.test.files=none.csv"}), 0) << err_;
  EXPECT_THAT(Labels(), ElementsAre("label", "-", "-"));
}

TEST_F(PredictTest, CountsItsOwnBadRecordsAloneAndWritesNothingWhereTheyAreTooMany) {
  Write("bad.csv", {"1,0.1,1", "2,x,2", "3,0.3,3", "4,y,4"});
  const std::string checkpoint = Train({"data.train.files=bad.csv"});
  EXPECT_EQ(LastObject()["bad_records"], 2);
  ASSERT_EQ(Predict(checkpoint, {}), 0) << err_;
  EXPECT_EQ(LastObject()["bad_records"], 0);
  Write("one.csv", {"1,0.1,1", "2,x,2"});
  ASSERT_EQ(Predict(checkpoint, {"data.test.files=one.csv"}), 0) << err_;
  EXPECT_EQ(LastObject()["bad_records"], 1);
  const std::vector<std::string> before = Lines();
  Write("three.csv", {"1,0.1,1", "2,x,2", "x,1,3", "4,1,y", "5,0.5,5"});
  EXPECT_EQ(Predict(checkpoint, {"data.test.files=three.csv"}), 1);
  EXPECT_THAT(std::string(LastObject()["message"]),
              AllOf(HasSubstr("3 bad records, and data.max_bad_records allows 2"),
                    HasSubstr("three.csv:3: ")));
  EXPECT_EQ(Lines(), before);
}

TEST_F(PredictTest, TakesFilesInTheOrderInWhichTheyAreListed) {
  const std::string checkpoint = Train();
  Write("a.csv", {"1,0.1,1", "2,0.2,2"});
  Write("b.csv", {"3,0.3,3"});
  Write("z.csv", {"4,0.4,4"});
  ASSERT_EQ(Predict(checkpoint, {"data.test.files=[z.csv, a.csv]"}), 0) << err_;
  EXPECT_THAT(Labels(), ElementsAre("label", "4", "1", "2"));
  // Once each, and those of one pattern by name.
  ASSERT_EQ(Predict(checkpoint, {"data.test.files=[b.csv, '[a-c].csv', '?.csv']"}), 0) << err_;
  EXPECT_THAT(Labels(), ElementsAre("label", "3", "1", "2", "4"));
}

TEST_F(PredictTest, ALabelThatIsEmptyStaysSoWhateverTrainingPutInItsPlace) {
  Write("some.csv", {",0.1,1", "2,0.2,2"});
  const std::string checkpoint = Train({"data.train.files=some.csv"});
  ASSERT_EQ(Predict(checkpoint, {"data.test.files=some.csv"}), 0) << err_;
  EXPECT_THAT(Labels(), ElementsAre("label", "?", "2"));
}

TEST_F(PredictTest, RefusesAJobThatMakesInputsOrPredictionsOtherwise) {
  const std::string checkpoint = Train();
  EXPECT_EQ(Predict(checkpoint, {"data.columns.price.transform="}), 1);
  EXPECT_THAT(std::string(LastObject()["message"]),
              HasSubstr("column price has transform none in this job and log1p in "
                        "start.checkpoint"));
  EXPECT_EQ(Predict(checkpoint, {"model.loss=binary_cross_entropy"}), 1);
  EXPECT_FALSE(fs::exists(folder_ / "out.csv"));
}

TEST_F(LocalCommandsTest, PredictRefusesWhatIsNoCheckpoint) {
  EXPECT_EQ(Run({"predict", job_(), "--checkpoint", folder_, "--data", data_(), "--output",
                 folder_ / "p.csv"}),
            3);
  EXPECT_EQ(
      Run({"predict", job_(), "--checkpoint", folder_, "--data", data_(), "--output", "json"}), 2);
  EXPECT_THAT(err_, HasSubstr("--json prints"));
}

TEST_F(LocalCommandsTest, ExportTakesNoFormatForAFile) {
  for (const std::string format : {"json", "text"}) {
    EXPECT_EQ(Run({"export", folder_, "--output", format}), 2);
    EXPECT_THAT(err_, HasSubstr("--output " + format + ": here it names the ONNX file; --json pr"));
  }
}

TEST_F(LocalCommandsTest, ExportWritesAModelAndTheTablesThatAreTooLarge) {
  ASSERT_EQ(RunLocal("run", {"--output", "json"}), 0) << err_;
  const std::string checkpoint = LastObject()["checkpoint"];
  const std::string file = folder_ / "model.onnx";
  ASSERT_EQ(Run({"export", checkpoint, "--output", file}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("c0 int64 [batch, 1]"));
  EXPECT_THAT(out_, HasSubstr("d3 float32 [batch, 1]"));
  EXPECT_THAT(out_, HasSubstr("prediction float32 [batch, 1]"));
  EXPECT_THAT(out_, HasSubstr("inlined; a key without a row gives 0\n"));
  EXPECT_THAT(out_, HasSubstr("gives 0, the mean, where the service draws each number "
                              "(normal, mean 0, stddev 0.01)\n"));
  const auto inlined_bytes = fs::file_size(file);

  ASSERT_EQ(Run({"export", checkpoint, "--output", file, "--inline-rows", "0", "--json"}), 0)
      << err_;
  const nlohmann::json report = LastObject();
  ASSERT_EQ(report["tables"].size(), 2u);
  EXPECT_LT(fs::file_size(file), inlined_bytes);
  for (const nlohmann::json& table : report["tables"]) {
    const std::string beside = table["file"];
    EXPECT_EQ(beside, folder_ / ("model." + std::string(table["name"]) + ".safetensors"));
    const uint64_t rows = table["rows"], dim = table["dim"];
    EXPECT_GT(rows, 100u);
    EXPECT_GT(fs::file_size(beside), rows * (8 + 4 * dim));
    EXPECT_LT(fs::file_size(beside), rows * (8 + 4 * dim) + 512);
  }
  EXPECT_EQ(Run({"export", "--help"}), 0);
  EXPECT_THAT(out_, HasSubstr("for m.onnx as m.TABLE.safetensors"));
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(Run({"export", checkpoint, "--output", pipe, "--inline-rows", "0"}), 2);
  EXPECT_THAT(err_, HasSubstr("pipe: is a pipe, and the "));
}

// As where an ONNX file is read with fewer parameters than when the job was trained.
TEST_F(LocalCommandsTest, ExportRefusesParametersOfAnotherModel) {
  ASSERT_EQ(RunLocal("run", {"--output", "json"}), 0) << err_;
  const std::string checkpoint = LastObject()["checkpoint"];
  auto manifest = ReadManifest(PosixFileSystem(), checkpoint);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  auto& options = *manifest->mutable_spec()->mutable_model()->mutable_options()->mutable_fields();
  options["hidden"].mutable_list_value()->mutable_values(1)->set_number_value(31);
  ASSERT_TRUE(WriteManifest(PosixFileSystem(), checkpoint, *manifest).ok());
  const std::string file = folder_ / "model.onnx";
  EXPECT_EQ(Run({"export", checkpoint, "--output", file}), 1);
  EXPECT_THAT(err_,
              AllOf(HasSubstr("table \"dense\": block "), HasSubstr("of the dense parameters has"),
                    HasSubstr("expected zeros behind the")));
  EXPECT_FALSE(fs::exists(file));
}

TEST_F(LocalCommandsTest, AnExportThatFailsLeavesTheFilesOfTheOneBefore) {
  ASSERT_EQ(RunLocal("first", {"--output", "json"}), 0) << err_;
  const std::string first = LastObject()["checkpoint"];
  ASSERT_EQ(RunLocal("second", {"--output", "json", "--set", "seed=9"}), 0) << err_;
  const std::string second = LastObject()["checkpoint"];
  const fs::path exported = folder_ / "exported";
  const auto run = [&](const std::string& checkpoint) {
    return Run({"export", checkpoint, "--output", exported / "model.onnx", "--inline-rows", "0"});
  };
  const auto files = [&] {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::directory_iterator(exported)) {
      if (!entry.is_regular_file()) continue;
      found[entry.path().filename()] = ReadWholeFile(PosixFileSystem(), entry.path()).value();
    }
    return found;
  };
  fs::create_directory(exported);
  ASSERT_EQ(run(first), 0) << err_;
  const auto earlier = files();
  ASSERT_EQ(earlier.size(), 3u);
  // Of either table and of the model what is in the way lets no other file change.
  for (const auto& [name, content] : earlier) {
    fs::create_directory(exported / (name + ".tmp"));
    EXPECT_EQ(run(second), 2) << name;
    EXPECT_EQ(files(), earlier) << name;
    fs::remove(exported / (name + ".tmp"));
  }
  for (const auto& [name, content] : earlier) {
    fs::remove(exported / name);
    fs::create_directory(exported / name);
    EXPECT_NE(run(second), 0) << name;
    fs::remove(exported / name);
    ASSERT_TRUE(WriteFileAtomically(PosixFileSystem(), exported / name, content).ok());
    EXPECT_EQ(files(), earlier) << name;
  }
  ASSERT_EQ(run(second), 0) << err_;
  const auto later = files();
  ASSERT_EQ(later.size(), 3u);
  for (const auto& [name, content] : earlier) EXPECT_NE(later.at(name), content) << name;
}

TEST_F(LocalCommandsTest, ExportRefusesWhatIsNoCheckpoint) {
  EXPECT_EQ(Run({"export", folder_, "--output", folder_ / "model.onnx"}), client::kExitNotFound);
  EXPECT_FALSE(fs::exists(folder_ / "model.onnx"));
}

TEST_F(LocalCommandsTest, CheckPrintsTheGraphAndTheMemory) {
  EXPECT_EQ(Run({"check", job_(), "--data", data_(), "--ps", "2"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("mlp/1"));
  EXPECT_THAT(out_, HasSubstr("each of 2 ps: about"));
  EXPECT_THAT(out_, HasSubstr("train       train.csv"));
  EXPECT_THAT(out_, HasSubstr("\n  dropout              0 (default)\n"));
  EXPECT_EQ(Run({"check", job_(), "--output", "json"}), 0);
  nlohmann::json report = LastObject();
  EXPECT_EQ(report["ok"], true);
  const auto layer = [&](const std::string& name) {
    for (const nlohmann::json& layer : report["layers"]) {
      if (layer["name"] == name) return layer;
    }
    return nlohmann::json();
  };
  EXPECT_EQ(layer("embedding")["op"], "Input");
  EXPECT_EQ(layer("mlp/1/linear")["op"], "Gemm");
  EXPECT_EQ(layer("mlp/1/linear")["shape"], nlohmann::json({"batch", 64}));
  EXPECT_EQ(layer("mlp/1/linear")["inputs"], nlohmann::json::array({"deep/features/all"}));
  EXPECT_EQ(layer("mlp/1/linear")["parameters"], 4416);  // 68 * 64 + 64
  EXPECT_EQ(report["options"]["hidden"], nlohmann::json::array({64, 32}));
  EXPECT_EQ(report["options"]["activation"], "relu");
  EXPECT_EQ(Run({"check", job_(), "--workers", "4", "--set", "train.batch_size=2"}), 2);
  EXPECT_THAT(err_, HasSubstr("workers: 4 workers cannot share a batch of 2 samples"));
}

TEST_F(LocalCommandsTest, OfAnOptionOfLocalThatIsGivenTwiceTheLastCounts) {
  ASSERT_EQ(RunLocal("run", {"--ps", "2", "--ps", "1", "--workers", "1", "--set", "name=twice"}), 0)
      << err_;
  EXPECT_THAT(err_, HasSubstr("starting 1 master, 1 ps, 1 worker in this process"));
  EXPECT_THAT(out_, AllOf(HasSubstr("twice-1: Succeeded"), HasSubstr("to epoch 2 of 2")));
}

TEST_F(LocalCommandsTest, SubmitChecksAJobForThoseWhoAreToRunIt) {
  // Whatever is accepted here finds no master.
  const auto submit = [this](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"submit",   job_(),
                                          "--master", "127.0.0.1:1",
                                          "--wait",   "0",
                                          "--set",    "train.batch_size=40000",
                                          "--set",    "data.shuffle_window_records=20000"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  };
  EXPECT_EQ(submit({"--workers", "1"}), 2);
  EXPECT_THAT(err_, HasSubstr("found 20000 of each of 1 workers, fewer in all than"));
  for (const std::vector<std::string>& accepted : std::vector<std::vector<std::string>>{
           {},
           {"--workers", "4"},
           {"--workers", "1", "--evaluate", "--set", "start.checkpoint=clicks-1/step-1"}}) {
    EXPECT_EQ(submit(accepted), 128) << err_;
    EXPECT_THAT(err_, HasSubstr("no answer from the master"));
  }
  EXPECT_EQ(submit({"--workers", "4", "--set", "model.options.hiden=[8]"}), 2);
  EXPECT_THAT(err_, HasSubstr("model.options.hiden: "));
}

TEST_F(LocalCommandsTest, TwoRunsDoNotShareAFolder) {
  const auto lock = FolderLock::Take(folder_ / "run");
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(RunLocal("run", {}), 1);
  EXPECT_THAT(err_, HasSubstr((folder_ / "run").string()));
}

}  // namespace
}  // namespace tessera::local
