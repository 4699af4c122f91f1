#include "local/commands/shown_run.h"

#include <csignal>
#include <utility>

namespace tessera::local {

ShownRun::ShownRun(client::CommandContext& context)
    : context_(context), display_(client::DisplayOn(context.err)) {
  std::signal(SIGPIPE, SIG_IGN);
}

void ShownRun::Say(const std::string& text) {
  absl::MutexLock lock(&mu_);
  display_.Say(text);
}

std::optional<v1::JobStatus> ShownRun::Run(LocalRun::Options options) {
  options.cluster.say = [this](const std::string& text) { Say(text); };
  options.on_status = [this](const v1::JobStatus& status) {
    absl::MutexLock lock(&mu_);
    display_.Show(status);
  };
  LocalRun run(std::move(options));
  absl::StatusOr<v1::JobStatus> status = absl::UnknownError("");
  {
    const auto interrupt = context_.interrupt->Set([&run] { run.Cancel(); });
    status = run.Run();
  }
  if (!status.ok()) context_.Fail(status.status());
  if (run.cancelled()) {
    context_.exit_code = client::kExitInterrupted;
  } else if (status.ok()) {
    context_.exit_code = client::ExitCodeOf(*status);
  }
  if (!status.ok()) return std::nullopt;
  return *std::move(status);
}

}  // namespace tessera::local
