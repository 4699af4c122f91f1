// tessera-master: flags, seams, and a clean stop.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/log.h"
#include "common/process/exit_code.h"
#include "common/process/no_thread.h"
#include "common/process/number_flags.h"
#include "common/process/server_process.h"
#include "common/process/stop_signal.h"
#include "common/rpc/address.h"
#include "common/rpc/address_flags.h"
#include "common/status_macros.h"
#include "master/etcd/etcd_client.h"
#include "master/etcd/etcd_state_log.h"
#include "master/etcd/leadership.h"
#include "master/master.h"

namespace {

constexpr char kDescription[] =
    "The master of a Tessera cluster: keeps the queue of jobs, hands out work, commits "
    "checkpoints.\n"
    "Start one, or several over etcd of which one leads; then ps and workers that join it; then "
    "submit jobs.";
constexpr char kFooter[] =
    "Examples:\n"
    "  tessera-master\n"
    "      on this machine only, state in ./tessera-master, checkpoints in ./tessera-checkpoints\n"
    "  tessera-master --listen 0.0.0.0:7070 --insecure --data-dir /var/lib/tessera \\\n"
    "                 --checkpoint-root /shared/checkpoints\n"
    "      for other machines too; the checkpoint root is one folder that all ps share\n"
    "  tessera-master --etcd e1:2379,e2:2379,e3:2379 --cluster clicks --listen m1:7070 --insecure "
    "\\\n"
    "                 --checkpoint-root /shared/checkpoints\n"
    "      state in etcd; start the same on m2: one leads, the other stands by without listening,\n"
    "      and takes over, jobs and all, when the lease of the first has run out. Processes and\n"
    "      the tessera command are told of both: --master m1:7070,m2:7070\n"
    "  then: tessera-ps --master 127.0.0.1:7070 ...; tessera-worker --master 127.0.0.1:7070 ...;\n"
    "        tessera submit job.yaml\n\n"
    "Stop it with SIGTERM or Ctrl-C; a second one ends it at once. Jobs that were running go on "
    "where\n"
    "they are when a master starts with the same --data-dir. With --etcd one that stands by takes\n"
    "over at once.\n\n"
    "Exit codes: 0 stopped; 1 to 127: do not retry (wrong flags, a data folder in use, damaged\n"
    "state); 128 and up: retry (the address is taken, the disk fails for now, or this master "
    "leads\n"
    "no more: start it again, and it stands by).";

constexpr int kRetry = 128;

// The state in etcd, and this process's leadership, which entitles it to the state.
struct SharedState {
  std::unique_ptr<tessera::Security> security;  // null: no TLS
  std::unique_ptr<tessera::Channels> channels;
  std::unique_ptr<tessera::master::EtcdClient> etcd;
  std::unique_ptr<tessera::master::Leadership> leadership;
  std::unique_ptr<tessera::master::StateLog> log;
};

struct EtcdFlags {
  std::vector<std::string> members;
  std::string cluster = "default";
  tessera::SecurityFiles security;
};

// This process's name in the logs of masters that stand by.
std::string Self(const std::string& listen) {
  char host[256] = "?";
  ::gethostname(host, sizeof(host) - 1);
  return absl::StrCat("the master at ", listen, " (", host, ", pid ", ::getpid(), ")");
}

// Stands by until this process leads. CANCELLED: it was stopped before.
absl::StatusOr<SharedState> Lead(const EtcdFlags& flags,
                                 const tessera::master::Master::Options& options,
                                 tessera::StopSignal* stop) {
  for (const std::string& member : flags.members) {
    if (!tessera::IsLoopback(member) && flags.security.empty() && !options.server.insecure) {
      return absl::FailedPreconditionError(
          absl::StrCat("--etcd ", member, " is another machine: give --etcd-ca, or accept with ",
                       "--insecure that it is called without TLS"));
    }
  }
  // Checks now what would otherwise fail only when this process takes over.
  TESSERA_RETURN_IF_ERROR(tessera::CheckListen(options.server));
  TESSERA_RETURN_IF_ERROR(tessera::WithContext(options.files->CreateFolder(options.checkpoint_root),
                                               "checkpoint root"));
  SharedState state;
  if (!flags.security.empty()) {
    TESSERA_ASSIGN_OR_RETURN(state.security, tessera::Security::Load(flags.security));
  }
  state.channels = tessera::NewNetworkChannels(state.security.get());
  state.etcd = std::make_unique<tessera::master::EtcdClient>(flags.members, state.channels.get());
  tessera::master::Leadership::Options leadership;
  leadership.etcd = state.etcd.get();
  leadership.cluster = flags.cluster;
  leadership.self = Self(options.server.listen);
  leadership.ttl = options.lease;
  leadership.on_lost = [stop] { stop->Ask(); };
  TESSERA_ASSIGN_OR_RETURN(state.leadership, tessera::master::Leadership::Campaign(
                                                 leadership, [stop](absl::Duration duration) {
                                                   return stop->Wait(duration);
                                                 }));
  TESSERA_ASSIGN_OR_RETURN(
      state.log, tessera::master::OpenEtcdStateLog(state.etcd.get(), state.leadership.get()));
  return state;
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
  double stuck_after_seconds = 600;
  std::string quotas_file;
  app.add_option("--listen", options.server.listen, "Where to serve, host:port; port 0: a free one")
      ->check(tessera::ListenAddress())
      ->capture_default_str();
  CLI::Option* const data_dir = app.add_option("--data-dir", options.data_dir,
                                               "Folder of the durable state, of this master alone")
                                    ->capture_default_str();
  EtcdFlags etcd;
  CLI::Option* const members =
      app.add_option("--etcd", etcd.members,
                     "HOST:PORT[,HOST:PORT...] of an etcd (3.4 or later) that has the durable "
                     "state in place of --data-dir; of the masters of one cluster one leads, the "
                     "others stand by")
          ->delimiter(',')
          ->check(tessera::ServerAddresses())
          ->allow_extra_args(false)
          ->excludes(data_dir);
  app.add_option("--cluster", etcd.cluster, "Name of the cluster in etcd: keys /tessera/NAME/...")
      ->capture_default_str()
      ->needs(members);
  CLI::Option* const etcd_ca =
      app.add_option("--etcd-ca", etcd.security.ca,
                     "PEM file of the authority that has signed the certificates of etcd's "
                     "members: etcd is called with TLS")
          ->needs(members);
  CLI::Option* const etcd_certificate =
      app.add_option("--etcd-certificate", etcd.security.certificate,
                     "PEM file of the certificate that this master shows etcd, where etcd asks for "
                     "one (--client-cert-auth)")
          ->needs(etcd_ca);
  etcd_certificate->needs(
      app.add_option("--etcd-key", etcd.security.key, "PEM file of that certificate's private key")
          ->needs(etcd_certificate));
  app.add_option("--checkpoint-root", options.checkpoint_root,
                 "Folder of all checkpoints, the same for the master and all ps, and no other "
                 "cluster's")
      ->capture_default_str();
  app.add_flag("--insecure", options.server.insecure,
               "Allow an address that other machines reach, or an etcd there, without TLS");
  tessera::ServerProcess process;
  process.AddFlags(app);
  app.add_option("--lease-seconds", lease_seconds,
                 "A process that says nothing for so long is dead; so is a master that leads by "
                 "--etcd, in whole seconds")
      ->capture_default_str()
      ->check(tessera::RealNumber(0.5, 3600));
  app.add_option("--least-run-seconds", least_run_seconds,
                 "A job that has trained for less since it was started is not pre-empted")
      ->capture_default_str()
      ->check(tessera::RealNumber(0, 86400));
  app.add_option("--stuck-after-seconds", stuck_after_seconds,
                 "A worker that lives, makes no step of its training for so long and waits for "
                 "nobody is taken for lost, and another gets its rank")
      ->capture_default_str()
      ->check(tessera::RealNumber(1, 86400));
  app.add_option("--quotas", quotas_file,
                 "YAML file of what teams (team in a job) may use together: {teams: [{name: ads,\n"
                 "workers: 4, rows: 1000000, row_bytes: 1000000000}, {name: \"*\", workers: 1}]}");
  if (const std::optional<int> code = tessera::ServerProcess::Parse(app, argc, argv)) return *code;

  const auto security = process.Begin("master");
  if (!security.ok()) {
    SPDLOG_ERROR("{}", std::string(security.status().message()));
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
  options.server.security = security->get();
  const std::unique_ptr<tessera::Channels> channels = tessera::NewNetworkChannels(security->get());
  options.channels = channels.get();
  options.lease = absl::Seconds(lease_seconds);
  options.heartbeat = options.lease / 5;
  options.least_run = absl::Seconds(least_run_seconds);
  options.stuck_after = absl::Seconds(stuck_after_seconds);
  SharedState shared;
  if (!etcd.members.empty()) {
    absl::StatusOr<SharedState> state =
        tessera::OrNoThread("this master", [&] { return Lead(etcd, options, &stop); });
    if (absl::IsCancelled(state.status())) {
      SPDLOG_INFO("stopped while standing by");
      return 0;
    }
    if (!state.ok()) {
      SPDLOG_ERROR("cannot start: {}", std::string(state.status().message()));
      return tessera::ExitCodeOfStart(state.status());
    }
    shared = *std::move(state);
    options.state_log = shared.log.get();
  }
  auto master =
      tessera::OrNoThread("this master", [&] { return tessera::master::Master::Start(options); });
  if (!master.ok()) {
    SPDLOG_ERROR("cannot start: {}", std::string(master.status().message()));
    return tessera::ExitCodeOfStart(master.status());
  }
  stop.Wait();
  if (shared.leadership != nullptr && !shared.leadership->Check().ok()) {
    SPDLOG_ERROR("stopping at once; start it again, and it stands by");
    (*master)->Stop(absl::ZeroDuration());
    return kRetry;
  }
  SPDLOG_INFO("stopping");
  (*master)->Stop(absl::Seconds(1));
  return 0;
}
