#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/tessera_app.h"
#include "common/checkpoint/manifest.h"
#include "common/rpc/metrics_service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_job_service.h"
#include "tests/common/checkpoint_testing.h"

namespace tessera::client {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kJob[] = R"(name: clicks
data:
  format: csv
  columns:
    - {name: label, role: label}
    - {name: user, role: sparse, table: emb}
  train: {files: train.csv}
tables:
  - name: emb
    dim: 8
    initializer: {normal: {stddev: 0.01}}
    optimizer: {learning_rate: 0.001, adam: {}}
model: {name: deepfm, optimizer: {learning_rate: 0.001, adam: {}}}
train: {batch_size: 256, epochs: 2}
)";

// The whole program, less main, against a fake master.
class CommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    job_ = folder_ / "job.yaml";
    std::ofstream(job_) << kJob;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // What it prints is in out_, unless `out_file` is where to.
  int Run(const std::vector<std::string>& arguments, const char* out_file = nullptr) {
    char* out = nullptr;
    char* err = nullptr;
    size_t out_size = 0, err_size = 0;
    InterruptHandler interrupt;
    CommandContext context;
    context.channels = &master_.channels;
    context.interrupt = &interrupt;
    context.out = out_file != nullptr ? std::fopen(out_file, "w") : open_memstream(&out, &out_size);
    context.err = open_memstream(&err, &err_size);
    context.check_job = check_job_;
    const auto app = NewTesseraApp(context, {add_});
    const int code = RunTessera(*app, context, arguments);
    std::fclose(context.out);
    std::fclose(context.err);
    out_.assign(out == nullptr ? "" : out, out_size);
    err_.assign(err, err_size);
    std::free(out);
    std::free(err);
    return code;
  }
  static v1::JobStatus Job(v1::JobState state) {
    v1::JobStatus job;
    job.set_job_id("clicks-1");
    job.set_state(state);
    job.set_step(9);
    return job;
  }

  FakeMaster master_;
  std::filesystem::path folder_, job_;
  std::function<absl::Status(const LoadedJob&)> check_job_;
  std::function<void(CLI::App&, CommandContext&)> add_ = [](CLI::App&, CommandContext&) {};
  std::string out_, err_;
};

TEST_F(CommandsTest, SubmitSendsTheJobWithItsOverrides) {
  EXPECT_EQ(Run({"submit", job_, "--master", "master:1", "--set", "train.epochs=7", "--set",
                 "tables.emb.dim=16", "--workers", "2"}),
            0)
      << err_;
  EXPECT_EQ(out_, "submitted clicks-1; next: tessera watch clicks-1\n");
  ASSERT_EQ(master_.service.submitted().size(), 1u);
  const v1::SubmitRequest request = master_.service.submitted()[0];
  EXPECT_EQ(request.spec().train().epochs(), 7u);
  EXPECT_EQ(request.spec().tables(0).dim(), 16u);
  EXPECT_EQ(request.workers(), 2u);
  EXPECT_EQ(request.task(), v1::TRAIN);
}

TEST_F(CommandsTest, AnEmptyOverrideClearsItsFieldHoweverTheFlagIsWritten) {
  EXPECT_EQ(Run({"submit", job_, "--master", "master:1", "--set", "train.epochs=", "--set",
                 "train.steps=5"}),
            0)
      << err_;
  EXPECT_EQ(
      Run({"submit", job_, "--master", "master:1", "--set=train.epochs=", "--set=train.steps=5"}),
      0)
      << err_;
  ASSERT_EQ(master_.service.submitted().size(), 2u);
  for (const v1::SubmitRequest& request : master_.service.submitted()) {
    EXPECT_EQ(request.spec().train().epochs(), 0u);
    EXPECT_EQ(request.spec().train().steps(), 5u);
  }
}

