#include "client/progress.h"

#include <cmath>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands/command.h"
#include "client/job_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::client {
namespace {

using testing::HasSubstr;
using testing::Not;

class ManualClock final : public Clock {
 public:
  absl::Duration Monotonic() const override { return now; }
  absl::Time Wall() const override { return absl::UnixEpoch() + now; }
  absl::Duration now = absl::Seconds(100);
};

// A stream into memory.
class Capture {
 public:
  Capture() : file_(open_memstream(&text_, &size_)) {}
  ~Capture() {
    std::fclose(file_);
    std::free(text_);
  }
  FILE* file() { return file_; }
  // What has been written since the last call.
  std::string Take() {
    std::fflush(file_);
    const std::string all(text_, size_);
    const std::string taken = all.substr(taken_);
    taken_ = all.size();
    return taken;
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  FILE* file_;
  size_t taken_ = 0;
};

v1::JobStatus Training() {
  v1::JobStatus job;
  job.set_job_id("clicks-1");
  job.set_state(v1::RUNNING);
  job.set_phase("training");
  job.set_epoch(2);
  job.set_epochs(10);
  job.set_step(74);
  job.set_total_steps(500);
  job.set_samples_per_second(52134);
  job.set_loss(0.18321);
  job.set_train_auc(0.9712);
  job.set_eta_seconds(80);
  v1::Evaluation* evaluation = job.add_evaluations();
  evaluation->set_split("validation");
  evaluation->set_epoch(1);
  evaluation->set_step(50);
  evaluation->set_best(true);
  (*evaluation->mutable_metrics())["auc"] = 0.9785;
  (*evaluation->mutable_metrics())["logloss"] = 0.1701;
  for (const char* name : {"ps-0", "ps-1", "worker-0", "worker-1"}) {
    v1::NodeStatus* node = job.add_nodes();
    node->set_name(name);
    node->set_alive(true);
  }
  return job;
}

TEST(ProgressLine, SaysHowATrainingJobIsDoing) {
  EXPECT_EQ(ProgressLine(Training()),
            "training  epoch 2/10  step 74/500  52.1k samples/s  loss 0.1832  AUC 0.9712  "
            "validation auc 0.9785 logloss 0.1701  ETA 1m20s");
}

TEST(ProgressLine, SaysWhyAJobWaits) {
  v1::JobStatus job;
  job.set_state(v1::CREATED);
  job.set_reason("WaitingForWorkers");
  job.set_message("1 of 2 workers live");
  EXPECT_EQ(ProgressLine(job), "Created (WaitingForWorkers): 1 of 2 workers live");
}

TEST(ProgressLine, LeavesOutWhatIsNotKnown) {
  v1::JobStatus job = Training();
  job.set_total_steps(0);
  job.set_eta_seconds(0);
  job.set_train_auc(std::nan(""));
  job.clear_evaluations();
  EXPECT_EQ(ProgressLine(job), "training  epoch 2/10  step 74  52.1k samples/s  loss 0.1832");
}

TEST(ProgressLine, LetsNoControlCharactersThrough) {
  v1::JobStatus job;
  job.set_state(v1::FAILED);
  job.set_message("bad\x1b[2Jfile\nline");
  EXPECT_EQ(ProgressLine(job), "Failed: bad [2Jfile line");
}

TEST(NodesLine, TellsTheLiveFromTheLost) {
  v1::JobStatus job = Training();
  job.mutable_nodes(3)->set_alive(false);
  job.add_waits("worker-0 for worker-1 since 3s");
  EXPECT_EQ(NodesLine(job),
            "live: ps-0 ps-1 worker-0   lost: worker-1   waits: worker-0 for worker-1 since 3s");
  EXPECT_EQ(NodesLine(v1::JobStatus()), "");
}

TEST(ShortNumber, KeepsThreeDigits) {
  EXPECT_EQ(ShortNumber(0), "0");
  EXPECT_EQ(ShortNumber(999.4), "999");
  EXPECT_EQ(ShortNumber(999.9), "1.0k");
  EXPECT_EQ(ShortNumber(52134), "52.1k");
  EXPECT_EQ(ShortNumber(3.4e6), "3.40M");
  EXPECT_EQ(ShortNumber(std::nan("")), "?");
}

TEST(ShortDuration, TakesTheFittingUnit) {
  EXPECT_EQ(ShortDuration(0.4), "0s");
  EXPECT_EQ(ShortDuration(59.6), "1m00s");
  EXPECT_EQ(ShortDuration(80), "1m20s");
  EXPECT_EQ(ShortDuration(7500), "2h05m");
  EXPECT_EQ(ShortDuration(INFINITY), "?");
}

TEST(ProgressDisplay, WritesALineNowAndThenWhereThereIsNoTerminal) {
  Capture out;
  ManualClock clock;
  ProgressDisplay display({.out = out.file(), .line_every = absl::Seconds(5), .clock = &clock});
  v1::JobStatus job = Training();
  display.Show(job);
  const std::string first = out.Take();
  EXPECT_THAT(first, HasSubstr("epoch 1 step 50: validation auc 0.9785 logloss 0.1701 (best)\n"));
  EXPECT_THAT(first, HasSubstr("ETA 1m20s   live: ps-0 ps-1 worker-0 worker-1\n"));
  EXPECT_THAT(first, Not(HasSubstr("\x1b")));
  clock.now += absl::Seconds(4);
  display.Show(job);
  EXPECT_EQ(out.Take(), "");
  clock.now += absl::Seconds(1);
  display.Show(job);
  EXPECT_THAT(out.Take(), HasSubstr("ETA 1m20s"));
  // At once: another phase, an event.
  job.set_phase("evaluating");
  job.add_events()->set_message("worker-1 was lost");
  display.Show(job);
  const std::string changed = out.Take();
  EXPECT_THAT(changed, HasSubstr("  worker-1 was lost\n"));
  EXPECT_THAT(changed, HasSubstr("evaluating"));
  display.Show(job);
  EXPECT_EQ(out.Take(), "");
}

TEST(ProgressDisplay, ShowsEachEvaluationOnceAlsoWhereTheOldestAreForgotten) {
  Capture out;
  ManualClock clock;
  ProgressDisplay display({.out = out.file(), .clock = &clock});
  v1::JobStatus job = Training();
  const auto measure = [&job](uint64_t step) {
    *job.add_evaluations() = Training().evaluations(0);
    job.mutable_evaluations()->rbegin()->set_step(step);
  };
  measure(60);
  display.Show(job);
  EXPECT_THAT(out.Take(), HasSubstr("  epoch 1 step 60: "));
  job.mutable_evaluations()->DeleteSubrange(0, 1);
  measure(70);
  display.Show(job);
  const std::string shown = out.Take();
  EXPECT_THAT(shown, HasSubstr("  epoch 1 step 70: "));
  EXPECT_THAT(shown, Not(HasSubstr("step 60: ")));
  // The job has gone back to a checkpoint, and measures anew.
  job.mutable_evaluations()->RemoveLast();
  display.Show(job);
  EXPECT_EQ(out.Take(), "");
  measure(70);
  display.Show(job);
  EXPECT_THAT(out.Take(), HasSubstr("  epoch 1 step 70: "));
}

TEST(ProgressDisplay, RedrawsItsTwoLinesOnATerminal) {
  Capture out;
  ProgressDisplay display({.out = out.file(), .terminal = true, .columns = 60});
  v1::JobStatus job = Training();
  job.clear_evaluations();
  display.Show(job);
  EXPECT_EQ(out.Take(),
            "training  epoch 2/10  step 74/500  52.1k samples/s  loss 0.\n"
            "live: ps-0 ps-1 worker-0 worker-1\n");
  display.Show(job);
  EXPECT_THAT(out.Take(), testing::StartsWith("\x1b[2A\x1b[Jtraining"));
  display.Say("restarting ps-1");
  EXPECT_THAT(out.Take(), testing::StartsWith("\x1b[2A\x1b[Jrestarting ps-1\ntraining"));
  job.set_state(v1::SUCCEEDED);
  display.Show(job);
  EXPECT_THAT(out.Take(), HasSubstr("Succeeded"));
}

TEST(SummaryJson, IsTheObjectThatScriptsRead) {
  v1::JobStatus job = Training();
  job.set_state(v1::SUCCEEDED);
  job.set_mean_samples_per_second(50000);
  job.set_seconds_to_first_step(1.25);
  job.set_checkpoint("/runs/x/checkpoints/clicks-1/step-000000000074");
  job.set_bad_records(3);
  (*job.mutable_final_metrics())["validation"] = job.evaluations(0);
  (*(*job.mutable_final_metrics())["test"].mutable_metrics())["auc"] = std::nan("");
  const nlohmann::json summary = SummaryJson(job);
  EXPECT_EQ(summary["state"], "Succeeded");
  EXPECT_EQ(summary["metrics"]["validation"]["auc"], 0.9785);
  EXPECT_EQ(summary["metrics"]["validation"]["logloss"], 0.1701);
  EXPECT_EQ(summary["steps"], 74);
  EXPECT_EQ(summary["epochs"], 2);
  EXPECT_EQ(summary["samples_per_second"], 50000);
  EXPECT_EQ(summary["seconds_to_first_step"], 1.25);
  EXPECT_EQ(summary["checkpoint"], "/runs/x/checkpoints/clicks-1/step-000000000074");
  EXPECT_EQ(summary["job_id"], "clicks-1");
  EXPECT_EQ(summary["bad_records"], 3);
  const std::string text = summary.dump();
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_THAT(text, HasSubstr("\"test\":{\"auc\":null}"));
}

TEST(JobJson, HoldsTheSpecTheEvaluationsAndTheProcesses) {
  v1::JobStatus job = Training();
  job.mutable_spec()->set_name("clicks");
  job.mutable_spec()->mutable_train()->set_batch_size(256);
  const nlohmann::json object = JobJson(job);
  EXPECT_EQ(object["spec"]["train"]["batch_size"], 256);
  EXPECT_EQ(object["evaluations"][0]["metrics"]["auc"], 0.9785);
  EXPECT_EQ(object["nodes"][3]["name"], "worker-1");
  EXPECT_EQ(object["progress"]["total_steps"], 500);
}

TEST(SummaryText, ShowsWhatAJobCameTo) {
  v1::JobStatus job = Training();
  job.set_state(v1::FAILED);
  job.set_reason("DataError");
  job.set_message("train.csv:7: the label is 'x'");
  job.set_checkpoint("/c/clicks-1/step-000000000050");
  const std::string text = SummaryText(job);
  EXPECT_THAT(text, HasSubstr("clicks-1: Failed (DataError): train.csv:7: the label is 'x'\n"));
  EXPECT_THAT(text, HasSubstr("74 steps, to epoch 2 of 10, "));
  EXPECT_THAT(text, HasSubstr("/c/clicks-1/step-000000000050"));
}

TEST(SummaryText, NamesNoOutputOfAPredictionThatFailed) {
  v1::JobStatus job = Training();
  job.set_task(v1::PREDICT);
  job.set_output("out.csv");
  job.set_state(v1::SUCCEEDED);
  EXPECT_THAT(SummaryText(job), HasSubstr("  output      out.csv\n"));
  job.set_state(v1::FAILED);
  EXPECT_THAT(SummaryText(job), Not(HasSubstr("output")));
}

// Both are of the checkpoint's step and epoch.
TEST(ProgressDisplay, ShowsEverySplitOfAJobThatEvaluates) {
  Capture out;
  ProgressDisplay::Options options;
  options.out = out.file();
  ProgressDisplay display(options);
  v1::JobStatus job = Training();
  job.set_task(v1::EVALUATE);
  job.clear_evaluations();
  for (const char* split : {"validation", "test"}) {
    v1::Evaluation& evaluation = *job.add_evaluations();
    evaluation.set_split(split);
    evaluation.set_step(74);
    evaluation.set_epoch(2);
    (*evaluation.mutable_metrics())["auc"] = 0.75;
    display.Show(job);
    EXPECT_THAT(out.Take(), HasSubstr(absl::StrCat("epoch 2 step 74: ", split, " auc 0.7500\n")));
  }
}

}  // namespace
}  // namespace tessera::client
