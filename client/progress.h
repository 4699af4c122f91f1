#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "tessera/v1/job_service.pb.h"

namespace tessera::client {

// A job's progress as text for people. Pure functions.

// "training  epoch 2/100  step 74/5000  52.1k samples/s  loss 0.1832  AUC 0.9712  validation AUC
// 0.9785 logloss 0.1701  ETA 1m20s"; a job that waits: its state, reason and message.
std::string ProgressLine(const v1::JobStatus& status);
// "live: ps-0 ps-1 worker-0   lost: worker-1   waits: ..."; empty when the job has no processes.
std::string NodesLine(const v1::JobStatus& status);
// "950", "52.1k", "3.40M".
std::string ShortNumber(double value);
// "45s", "1m20s", "2h05m".
std::string ShortDuration(double seconds);
// The names of the evaluation's metrics, in the order of math::AllMetrics, tasks by name.
std::vector<std::string> MetricsInOrder(const v1::Evaluation& evaluation);
// "auc 0.9785 logloss 0.1701", in the order of MetricsInOrder.
std::string MetricsText(const v1::Evaluation& evaluation);

// Shows a job's progress: on a terminal as two live lines, else as a line every few seconds. Events
// and changes of state appear at once, on lines that stay. Not thread-safe.
class ProgressDisplay {
 public:
  struct Options {
    FILE* out = stderr;
    // Redraws the last lines in place; `columns` is the terminal's width.
    bool terminal = false;
    int columns = 80;
    absl::Duration line_every = absl::Seconds(5);
    const Clock* clock = &SystemClock();
  };
  explicit ProgressDisplay(const Options& options);
  // Leaves the lines that are shown.
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  void Show(const v1::JobStatus& status);
  // Shows lines that stay, above the live ones.
  void Say(const std::string& line);

 private:
  void Erase();
  void DrawLive(const std::vector<std::string>& lines);
  std::vector<std::string> NewEvents(const v1::JobStatus& status);
  // The index of the first evaluation that has not been shown.
  int FirstNew(const v1::JobStatus& status) const;

  const Options options_;
  absl::Duration next_line_ = -absl::InfiniteDuration();
  int live_lines_ = 0;
  std::vector<std::string> last_live_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string phase_;
  int evaluations_ = 0;             // in the status shown last
  v1::Evaluation last_evaluation_;  // in the status shown last
  // The newest events that have been shown, oldest first.
  std::vector<v1::Event> shown_;
};

// Options for stderr or stdout: whether it is a terminal, and how wide.
ProgressDisplay::Options DisplayOn(FILE* out);

}  // namespace tessera::client
