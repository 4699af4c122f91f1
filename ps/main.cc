#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "common/log.h"
#include "common/process/exit_code.h"
#include "common/process/freed_memory.h"
#include "common/process/no_thread.h"
#include "common/process/number_flags.h"
#include "common/process/server_process.h"
#include "common/process/stop_signal.h"
#include "common/rpc/address.h"
#include "common/rpc/address_flags.h"
#include "ps/parameter_server.h"

namespace {

constexpr char kFooter[] = R"(Examples:
  tessera-ps --master 127.0.0.1:7070 --name ps-0 --checkpoint-root /data/checkpoints
  tessera-ps --listen 10.0.0.7:7081 --insecure --master 10.0.0.1:7070 --data-dir /data/ps-0
  tessera-ps --name ps-0 --memory 8GiB --spill-dir /nvme/ps-0

The ps may start before the master: it waits, and says whom it waits for. Its rows live in memory, and with
--spill-dir on disk too. Rows that do not fit into --memory and cannot leave it are refused: their job waits, and fails
after five minutes without room. After a restart the master has rows restored from the job's last checkpoint. A ps that starts
again with the same --name and --data-dir also restores all that was pushed since, for jobs with a push log.

SIGTERM and Ctrl-C stop it. Jobs that would lose what they have trained first go to their next barrier and cut a
checkpoint of the rows that have changed since the last one. The ps waits for them, and for a master that is away, for
at most --leave-within. A second signal ends it at once.

Exit codes:
  0     stopped by a signal
  1     refused for good: its name is taken, versions differ, or the data folder is in use; do not retry
  2     bad usage
  128+  it cannot listen, the disk is full, or it was killed; start it again)";

// What the command line says.
struct Flags {
  tessera::ps::ParameterServer::Options options;
  std::string spill_reads = "direct";
  const CLI::Option* copies = nullptr;  // --checkpoint-copies
  bool share_memory = true;
  double leave_within = 20;  // seconds
};

// Where it listens, whom it joins, and its folders.
void AddPlaceFlags(CLI::App& app, tessera::ps::ParameterServer::Options& options) {
  app.add_option("--listen", options.server.listen,
                 "host:port to serve on; port 0 takes a free one")
      ->check(tessera::ListenAddress())
      ->capture_default_str();
  app.add_option("--advertise", options.advertise_host,
                 "host by which other machines reach this one, if not that of --listen; without a "
                 "port, an IPv6 address in brackets")
      ->check([](const std::string& host) {
        return host.empty() || tessera::ParseServerAddress(host + ":1").ok()
                   ? std::string()
                   : "is \"" + host +
                         "\", expected a host without a port, as 10.0.0.7, ps-0.net "
                         "or [fd00::7]";
      });
  app.add_option("--master", options.master_address,
                 "host:port of the master, or of all that may lead (tessera-master --etcd): "
                 "host:port,host:port")
      ->check(tessera::ServerAddresses())
      ->capture_default_str();
  app.add_option("--name", options.name,
                 "stable over restarts, e.g. ps-0; the master picks one if empty");
  app.add_option("--data-dir", options.data_folder,
                 "folder of this process alone, created if need be, that outlives it: it holds the "
                 "push logs of jobs that have one (recovery.push_log)");
  app.add_option("--log-bytes", options.max_log_bytes,
                 "most bytes that a job's push log may take, e.g. 100GiB; a log shrinks with every "
                 "checkpoint, which is cut early from a half of them on, and awaited from three "
                 "quarters on. Default: no limit but the disk")
      ->transform(tessera::ByteSize());
  app.add_option("--checkpoint-root", options.checkpoint_root,
                 "folder that checkpoints lie in, the same as the master's")
      ->capture_default_str();
}

// What rows, and copies of them, may take of memory and disk.
void AddMemoryFlags(CLI::App& app, Flags& flags) {
  tessera::ps::ParameterServer::Options& options = flags.options;
  CLI::Option* const spill =
      app.add_option("--spill-dir", options.spill_folder,
                     "folder of this process alone for rows that --memory has no room for; emptied "
                     "at the start; needs --memory. Default: all rows stay in memory");
  CLI::Option* const memory =
      app.add_option("--memory", options.memory_bytes,
                     "memory for the whole process, e.g. 8GiB. Rows get what the rest leaves; with "
                     "--spill-dir those that may leave for it get at least half, and below 256MiB "
                     "the process exceeds it. Rows that do not fit and cannot leave are refused. "
                     "Default, without --spill-dir: no limit")
          ->transform(tessera::ByteSize(/*least=*/1));
  spill->needs(memory);
  app.add_option("--spill-bytes", options.max_spill_bytes,
                 "most bytes of a job's files in the spill folder, e.g. 500GiB; they need up to "
                 "three times the rows' own bytes, four while a checkpoint is written. Default: no "
                 "limit but the disk")
      ->transform(tessera::ByteSize(/*least=*/1))
      ->needs(spill);
  app.add_option(
         "--spill-reads", flags.spill_reads,
         "how rows in the spill folder are read. cached: through the kernel's page cache, "
         "which takes memory beside --memory and is faster if the machine has some to spare; "
         "direct: past that cache")
      ->capture_default_str()
      ->check(CLI::IsMember({"direct", "cached"}))
      ->needs(spill);
  flags.copies =
      app.add_option(
             "--checkpoint-copies", options.max_copied_bytes,
             "memory for copies of rows that change before the checkpoint under way has "
             "written them, in all jobs. Default: 1GiB, or an eighth of --memory if that is "
             "less")
          ->transform(tessera::ByteSize());
}

