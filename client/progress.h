#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "tessera/v1/job_service.pb.h"

namespace tessera::client {

// What a job is at, for people. Pure functions.

// "training  epoch 2/100  step 74/5000  52.1k samples/s  loss 0.1832  AUC 0.9712  validation AUC
// 0.9785 logloss 0.1701  ETA 1m20s"; a job that waits: its state, reason and message.
std::string ProgressLine(const v1::JobStatus& status);
// "live: ps-0 ps-1 worker-0   lost: worker-1   waits: ..."; empty when the job has no processes.
std::string NodesLine(const v1::JobStatus& status);
// "950", "52.1k", "3.40M".
std::string ShortNumber(double value);
// "45s", "1m20s", "2h05m".
std::string ShortDuration(double seconds);
// The names of its metrics, in the order of math::AllMetrics, tasks by name.
std::vector<std::string> MetricsInOrder(const v1::Evaluation& evaluation);
// "auc 0.9785 logloss 0.1701", in that order.
std::string MetricsText(const v1::Evaluation& evaluation);

// Shows a job's progress as it comes: on a terminal two live lines, else a line every few seconds;
// events and changes of state at once, on lines that stay. Not thread-safe.
class ProgressDisplay {
 public:
  struct Options {
    FILE* out = stderr;
    // Redraw the last lines in place; `columns` is the terminal's width.
    bool terminal = false;
    int columns = 80;
    absl::Duration line_every = absl::Seconds(5);
    const Clock* clock = &SystemClock();
  };
  explicit ProgressDisplay(const Options& options);
  // Leaves what is shown standing.
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  void Show(const v1::JobStatus& status);
  // Lines that stay, above the live ones.
  void Say(const std::string& line);

 private:
  void Erase();
  void DrawLive(const std::vector<std::string>& lines);
  std::vector<std::string> NewEvents(const v1::JobStatus& status);
  // The first evaluation that has not been shown.
  int FirstNew(const v1::JobStatus& status) const;

  const Options options_;
  absl::Duration next_line_ = -absl::InfiniteDuration();
  int live_lines_ = 0;
  std::vector<std::string> last_live_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string phase_;
  int evaluations_ = 0;             // in the status shown last
  v1::Evaluation last_evaluation_;  // of these
  // The newest events that have been shown, oldest first.
  std::vector<v1::Event> shown_;
};

// Options for stderr or stdout as it is: a terminal, and how wide.
ProgressDisplay::Options DisplayOn(FILE* out);

}  // namespace tessera::client