TEST_F(CommandsTest, SubmitRefusesABadJobBeforeTheMasterSeesIt) {
  EXPECT_EQ(Run({"submit", job_, "--master", "master:1", "--set", "train.batch_size=0"}), 2);
  EXPECT_THAT(err_, StartsWith("error: --set train.batch_size=0: train.batch_size: found 0"));
  EXPECT_EQ(Run({"submit", folder_ / "none.yaml", "--master", "master:1"}), 3);
  EXPECT_THAT(err_, HasSubstr("none.yaml: no such file"));
  std::ofstream(job_) << "nome: clicks\n";
  EXPECT_EQ(Run({"submit", job_, "--master", "master:1"}), 2);
  EXPECT_THAT(err_, HasSubstr("job.yaml:1:1: nome: unknown field; did you mean 'name'?"));
  std::ofstream(job_) << kJob;
  check_job_ = [](const LoadedJob&) { return absl::InvalidArgumentError("model: no such thing"); };
  EXPECT_EQ(Run({"submit", job_, "--master", "master:1"}), 2);
  EXPECT_THAT(err_, HasSubstr("model: no such thing"));
  check_job_ = nullptr;
  EXPECT_TRUE(master_.service.submitted().empty());
}

TEST_F(CommandsTest, SubmitWatchEndsWithTheJobsExitCode) {
  master_.service.SetStreams({{Job(v1::RUNNING), Job(v1::FAILED)}});
  EXPECT_EQ(Run({"submit", job_, "--master", "master:1", "--watch", "--output", "json"}), 1);
  EXPECT_EQ(nlohmann::json::parse(out_)["state"], "Failed");
}

TEST_F(CommandsTest, SubmitPredictNeedsACheckpoint) {
  EXPECT_EQ(Run({"submit", job_, "--master", "master:1", "--predict", "out.csv"}), 2);
  EXPECT_THAT(err_, HasSubstr("start.checkpoint: missing"));
}

TEST_F(CommandsTest, WatchPrintsTheSummaryLast) {
  master_.service.SetStreams({{Job(v1::RUNNING), Job(v1::SUCCEEDED)}});
  EXPECT_EQ(Run({"watch", "clicks-1", "--master", "master:1"}), 0);
  EXPECT_THAT(out_, StartsWith("clicks-1: Succeeded\n"));
  EXPECT_EQ(Run({"watch", "clicks-1", "--master", "master:1", "--output", "json"}), 0);
}

TEST_F(CommandsTest, TheSummarySaysWhatWasLeftOutAndTheExitCodeWhetherRoomWouldDo) {
  v1::JobStatus job = Job(v1::FAILED);
  job.set_bad_records(7);
  job.set_reason("OutputFailed");
  master_.service.SetStreams({{job}});
  EXPECT_EQ(Run({"watch", "clicks-1", "--master", "master:1"}), 128);
  EXPECT_THAT(out_, HasSubstr("  left out    7 bad records\n"));
  job.set_task(v1::PREDICT);
  master_.service.SetStreams({{job}});
  Run({"watch", "clicks-1", "--master", "master:1"});
  EXPECT_THAT(out_, HasSubstr("  left empty  7 bad records\n"));
}

TEST_F(CommandsTest, ListDescribeAndCancelSpeakToTheMaster) {
  EXPECT_EQ(Run({"list", "--master", "master:1"}), 0);
  EXPECT_THAT(out_, HasSubstr("no jobs"));
  master_.service.SetJobs({Job(v1::RUNNING)});
  EXPECT_EQ(Run({"list", "--master", "master:1"}), 0);
  EXPECT_THAT(out_, HasSubstr("clicks-1  Running"));
  EXPECT_EQ(Run({"list", "--master", "master:1", "--output", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_)["jobs"][0]["steps"], 9);
  EXPECT_EQ(Run({"list", "--master", "master:1", "--nodes"}), 0);
  EXPECT_EQ(Run({"describe", "clicks-1", "--master", "master:1"}), 0);
  EXPECT_THAT(out_, StartsWith("clicks-1: Running"));
  EXPECT_EQ(Run({"describe", "other", "--master", "master:1"}), 3);
  EXPECT_EQ(err_, "error: no job other\n");
  EXPECT_EQ(Run({"cancel", "clicks-1", "--master", "master:1"}), 0);
  EXPECT_THAT(master_.service.cancelled(), testing::ElementsAre("clicks-1"));
}

TEST_F(CommandsTest, DescribePrintsTheJobAloneAsYamlOrAsAnObject) {
  v1::JobStatus job = Job(v1::RUNNING);
  *job.mutable_spec() = LoadJobFile(job_).value().spec;
  master_.service.SetJobs({job});
  const std::vector<std::string> describe = {"describe", "clicks-1", "--master", "master:1"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), describe.begin(), describe.end());
    EXPECT_EQ(Run(more), 0) << err_;
    return out_;
  };
  const absl::StatusOr<LoadedJob> again = ParseJobYaml(run({"--spec"}), "again.yaml");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->spec.SerializeAsString(), job.spec().SerializeAsString());
  const nlohmann::json whole = nlohmann::json::parse(run({"--output", "json"}));
  const nlohmann::json spec =
      nlohmann::json::parse(run({"--spec", "--output", "json"}), nullptr, false);
  EXPECT_EQ(spec, whole["spec"]);
  EXPECT_EQ(spec["name"], job.spec().name());
}