// How it works on calls, and how it stops.
void AddServiceFlags(CLI::App& app, Flags& flags) {
  tessera::ps::ParameterServer::Options& options = flags.options;
  app.add_option("--checkpoint-share", options.writer_share,
                 "share of its time that the checkpoint writer works while pushes come; the rest "
                 "it sleeps")
      ->capture_default_str()
      ->check(tessera::RealNumber(0.01, 1));
  app.add_option("--threads", options.threads,
                 "threads that work on requests; 0: one per processor, and one more")
      ->capture_default_str()
      ->transform(tessera::WholeNumber(1024));
  app.add_flag("--shared-memory,!--no-shared-memory", flags.share_memory,
               "workers on this machine, of the same user, may hand over rows and gradients in "
               "shared memory instead of through the network; 1 GiB in all, or an eighth of "
               "--memory if that is less")
      ->capture_default_str();
  app.add_option("--leave-within", flags.leave_within,
                 "seconds that a stopping ps waits for jobs to cut a checkpoint; keep it below the "
                 "grace period of whatever stops it. 0: does not wait")
      ->capture_default_str()
      ->check(tessera::RealNumber(0, 86400));
  app.add_flag("--insecure", options.server.insecure,
               "allow an address that other machines can reach, without encryption");
}

// What the flags mean together.
void Settle(Flags& flags) {
  tessera::ps::ParameterServer::Options& options = flags.options;
  if (!flags.share_memory) options.max_shared_bytes = 0;
  options.memory_of_process = true;
  options.spill_page_cache = flags.spill_reads == "cached";
  if (options.memory_bytes == 0) return;
  const uint64_t wished = options.max_copied_bytes;
  options.BoundBeside(options.memory_bytes);
  if (flags.copies->count() > 0) options.max_copied_bytes = wished;
}

// Serves until it is to stop; returns the exit code.
int Serve(tessera::StopSignal& stop, const tessera::ps::ParameterServer::Options& options,
          double leave_within) {
  auto server =
      tessera::OrNoThread("this ps", [&] { return tessera::ps::ParameterServer::Start(options); });
  if (!server.ok()) {
    SPDLOG_ERROR("{}", std::string(server.status().message()));
    return tessera::ExitCodeOfStart(server.status());
  }
  while (!stop.Wait(absl::Milliseconds(100))) {
    if (const absl::Status fatal = (*server)->WaitForFatal(absl::ZeroDuration()); !fatal.ok()) {
      SPDLOG_ERROR("{}", std::string(fatal.message()));
      return 1;
    }
  }
  SPDLOG_INFO("to stop: waits for the master's leave, {} s at most", leave_within);
  const bool released = (*server)->AwaitRelease(absl::Seconds(leave_within));
  SPDLOG_INFO("stopping{}", released ? "" : ", without the master's leave");
  (*server)->Stop(absl::Seconds(5));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  tessera::StopSignal stop;
  Flags flags;
  tessera::ps::ParameterServer::Options& options = flags.options;
  options.master_address = "127.0.0.1:7070";
  options.checkpoint_root = "./tessera-checkpoints";
  CLI::App app(
      "Holds the rows of embedding tables and the dense parameters, and applies gradients.",
      "tessera-ps");
  AddPlaceFlags(app, options);
  AddMemoryFlags(app, flags);
  AddServiceFlags(app, flags);
  tessera::ServerProcess process;
  process.AddFlags(app, &options.master_address);
  app.footer(kFooter);
  if (const std::optional<int> code = tessera::ServerProcess::Parse(app, argc, argv)) return *code;
  Settle(flags);
  if (options.memory_bytes > 0) tessera::KeepFreedMemoryWithin(options.memory_bytes);

  const auto security = process.Begin(options.name.empty() ? "ps" : options.name);
  if (!security.ok()) {
    SPDLOG_ERROR("{}", std::string(security.status().message()));
    return 1;
  }
  options.server.security = security->get();
  const std::unique_ptr<tessera::Channels> channels = tessera::NewNetworkChannels(security->get());
  options.channels = channels.get();
  options.files = &tessera::PosixFileSystem();
  options.clock = &tessera::SystemClock();
  return Serve(stop, options, flags.leave_within);
}
