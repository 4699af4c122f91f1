#pragma once

#include <optional>
#include <string>

#include "absl/synchronization/mutex.h"
#include "client/commands/command.h"
#include "client/progress.h"
#include "local/local_run.h"

namespace tessera::local {

// What a command shows of a run while it goes on, on the context's stderr. `context` is borrowed
// and outlives it. From the first one on, writes to a pipe whose reader has gone fail instead of
// ending the process: Ctrl-C of `... | tee log` still cancels the job.
class ShownRun {
 public:
  explicit ShownRun(client::CommandContext& context);

  // A line of its own. Thread-safe.
  void Say(const std::string& text) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs the job, which an interrupt cancels. Returns the last status, also if the job failed, and
  // sets the exit code; nullopt: the error was printed. Sets `say` and `on_status` of the options.
  std::optional<v1::JobStatus> Run(LocalRun::Options options) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  client::CommandContext& context_;
  absl::Mutex mu_;
  client::ProgressDisplay display_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::local