TEST_F(CommandsTest, PlotDrawsJobsOfTheMasterAndOfFiles) {
  v1::JobStatus job = Job(v1::RUNNING);
  master_.service.SetJobs({job});
  const std::string page = folder_ / "curves.html";
  EXPECT_EQ(Run({"plot", "clicks-1", "--master", "master:1", "--output", page}), 1);
  EXPECT_THAT(err_, HasSubstr("job clicks-1 has trained nothing yet"));
  v1::TrainingPoint& point = *job.add_history();
  point.set_step(9);
  point.set_samples(90);
  point.set_seconds(1);
  point.set_loss(0.5);
  master_.service.SetJobs({job});
  EXPECT_EQ(Run({"describe", "clicks-1", "--master", "master:1", "--output", "json"}), 0);
  const std::string file = folder_ / "before.json";
  std::ofstream(file) << out_;
  EXPECT_EQ(
      Run({"plot", "clicks-1", file, "--master", "master:1", "--output", page, "--by", "samples"}),
      0)
      << err_;
  EXPECT_THAT(out_, HasSubstr("wrote " + page));
  std::ifstream written(page);
  const std::string html((std::istreambuf_iterator<char>(written)), {});
  EXPECT_THAT(html, StartsWith("<!doctype html>"));
  EXPECT_THAT(html, HasSubstr("clicks-1 (2)"));
  EXPECT_THAT(html, HasSubstr(">samples</text>"));
  EXPECT_EQ(Run({"plot", "other", "--master", "master:1"}), 3);
  EXPECT_EQ(Run({"plot", folder_ / "none.json", "--master", "master:1"}), 3);
  std::ofstream(file) << "[";
  EXPECT_EQ(Run({"plot", file, "--master", "master:1"}), 2);
  EXPECT_THAT(err_, HasSubstr("before.json: expected one JSON object"));
  EXPECT_EQ(Run({"plot", file, "--by", "years"}), 2);
}

TEST_F(CommandsTest, PlotSaysOfAJobThatPredictsThatThereIsNothingToDraw) {
  v1::JobStatus job = Job(v1::SUCCEEDED);
  job.set_task(v1::PREDICT);
  master_.service.SetJobs({job});
  const std::string page = folder_ / "none.html";
  EXPECT_EQ(Run({"plot", "clicks-1", "--master", "master:1", "--output", page}), 2);
  EXPECT_THAT(err_,
              HasSubstr("job clicks-1 predicts: there is nothing to draw; name the job that"));
  EXPECT_FALSE(std::filesystem::exists(page));
}

TEST_F(CommandsTest, PlotTakesNoFormatForAFile) {
  for (const std::string format : {"json", "text"}) {
    EXPECT_EQ(Run({"plot", "clicks-1", "--master", "master:1", "--output", format}), 2);
    EXPECT_THAT(err_, HasSubstr("--output " + format + ": here it names the page; `tessera"));
    EXPECT_FALSE(std::filesystem::exists(format));
  }
}

