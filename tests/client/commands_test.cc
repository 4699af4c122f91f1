#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "common/rpc/metrics_service.h"
#include "tests/client/commands_testing.h"

namespace tessera::client {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

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
  check_model_ = [](const LoadedJob&) {
    return absl::InvalidArgumentError("model: no such thing");
  };
  EXPECT_EQ(Run({"submit", job_, "--master", "master:1"}), 2);
  EXPECT_THAT(err_, HasSubstr("model: no such thing"));
  check_model_ = nullptr;
  EXPECT_TRUE(master_.service.submitted().empty());
}

TEST_F(CommandsTest, SubmitSaysTheWarningsOfTheCheck) {
  check_model_ = [](const LoadedJob&) {
    return std::vector<std::string>{"column price is read by nothing", "and another"};
  };
  EXPECT_EQ(Run({"submit", job_, "--master", "master:1", "--output", "json"}), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("warning: column price is read by nothing\nwarning: and another\n"));
  EXPECT_EQ(nlohmann::json::parse(out_)["job_id"], "clicks-1");
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

TEST_F(CommandsTest, SubmitEvaluateSendsTheTaskAndNeedsACheckpoint) {
  const std::vector<std::string> submit = {"submit", job_, "--master", "master:1", "--evaluate"};
  EXPECT_EQ(Run(submit), 2);
  EXPECT_THAT(err_, HasSubstr("start.checkpoint: missing; evaluation needs"));
  std::vector<std::string> whole = submit;
  whole.insert(whole.end(), {"--set", "start.checkpoint=clicks-1/step-000000000500", "--set",
                             "data.test.files=test.csv"});
  EXPECT_EQ(Run(whole), 0) << err_;
  ASSERT_EQ(master_.service.submitted().size(), 1u);
  EXPECT_EQ(master_.service.submitted()[0].task(), v1::EVALUATE);
  whole.insert(whole.end(), {"--predict", "out.csv"});
  EXPECT_EQ(Run(whole), 2);
  EXPECT_THAT(err_, HasSubstr("--evaluate"));
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

TEST_F(CommandsTest, ListShowsEpochsOfJobsThatTrain) {
  v1::JobStatus trains;
  trains.set_job_id("trains-1");
  trains.set_epoch(2);
  trains.set_epochs(6);
  v1::JobStatus predicts = trains;
  predicts.set_job_id("predicts-1");
  predicts.set_task(v1::PREDICT);
  predicts.set_epoch(0);
  master_.service.SetJobs({trains, predicts});
  EXPECT_EQ(Run({"list", "--master", "master:1"}), 0);
  EXPECT_THAT(out_, testing::ContainsRegex("trains-1 [^\n]* 2/6 "));
  EXPECT_THAT(out_, testing::ContainsRegex("predicts-1 [^\n]* - "));
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
  // Beside one that has trained, one that has not is none to wait for.
  master_.service.SetJobs({Job(v1::RUNNING)});
  EXPECT_EQ(Run({"plot", "clicks-1", file, "--master", "master:1", "--output", page}), 0) << err_;
  master_.service.SetJobs({job});
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
              HasSubstr("job clicks-1 does not train: there is nothing to draw; name the job"));
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
