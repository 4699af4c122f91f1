#pragma once

#include <functional>
#include <optional>
#include <string>

#include "client/commands/command.h"
#include "local/local_run.h"

namespace tessera::local {

// What commands ask for that take a trained model as it is: `predict` and `evaluate`.
struct ModelRun {
  client::JobOption job;
  std::string checkpoint;
  std::string data = ".";
  bool processes = false;
  bool json = false;

  // Adds the command line's options for all of these.
  void Add(CLI::App& command);
};

// Sets the request's task, and may change the job and the options.
using PrepareModelRun = std::function<absl::Status(LoadedJob& job, LocalRun::Options& run)>;

// Runs the job on a cluster of its own, from the checkpoint and in a temporary folder, and shows
// its progress. Returns the last status, also if the job failed, and sets the exit code; nullopt:
// the error was printed.
std::optional<v1::JobStatus> RunModel(const ModelRun& model, client::CommandContext& context,
                                      const PrepareModelRun& prepare);

}  // namespace tessera::local