TEST_F(CommandsTest, SuspendResumeAndScaleSpeakToTheMaster) {
  master_.service.SetJobs({Job(v1::RUNNING)});
  EXPECT_EQ(Run({"suspend", "clicks-1", "--master", "master:1"}), 0);
  EXPECT_THAT(out_, StartsWith("clicks-1 is suspended at its next barrier"));
  // With --watch when it is, and at once where it waited in the queue.
  master_.service.SetJobs({Job(v1::SUSPENDED)});
  for (const char* more : {"--watch", "--output=text"}) {
    EXPECT_EQ(Run({"suspend", "clicks-1", "--master", "master:1", more}), 0);
    EXPECT_THAT(out_, StartsWith("clicks-1 is suspended; `tessera resume clicks-1`"));
  }
  EXPECT_EQ(Run({"list", "--master", "master:1"}), 0);
  EXPECT_THAT(out_, HasSubstr("clicks-1  Suspended"));
  EXPECT_EQ(Run({"resume", "clicks-1", "--master", "master:1", "--output", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_)["resumed"], true);
  EXPECT_THAT(master_.service.asked(), testing::ElementsAre("suspend clicks-1", "suspend clicks-1",
                                                            "suspend clicks-1", "resume clicks-1"));
  EXPECT_EQ(Run({"scale", "clicks-1", "--workers", "3", "--master", "master:1"}), 0) << err_;
  EXPECT_THAT(out_, StartsWith("clicks-1 goes to 3 workers;"));
  ASSERT_EQ(master_.service.scaled().size(), 1u);
  EXPECT_EQ(master_.service.scaled()[0].workers(), 3u);
  EXPECT_EQ(Run({"scale", "clicks-1", "--master", "master:1"}), 2);
}

TEST_F(CommandsTest, AListOfMastersWithTlsNeedsTheNameOfTheirCertificates) {
  const std::string file = folder_ / "file";
  std::ofstream(file) << "x";
  const std::vector<std::string> with_tls = {"--tls-ca", file, "--token-file", file, "--master"};
  const auto list = [&](const std::string& master, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"list"};
    arguments.insert(arguments.end(), with_tls.begin(), with_tls.end());
    arguments.push_back(master);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  };
  EXPECT_EQ(list("a:1,b:1", {}), 2);
  EXPECT_THAT(err_, HasSubstr("--tls-server-name: missing; of several servers (a:1,b:1) it says"));
  // One, or several with a name, fail for want of a certificate here.
  EXPECT_EQ(list("a:1", {}), 2);
  EXPECT_THAT(err_, Not(HasSubstr("--tls-server-name")));
  EXPECT_EQ(list("a:1,b:1", {"--tls-server-name", "tessera"}), 2);
  EXPECT_THAT(err_, Not(HasSubstr("--tls-server-name")));
}

TEST_F(CommandsTest, AMasterThatIsAwayMayBeTriedAgainLater) {
  EXPECT_EQ(Run({"list", "--master", "master:1", "--wait", "nan"}), 2);
  EXPECT_THAT(err_, HasSubstr("expected a number from 0 to 1e+06"));
  master_.Stop();
  EXPECT_EQ(Run({"list", "--master", "master:1", "--wait", "0"}), 128);
  EXPECT_THAT(err_, HasSubstr("no answer from the master at master:1"));
}

TEST_F(CommandsTest, BadUsageSaysWhatWasMeant) {
  EXPECT_EQ(Run({"wacth", "clicks-1"}), 2);
  EXPECT_THAT(err_, HasSubstr("unknown command 'wacth'; did you mean \"watch\"?"));
  EXPECT_EQ(Run({"submit"}), 2);
  EXPECT_THAT(err_, HasSubstr("JOB.yaml"));
  EXPECT_EQ(Run({"list", "--output", "xml"}), 2);
  EXPECT_EQ(Run({"submit", job_, "--predict", "", "--master", "master:1"}), 2);
  EXPECT_THAT(err_, HasSubstr("--predict: the value is empty; give one, or leave the flag out"));
  EXPECT_EQ(Run({"submit", job_, "--predict=", "--master", "master:1"}), 2);
  EXPECT_EQ(Run({"submit", job_, "--set=", "--master", "master:1"}), 2);
  EXPECT_THAT(err_, HasSubstr("\"--set=\": the value is empty"));
  EXPECT_EQ(Run({"list", "--master", ""}), 2);
  for (const char* wrong : {"host", "host:", "host:0", ":7070", "host:65536", "a:1,b"}) {
    EXPECT_EQ(Run({"list", "--master", wrong}), 2) << wrong;
    EXPECT_THAT(err_, HasSubstr("--master: is \"")) << wrong;
    EXPECT_THAT(err_, HasSubstr("expected host:port with a port from 1 to 65535")) << wrong;
    EXPECT_EQ(Run({"metrics", wrong}), 2) << wrong;
  }
  EXPECT_EQ(Run({}), 2);
}

