#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/job_client.h"
#include "client/progress.h"
#include "common/config/yaml_job.h"
#include "common/rpc/channels.h"
#include "common/rpc/security_flags.h"
#include "nlohmann/json.hpp"

// Shared parts of the commands of `tessera`. Each command is one file with one function Add...(app,
// context) that declares its options and its action; commands.h has the declarations.
namespace tessera::client {

// How the command ended; documented in `tessera --help`.
enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,    // the job, or the command's work, failed
  kExitUsage = 2,     // bad usage or a bad job
  kExitNotFound = 3,  // no such job, file or checkpoint
  kExitDiffers = 4,   // the compared checkpoints differ
  kExitOpen = 5,      // the job was sent, and it is not known whether the master has it
  kExitRetry = 128,   // the same command may succeed later
  kExitInterrupted = 130,
};
ExitCode ExitCodeOf(const absl::Status& status);
ExitCode ExitCodeOf(const v1::JobStatus& ended);

// The action of Ctrl-C and SIGTERM: runs the handler that the command under way has set, else ends
// the process with kExitInterrupted. Thread-safe.
class InterruptHandler {
 public:
  void Fire() ABSL_LOCKS_EXCLUDED(mu_);
  // Holds until the returned object is destroyed. `handler` runs under the lock; must return soon.
  std::shared_ptr<void> Set(std::function<void()> handler) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  std::function<void()> handler_ ABSL_GUARDED_BY(mu_);
};

// Made in main; outlives the commands.
struct CommandContext {
  Channels* channels = nullptr;  // secure_channels once a command is told to use TLS
  InterruptHandler* interrupt = nullptr;
  FILE* out = stdout;
  FILE* err = stderr;
  // Set by the command that ran.
  int exit_code = kExitOk;
  // Print could not write and has reported that: the command ends with kExitRetry, whatever
  // exit_code is.
  bool out_failed = false;

  // Checks the network of a job whose fields are good, and returns warnings (local/check.h); null:
  // only its fields are checked.
  std::function<absl::StatusOr<std::vector<std::string>>(const LoadedJob&)> check_model = nullptr;

  SecurityFlags security_flags;
  std::unique_ptr<Security> security;
  std::unique_ptr<Channels> secure_channels;

  // Adds --tls-ca and so on to a command that calls the master or another process at `address`,
  // which is borrowed until the app has parsed.
  void AddSecurity(CLI::App& command, const std::string& address);
  // Prints the error on `err` and sets the exit code.
  void Fail(const absl::Status& status);
  // Does nothing once out_failed.
  void Print(const std::string& text);
  void Print(const nlohmann::json& object);
};

// --output text|json.
struct OutputOption {
  std::string format = "text";
  bool json() const { return format == "json"; }
  void Add(CLI::App& command);
};

// For a command whose --output is a file: INVALID_ARGUMENT if it is a format of the other commands'
// --output. `what`: the meaning of --output here, and how to get the format.
absl::Status CheckOutputFile(const std::string& file, absl::string_view what);

// --master HOST:PORT[,HOST:PORT...], --wait SECONDS.
struct MasterOption {
  std::string address = "127.0.0.1:7070";
  double wait_seconds = 10;
  void Add(CLI::App& command, CommandContext& context);
  // A client that prints on context.err whom it waits for.
  std::unique_ptr<JobClient> Client(const CommandContext& context) const;
};

// JOB.yaml and --set PATH=VALUE.
struct JobOption {
  std::string file;
  std::vector<std::string> overrides;
  void Add(CLI::App& command);
  // Reads the job and applies --set; does not validate.
  absl::StatusOr<LoadedJob> Load() const;
  // As Load, and validates.
  absl::StatusOr<LoadedJob> LoadValid() const;
};

// Watches the job with progress on `display` until it has ended; CANCELLED: interrupted.
absl::StatusOr<v1::JobStatus> WatchWithProgress(JobClient& client, const std::string& job_id,
                                                ProgressDisplay& display);

// The result of a job for people: state, metrics, checkpoint.
std::string SummaryText(const v1::JobStatus& status);

}  // namespace tessera::client
