// tessera-master: flags, seams, and a clean stop.
#include <cstdlib>
#include <iostream>
#include <string>

#include "CLI/CLI.hpp"
#include "common/failpoint.h"
#include "common/log.h"
#include "common/mutex_checks.h"
#include "common/process/file_descriptors.h"
#include "common/process/stop_signal.h"
#include "common/version.h"
#include "master/master.h"

namespace {

constexpr char kDescription[] =
    "The master of a Tessera cluster: keeps the queue of jobs, hands out work, commits "
    "checkpoints.\n"
    "Start one; then ps and workers that join it; then submit jobs.";
constexpr char kFooter[] =
    "Examples:\n"
    "  tessera-master\n"
    "      on this machine only, state in ./tessera-master, checkpoints in ./tessera-checkpoints\n"
    "  tessera-master --listen 0.0.0.0:7070 --insecure --data-dir /var/lib/tessera \\\n"
    "                 --checkpoint-root /shared/checkpoints\n"
    "      for other machines too; the checkpoint root is one folder that all ps share\n"
    "  then: tessera-ps --master 127.0.0.1:7070 ...; tessera-worker --master 127.0.0.1:7070 ...;\n"
    "        tessera submit job.yaml\n\n"
    "Stop it with SIGTERM or Ctrl-C; a second one ends it at once. Jobs that were running go on "
    "where\n"
    "they are when a master starts with the same --data-dir.\n\n"
    "Exit codes: 0 stopped; 1 to 127: do not retry (wrong flags, a data folder in use, damaged\n"
    "state); 128 and up: retry (the address is taken or the disk fails for now).";

int ExitCode(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ? 128 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  tessera::StopSignal stop;
  CLI::App app(kDescription, "tessera-master");
  app.footer(kFooter);
  tessera::master::Master::Options options;
  options.server.listen = "127.0.0.1:7070";
  options.data_dir = "./tessera-master";
  options.checkpoint_root = "./tessera-checkpoints";
  double lease_seconds = 10;
  double least_run_seconds = 10;
  std::string quotas_file;
  std::string log_level = "info";
  app.add_option("--listen", options.server.listen, "Where to serve, host:port; port 0: a free one")
      ->capture_default_str();
  app.add_option("--data-dir", options.data_dir,
                 "Folder of the durable state, of this master alone")
      ->capture_default_str();
  app.add_option("--checkpoint-root", options.checkpoint_root,
                 "Folder of all checkpoints, the same for the master and all ps")
      ->capture_default_str();
  app.add_flag("--insecure", options.server.insecure,
               "Allow an address that other machines reach, without TLS");
  app.add_option("--lease-seconds", lease_seconds,
                 "A process that says nothing for so long is dead")
      ->capture_default_str()
      ->check(CLI::Range(0.5, 3600.0));
  app.add_option("--least-run-seconds", least_run_seconds,
                 "A job that has trained for less since it was started is not pre-empted")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  app.add_option("--quotas", quotas_file,
                 "YAML file of what teams (team in a job) may use together: {teams: [{name: ads,\n"
                 "workers: 4, rows: 1000000, row_bytes: 1000000000}, {name: \"*\", workers: 1}]}");
  app.add_option("--log-level", log_level, "trace, debug, info, warning, error or off")
      ->capture_default_str()
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}));
  app.set_version_flag("--version", std::string("tessera-master ") + tessera::kVersion);
  CLI11_PARSE(app, argc, argv);

  tessera::EndMutexChecks();
  tessera::InitLog("master", log_level);
  if (const absl::Status enough = tessera::CheckFileDescriptors(); !enough.ok()) {
    SPDLOG_ERROR("{}", std::string(enough.message()));
    return 1;
  }
  if (const absl::Status armed = tessera::ArmFailpoints(std::getenv(tessera::kFailpointsVariable));
      !armed.ok()) {
    SPDLOG_ERROR("{}", std::string(armed.message()));
    return 1;
  }
  if (options.data_dir.empty()) {
    SPDLOG_ERROR("--data-dir must name a folder");
    return 1;
  }
  if (!quotas_file.empty()) {
    absl::StatusOr<tessera::master::Quotas> quotas = tessera::master::LoadQuotas(quotas_file);
    if (!quotas.ok()) {
      SPDLOG_ERROR("{}", std::string(quotas.status().message()));
      return 1;
    }
    options.quotas = *std::move(quotas);
  }
  const std::unique_ptr<tessera::Channels> channels = tessera::NewNetworkChannels();
  options.channels = channels.get();
  options.lease = absl::Seconds(lease_seconds);
  options.heartbeat = options.lease / 5;
  options.least_run = absl::Seconds(least_run_seconds);
  auto master = tessera::master::Master::Start(options);
  if (!master.ok()) {
    SPDLOG_ERROR("cannot start: {}", std::string(master.status().message()));
    return ExitCode(master.status());
  }
  stop.Wait();
  SPDLOG_INFO("stopping");
  (*master)->Stop(absl::Seconds(1));
  return 0;
}