TEST_F(CommandsTest, WhatCannotBePrintedFailsTheCommand) {
  const char* const kSays = "error: cannot write to stdout: No space left on device\n";
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"version"}, {"--help"}, {"list", "--help"}, {"--version"}}) {
    EXPECT_EQ(Run(arguments, "/dev/full"), 128) << arguments[0];
    EXPECT_EQ(err_, kSays) << arguments[0];
  }
  // Whatever the job's own exit code is.
  master_.service.SetStreams({{Job(v1::RUNNING), Job(v1::SUCCEEDED)}});
  EXPECT_EQ(Run({"watch", "clicks-1", "--master", "master:1"}, "/dev/full"), 128);
  // A watch for scripts ends there.
  master_.service.HoldStreams();
  master_.service.SetStreams({{Job(v1::RUNNING), Job(v1::RUNNING)}});
  EXPECT_EQ(Run({"watch", "clicks-1", "--master", "master:1", "--output", "json"}, "/dev/full"),
            128);
  EXPECT_EQ(err_, kSays);
}

TEST_F(CommandsTest, HelpTeachesWithExamplesAndExitCodes) {
  EXPECT_EQ(Run({"--help"}), 0);
  EXPECT_THAT(out_, HasSubstr("130  interrupted"));
  for (const char* command : {"submit", "watch", "list", "describe", "cancel", "suspend", "resume",
                              "scale", "version", "metrics"}) {
    EXPECT_EQ(Run({command, "--help"}), 0);
    EXPECT_THAT(out_, HasSubstr("Example")) << command;
    EXPECT_THAT(out_, HasSubstr(std::string("  tessera ") + command)) << command;
  }
}

TEST_F(CommandsTest, CheckpointCommandsSayWhenThereIsNone) {
  EXPECT_EQ(Run({"checkpoint", "verify", folder_}), 3);
  EXPECT_EQ(Run({"checkpoint", "digest", folder_ / "none"}), 3);
  EXPECT_EQ(Run({"checkpoint", "inspect", folder_}), 3);
  EXPECT_EQ(Run({"checkpoint", "list", folder_}), 0);
  EXPECT_THAT(out_, HasSubstr("no checkpoints in"));
  EXPECT_EQ(Run({"checkpoint", "list", folder_ / "none"}), 3);
}

TEST_F(CommandsTest, CheckpointInspectReadsRowsAndSlotsByKey) {
  const std::string one = folder_ / "job" / "step-000000000012";
  ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), one, SmallModel(), 16, 3).ok());
  EXPECT_EQ(Run({"checkpoint", "inspect", one}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("6 rows of 2 floats and 1 of the optimizer"));
  EXPECT_EQ(Run({"checkpoint", "inspect", one, "--table", "user", "--key", "7"}), 0) << err_;
  EXPECT_EQ(out_, "key 7: frequency 7, last step 3\n  embedding 7 -7.5\n  slots     0.100000001\n");
  EXPECT_EQ(Run({"checkpoint", "inspect", one, "--table", "user", "--key", "010"}), 3);
  EXPECT_THAT(out_, StartsWith("key 10: "));
  EXPECT_EQ(Run({"checkpoint", "inspect", one, "--table", "user", "--key", "8", "--key",
                 "18446744073709551615", "--output", "json"}),
            3);
  const nlohmann::json rows = nlohmann::json::parse(out_)["rows"];
  EXPECT_EQ(rows[0]["found"], false);
  EXPECT_EQ(rows[1]["key"], ~uint64_t{0});
  EXPECT_EQ(rows[1]["slots"].size(), 1u);
  EXPECT_EQ(Run({"checkpoint", "inspect", one, "--table", "usr", "--key", "7"}), 3);
  EXPECT_THAT(err_, HasSubstr("there are user, empty, dense"));
  EXPECT_EQ(Run({"checkpoint", "inspect", one, "--key", "7"}), 2);
  EXPECT_EQ(Run({"checkpoint", "inspect", one, "--table", "user"}), 2);
  EXPECT_THAT(err_, HasSubstr("--table user needs --key"));
}

