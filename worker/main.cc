#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "common/job/device.h"
#include "common/log.h"
#include "common/process/exit_code.h"
#include "common/process/no_thread.h"
#include "common/process/number_flags.h"
#include "common/process/server_process.h"
#include "common/process/stop_signal.h"
#include "common/rpc/address_flags.h"
#include "worker/worker.h"

namespace {

constexpr char kFooter[] = R"(Example:
  tessera-worker --master 127.0.0.1:7070 --name worker-0 --data-root /data/clicks

The worker may start before the master: it waits, and says whom it waits for. SIGTERM and Ctrl-C stop it: it says
goodbye, its rank is vacant at once, and another worker, if one is free or joins, takes up its unit where it left it;
nothing is rolled back. It exits within a second or two. With --listen, `tessera metrics ADDRESS` shows what it counts.

Exit codes:
  0    stopped by a signal
  1    refused for good: its name is taken, versions differ, or the scratch folder is in use; do not retry
  2    bad usage
  128  its card failed, it cannot listen, the disk is full, or it gets no thread; start it again)";

struct Flags {
  tessera::worker::Worker::Options options;
  std::string listen;
  bool insecure = false;
  tessera::ServerProcess process;
};

void AddFlags(CLI::App& app, Flags& flags) {
  flags.options.master_address = "127.0.0.1:7070";
  app.add_option("--master", flags.options.master_address,
                 "host:port of the master, or of all that may lead (tessera-master --etcd): "
                 "host:port,host:port")
      ->check(tessera::ServerAddresses())
      ->capture_default_str();
  app.add_option("--name", flags.options.name,
                 "stable over restarts, e.g. worker-0; the master picks one if empty");
  app.add_option("--data-root", flags.options.data_root, "folder that the files of jobs lie in")
      ->capture_default_str();
  app.add_option("--scratch-dir", flags.options.scratch_folder,
                 "folder of this worker alone for unpacked copies of compressed files; a temporary "
                 "one if empty");
  app.add_option("--data-cache", flags.options.data_cache_bytes,
                 "memory for parsed records, which later epochs need not parse, e.g. 8GiB")
      ->transform(tessera::ByteSize())
      ->default_str("1GiB");
  app.add_option("--output-root", flags.options.output_root,
                 "folder that predictions are written in")
      ->capture_default_str();
  app.add_option("--threads", flags.options.compute_threads,
                 "threads that compute the dense graph; 0: one per processor")
      ->capture_default_str()
      ->transform(tessera::WholeNumber(1024));
  app.add_option("--device", flags.options.device,
                 "device for jobs that leave it open: auto, cpu, cuda or cuda:N; of several cards, "
                 "auto and cuda take the one that the fewest other workers on this machine use")
      ->check(tessera::WrongDeviceFlag)
      ->capture_default_str();
  app.add_flag("--shared-memory,!--no-shared-memory", flags.options.share_memory,
               "rows and gradients go through shared memory to and from those ps that run on this "
               "machine as the same user and agree; through the network to all others")
      ->capture_default_str();
  app.add_option(
         "--listen", flags.listen,
         "host:port where the worker serves health and metrics and, in jobs with "
         "train.dense_gradients all_reduce, other workers, who reach it there: at a wildcard, such "
         "as 0.0.0.0, it serves the former and gets no rank of these jobs; port 0 takes a free "
         "one; no server if empty")
      ->check([](const std::string& text) {
        return text.empty() ? "" : tessera::ListenAddress()(text);
      });
  app.add_flag("--insecure", flags.insecure,
               "allow an address that other machines can reach, without encryption");
  flags.process.AddFlags(app, &flags.options.master_address);
  app.footer(kFooter);
}

// Runs the worker until a signal stops it or it cannot go on; returns the exit code.
int Serve(Flags& flags, tessera::StopSignal& stop) {
  tessera::worker::Worker::Options& options = flags.options;
  const auto security = flags.process.Begin(options.name.empty() ? "worker" : options.name);
  if (!security.ok()) {
    SPDLOG_ERROR("{}", std::string(security.status().message()));
    return 1;
  }
  const std::unique_ptr<tessera::Channels> channels = tessera::NewNetworkChannels(security->get());
  options.channels = channels.get();
  if (!flags.listen.empty()) {
    options.server = {
        .listen = flags.listen, .security = security->get(), .insecure = flags.insecure};
  }
  auto worker =
      tessera::OrNoThread("this worker", [&] { return tessera::worker::Worker::Start(options); });
  if (!worker.ok()) {
    SPDLOG_ERROR("{}", std::string(worker.status().message()));
    return tessera::ExitCodeOfStart(worker.status());
  }
  while (!stop.Wait(absl::Milliseconds(100))) {
    if (const absl::Status fatal = (*worker)->WaitForFatal(absl::ZeroDuration()); !fatal.ok()) {
      SPDLOG_ERROR("{}", std::string(fatal.message()));
      return absl::IsInternal(fatal) || absl::IsResourceExhausted(fatal) ? 128 : 1;
    }
  }
  SPDLOG_INFO("stopping");
  (*worker)->Stop();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  tessera::StopSignal stop;
  CLI::App app(
      "Trains: reads data, pulls rows from the parameter servers, computes, pushes gradients.",
      "tessera-worker");
  Flags flags;
  AddFlags(app, flags);
  if (const std::optional<int> code = tessera::ServerProcess::Parse(app, argc, argv)) return *code;
  return Serve(flags, stop);
}
