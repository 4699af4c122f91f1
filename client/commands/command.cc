#include "client/commands/command.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/job_json.h"
#include "common/config/override.h"
#include "common/job/defaults.h"
#include "common/job/validate.h"
#include "common/process/number_flags.h"
#include "common/rpc/address_flags.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"

namespace tessera::client {

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  if (IsRetryable(status) || absl::IsAborted(status)) return kExitRetry;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kUnknown:
      return kExitOpen;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailed;
  }
}

ExitCode ExitCodeOf(const v1::JobStatus& ended) {
  if (ended.state() == v1::SUCCEEDED) return kExitOk;
  return ended.reason() == "OutputFailed" ? kExitRetry : kExitFailed;
}

void InterruptHandler::Fire() {
  absl::MutexLock lock(&mu_);
  if (!handler_) _exit(kExitInterrupted);
  handler_();
}

std::shared_ptr<void> InterruptHandler::Set(std::function<void()> handler) {
  absl::MutexLock lock(&mu_);
  handler_ = std::move(handler);
  return std::shared_ptr<void>(nullptr, [this](void*) {
    absl::MutexLock lock(&mu_);
    handler_ = nullptr;
  });
}

void CommandContext::Fail(const absl::Status& status) {
  std::fprintf(err, "error: %s\n", std::string(status.message()).c_str());
  exit_code = ExitCodeOf(status);
}

void CommandContext::Print(const std::string& text) {
  if (out_failed) return;
  const char* const end = text.empty() || text.back() != '\n' ? "\n" : "";
  if (std::fprintf(out, "%s%s", text.c_str(), end) >= 0 && std::fflush(out) == 0) return;
  out_failed = true;
  Fail(absl::UnavailableError(absl::StrCat("cannot write to stdout: ", std::strerror(errno))));
}

void CommandContext::Print(const nlohmann::json& object) { Print(Dump(object)); }

void OutputOption::Add(CLI::App& command) {
  command.add_option("--output", format, "text for people, json for scripts")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

absl::Status CheckOutputFile(const std::string& file, absl::string_view what) {
  if (file != "json" && file != "text") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--output ", file, ": here it names ", what,
                                                 " (./", file, " is a file of that name)"));
}

void CommandContext::AddSecurity(CLI::App& command, const std::string& address) {
  security_flags.AddForClient(command);
  command.parse_complete_callback([this, &address] {
    if (const absl::Status given = security_flags.Check(address); !given.ok()) {
      throw CLI::ValidationError(std::string(given.message()));
    }
    absl::StatusOr<std::unique_ptr<Security>> loaded = security_flags.Load();
    if (!loaded.ok()) throw CLI::ValidationError(std::string(loaded.status().message()));
    if (*loaded == nullptr) return;
    security = *std::move(loaded);
    secure_channels = NewNetworkChannels(security.get());
    channels = secure_channels.get();
  });
}

void MasterOption::Add(CLI::App& command, CommandContext& context) {
  context.AddSecurity(command, address);
  command
      .add_option("--master", address,
                  "the master's HOST:PORT, or HOST:PORT,HOST:PORT of all that may lead")
      ->check(ServerAddresses())
      ->capture_default_str();
  command.add_option("--wait", wait_seconds, "seconds to wait for a master that does not answer")
      ->check(RealNumber(0, 1e6))
      ->capture_default_str();
}

std::unique_ptr<JobClient> MasterOption::Client(const CommandContext& context) const {
  JobClient::Options options;
  options.master_address = address;
  options.channels = context.channels;
  options.patience = absl::Seconds(wait_seconds);
  options.backoff.seed = static_cast<uint64_t>(getpid());
  FILE* err = context.err;
  options.on_wait = [err](const std::string& text) { std::fprintf(err, "%s\n", text.c_str()); };
  return std::make_unique<JobClient>(std::move(options));
}

void JobOption::Add(CLI::App& command) {
  command.add_option("JOB.yaml", file, "the job's file; deploy/jobs/ has examples")->required();
  command
      .add_option("--set", overrides,
                  "override a field: PATH=VALUE, such as train.epochs=3, tables.emb.dim=8 or "
                  "data.columns[2].type=string; may be repeated")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false);
}

absl::StatusOr<LoadedJob> JobOption::Load() const {
  TESSERA_ASSIGN_OR_RETURN(LoadedJob job, LoadJobFile(file));
  for (const std::string& assignment : overrides) {
    TESSERA_RETURN_IF_ERROR(ApplyOverride(assignment, job));
  }
  return job;
}

absl::StatusOr<LoadedJob> JobOption::LoadValid() const {
  TESSERA_ASSIGN_OR_RETURN(LoadedJob job, Load());
  TESSERA_RETURN_IF_ERROR(job.sources.Locate(ValidateJobSpec(job.spec)));
  return job;
}

absl::StatusOr<v1::JobStatus> WatchWithProgress(JobClient& client, const std::string& job_id,
                                                ProgressDisplay& display) {
  return client.Watch(job_id, [&](const v1::JobStatus& status) { display.Show(status); });
}

std::string SummaryText(const v1::JobStatus& status) {
  std::string text = absl::StrCat(status.job_id(), ": ", StateName(status.state()));
  if (!status.reason().empty()) absl::StrAppend(&text, " (", status.reason(), ")");
  // The message of a job that succeeded repeats its metrics.
  if (!status.message().empty() && status.final_metrics().empty()) {
    absl::StrAppend(&text, ": ", status.message());
  }
  absl::StrAppend(&text, "\n");
  if (IsTraining(status.task()) && status.step() > 0) {
    // A job that stops early or by force has begun its epoch, and need not have done all of it.
    absl::StrAppend(&text, "  trained     ", status.step(), " steps, to epoch ", status.epoch(),
                    status.epochs() > 0 ? absl::StrCat(" of ", status.epochs()) : "", ", ",
                    ShortNumber(static_cast<double>(status.samples())), " samples at ",
                    ShortNumber(status.mean_samples_per_second()), " samples/s; first step after ",
                    absl::StrFormat("%.1f s", status.seconds_to_first_step()), "\n");
  }
  if (status.bad_records() > 0) {
    absl::StrAppend(&text, status.task() == v1::PREDICT ? "  left empty  " : "  left out    ",
                    status.bad_records(), " bad records\n");
  }
  for (const auto& split : {"validation", "test"}) {
    const auto found = status.final_metrics().find(split);
    if (found == status.final_metrics().end()) continue;
    absl::StrAppend(&text, absl::StrFormat("  %-12s%s\n", split, MetricsText(found->second)));
  }
  if (!status.checkpoint().empty()) {
    absl::StrAppend(&text, "  checkpoint  ", status.checkpoint(), "\n");
  }
  // Of a prediction that failed there is none, or only the parts of some workers.
  if (!status.output().empty() && status.state() != v1::FAILED) {
    absl::StrAppend(&text, "  output      ", status.output(), "\n");
  }
  return text;
}

}  // namespace tessera::client