TEST_F(CommandsTest, CheckpointInspectFindsTheRowOfAString) {
  // Mix64(Mix64(XXH3("tags")) ^ XXH3("sale")) by Python's xxhash (worker/onnx/README.md).
  constexpr uint64_t kSale = 9664535480790736360ull;
  std::vector<TestTable> model = SmallModel();
  model[0].rows[kSale] = {5, 3, {1, 2, 0.25f}};
  const std::string one = folder_ / "job" / "step-000000000012";
  ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), one, model, 16, 3).ok());
  v1::CheckpointManifest manifest = *ReadManifest(PosixFileSystem(), one);
  for (const char* const name : {"shop", "labels"}) {
    v1::ColumnSpec& column = *manifest.mutable_spec()->mutable_data()->add_columns();
    column.set_name(name);
    column.set_role(v1::SPARSE);
    if (name == std::string("labels")) {
      column.set_type(v1::STRING);
      column.set_key_space("tags");
    }
  }
  ASSERT_TRUE(WriteManifest(PosixFileSystem(), one, manifest).ok());
  const auto inspect = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"checkpoint", "inspect", one, "--table", "user"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  };
  EXPECT_EQ(inspect({"--column", "labels", "--value", "sale"}), 0) << err_;
  EXPECT_EQ(out_, absl::StrCat("\"sale\", key ", kSale,
                               ": frequency 5, last step 3\n  embedding 1 2\n  slots     0.25\n"));
  EXPECT_EQ(inspect({"--column", "labels", "--value", "none", "--output", "json"}), 3);
  EXPECT_EQ(nlohmann::json::parse(out_)["rows"][0]["value"], "none");
  EXPECT_EQ(inspect({"--column", "shop", "--value", "sale"}), 3);
  EXPECT_THAT(err_, HasSubstr("--column shop: the job's columns of strings are labels"));
  EXPECT_EQ(inspect({"--value", "sale"}), 2);
  EXPECT_THAT(err_, HasSubstr("--column"));
}

TEST_F(CommandsTest, CheckpointDiffSaysByItsExitCodeWhetherTwoAreEqual) {
  const std::string a = folder_ / "a", b = folder_ / "b";
  std::vector<TestTable> other = SmallModel();
  ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), a, SmallModel(), 16, 3).ok());
  ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), b, other, 4, 1).ok());
  EXPECT_EQ(Run({"checkpoint", "diff", a, b}), 0) << err_;
  EXPECT_EQ(out_,
            "user: 6 rows are the same\nempty: 0 rows are the same\n"
            "dense: 3 rows are the same\nequal\n");
  other[0].rows.at(7).values[0] = 0;
  ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), b, other, 4, 1).ok());
  EXPECT_EQ(Run({"checkpoint", "diff", a, b}), 4);
  EXPECT_THAT(out_, HasSubstr("  1 differ: keys 7\n"));
  EXPECT_EQ(Run({"checkpoint", "diff", a, b, "--output", "json"}), 4);
  EXPECT_EQ(nlohmann::json::parse(out_)["tables"][0]["different"]["first_keys"][0], 7);
  std::ofstream(b + "/rows-0", std::ios::app) << "x";
  EXPECT_EQ(Run({"checkpoint", "diff", a, b}), 1);
  EXPECT_THAT(err_, HasSubstr("b/rows-0: damaged"));
  EXPECT_EQ(Run({"checkpoint", "diff", a, folder_ / "c"}), 3);
}

TEST_F(CommandsTest, CheckpointExpiryCountsWhatRulesWouldTake) {
  const std::string folder = folder_ / "a";
  // Cut after 12 steps: keys 1 to 3 are old, 2 to 4 are rare, 4 is small.
  const TestTable table = {
      "emb",
      2,
      0,
      {{1, {9, 1, {3, 4}}}, {2, {1, 1, {3, 4}}}, {3, {1, 1, {3, 4}}}, {4, {1, 9, {0.1f, 0}}}}};
  ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), folder, {table}, 4, 2).ok());
  v1::CheckpointManifest manifest = *ReadManifest(PosixFileSystem(), folder);
  *manifest.mutable_spec() = ParseJobYaml(kJob, "job.yaml")->spec;
  ASSERT_TRUE(WriteManifest(PosixFileSystem(), folder, manifest).ok());
  EXPECT_EQ(Run({"checkpoint", "expiry", folder}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("no table has rules of expiry; try some with --set"));
  const auto try_rules = [&](const std::vector<std::string>& rules) {
    std::vector<std::string> arguments = {"checkpoint", "expiry", folder};
    for (const std::string& rule : rules) {
      arguments.insert(arguments.end(), {"--set", "tables.emb.expiry." + rule});
    }
    return Run(arguments);
  };
  EXPECT_EQ(try_rules({"after_steps=10", "min_frequency=2", "min_norm=0.5"}), 0) << err_;
  EXPECT_EQ(out_, "emb: 4 of 4 rows would go (100.0%): by age 3, by frequency 3, by norm 1\n");
  EXPECT_EQ(try_rules({"min_frequency=2", "grace_steps=3"}), 0) << err_;
  EXPECT_EQ(out_, "emb: 2 of 4 rows would go (50.0%): by age 0, by frequency 2, by norm 0\n");
  EXPECT_EQ(try_rules({"min_norm=-1"}), 2);
  EXPECT_THAT(err_, HasSubstr("min_norm"));
  EXPECT_EQ(Run({"checkpoint", "expiry", folder, "--output", "json", "--set",
                 "tables.emb.expiry.after_steps=10"}),
            0);
  EXPECT_EQ(nlohmann::json::parse(out_)["tables"][0]["would_expire"], 3);
  EXPECT_EQ(Run({"checkpoint", "expiry", folder_ / "none"}), 3);
}

TEST_F(CommandsTest, CheckpointListAndPruneKnowTheFoldersOfJobs) {
  const std::string root = folder_ / "root";
  for (const char* name :
       {"job-1/step-000000000010", "job-1/step-000000000020", "job-2/step-000000000005"}) {
    ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), root + "/" + name, SmallModel(), 4, 1).ok());
  }
  EXPECT_EQ(Run({"checkpoint", "list", root, "--output", "json"}), 0) << err_;
  const nlohmann::json list = nlohmann::json::parse(out_)["checkpoints"];
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0]["name"], "job-1/step-000000000020");
  EXPECT_EQ(list[2]["name"], "job-2/step-000000000005");
  EXPECT_GT(list[0]["bytes"], 0);
  EXPECT_EQ(Run({"checkpoint", "prune", root + "/job-1", "--keep", "1", "--dry-run"}), 0) << err_;
  EXPECT_EQ(out_,
            "step-000000000020  kept: among the newest 1\n"
            "step-000000000010  would go: older than the newest 1\n");
  EXPECT_TRUE(std::filesystem::exists(root + "/job-1/step-000000000010"));
  EXPECT_EQ(Run({"checkpoint", "prune", root + "/job-1", "--keep", "1"}), 0) << err_;
  EXPECT_FALSE(std::filesystem::exists(root + "/job-1/step-000000000010"));
  std::ofstream(root + "/job-1/step-000000000020/MANIFEST.json") << "{}";
  EXPECT_EQ(Run({"checkpoint", "list", root + "/job-1"}), 0);
  EXPECT_THAT(out_, HasSubstr("MANIFEST.json: damaged"));
  EXPECT_EQ(Run({"checkpoint", "prune", root + "/job-1", "--keep", "1"}), 1);
  EXPECT_EQ(Run({"checkpoint", "prune", root + "/job-1", "--keep", "0"}), 2);
  EXPECT_EQ(Run({"checkpoint", "prune", root + "/job-9", "--keep", "1"}), 3);
}

TEST_F(CommandsTest, MetricsPrintsTheTextOfAServer) {
  MetricsRegistry registry;
  registry.AddCounter("things_total", "Things.").Increment(3);
  MetricsService service(&registry);
  const auto server =
      RpcServer::Start({.listen = "ps:1", .in_process = &master_.channels}, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(Run({"metrics", "ps:1"}), 0) << err_;
  EXPECT_EQ(out_, registry.Text());
  EXPECT_EQ(Run({"metrics", "nobody:1", "--wait", "0.5"}), 128);
  EXPECT_THAT(err_, StartsWith("error: no metrics from nobody:1: "));
  EXPECT_EQ(Run({"metrics", "master:1"}), 1);
  EXPECT_THAT(err_, HasSubstr("master:1 serves no metrics; expected"));
  EXPECT_EQ(Run({"metrics"}), 2);
}

TEST_F(CommandsTest, MetricsTellsProcessesApartByLabels) {
  MetricsRegistry registry;
  registry.AddCounter("things_total", "Things.").Increment(3);
  registry.AddCounter("calls_total", "Calls.", {{"call", "Pull"}}).Increment(2);
  MetricsService service(&registry);
  const auto server =
      RpcServer::Start({.listen = "ps:1", .in_process = &master_.channels}, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(Run({"metrics", "ps:1", "--label", "node=ps-0", "--label", R"(as=a "\)"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("# HELP things_total Things.\n# TYPE things_total counter\n"));
  EXPECT_THAT(out_, HasSubstr(R"(things_total{node="ps-0",as="a \"\\"} 3)"));
  EXPECT_THAT(out_, HasSubstr(R"(calls_total{node="ps-0",as="a \"\\",call="Pull"} 2)"));
  EXPECT_EQ(Run({"metrics", "ps:1", "--label", "call=mine"}), 2);
  EXPECT_THAT(err_, HasSubstr("--label call=mine: calls_total has a label of that name"));
  for (const char* wrong : {"process", "=x", "1a=x", "a-b=x"}) {
    EXPECT_EQ(Run({"metrics", "ps:1", "--label", wrong}), 2) << wrong;
    EXPECT_THAT(err_, HasSubstr("is not NAME=VALUE")) << wrong;
  }
}

TEST_F(CommandsTest, DataIsOfNoMoreSamplesThanHelpSays) {
  for (const char* command : {"generate", "behaviour"}) {
    for (const char* split : {"--samples", "--validation", "--test"}) {
      for (const char* wrong : {"-1", "100000001", "1e3"}) {
        EXPECT_EQ(Run({"data", command, "--out", folder_ / "data", split, wrong}), 2)
            << command << " " << split << " " << wrong;
      }
    }
    EXPECT_EQ(Run({"data", command, "--help"}), 0);
    EXPECT_THAT(out_, HasSubstr("in [1 - 100000000]")) << command;
  }
}

TEST_F(CommandsTest, NumbersAreDecimalWhateverZerosTheyBeginWith) {
  master_.service.SetJobs({});
  for (const char* wrong : {"0x10", "-1", "1025"}) {
    EXPECT_EQ(Run({"submit", job_, "--master", "master:1", "--ps", wrong}), 2) << wrong;
  }
  EXPECT_EQ(Run({"submit", job_, "--master", "master:1", "--ps", "010", "--workers", "09"}), 0)
      << err_;
  ASSERT_EQ(master_.service.submitted().size(), 1u);
  EXPECT_EQ(master_.service.submitted()[0].ps(), 10u);
  EXPECT_EQ(master_.service.submitted()[0].workers(), 9u);
}

TEST_F(CommandsTest, WithoutAThreadTheCommandFailsAndMayBeTriedAgain) {
  add_ = [](CLI::App& app, CommandContext&) {
    app.add_subcommand("start")->callback([] {
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    });
  };
  EXPECT_EQ(Run({"start"}), 128);
  EXPECT_THAT(err_, StartsWith("error: no thread for this command; allow more of them"));
}

TEST_F(CommandsTest, VersionIsOneLine) {
  EXPECT_EQ(Run({"version"}), 0);
  EXPECT_THAT(out_, StartsWith("tessera "));
  EXPECT_EQ(Run({"version", "--output", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_)["protocol"], kProtocolVersion);
}

}  // namespace
}  // namespace tessera::client
