#include "tests/bench/wire_servers.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "common/log.h"
#include "common/process/resident.h"
#include "common/rpc/channels.h"
#include "ps/parameter_server.h"
#include "tests/bench/wire_echo.h"
#include "tests/paths.h"

namespace tessera::bench {

namespace {

// Until `from` is closed at its other end. The exit status.
int Serve(uint64_t max_bytes, SecurityFiles files, const std::string& folder, int from, int to) {
  spdlog::set_level(spdlog::level::off);
  const auto channels = NewNetworkChannels();
  files.certificate = folder + "/server.crt";
  files.key = folder + "/server.key";
  const auto security = Security::Load(files);
  if (!security.ok()) return 1;
  ps::ParameterServer::Options options;
  options.master_address = "127.0.0.1:1";  // there is none; jobs are opened by the benchmark
  options.name = "ps-0";
  options.channels = channels.get();
  options.files = &PosixFileSystem();
  options.clock = &SystemClock();
  options.max_queued_bytes = max_bytes;
  options.max_unsent_bytes = max_bytes;
  options.data_folder = folder + "/data";
  options.checkpoint_root = folder;
  const auto ps = ps::ParameterServer::Start(options);
  options.data_folder.clear();
  options.server.security = security->get();
  const auto secured = ps::ParameterServer::Start(options);
  const auto echo = EchoServer::Start();
  if (!ps.ok() || !secured.ok() || !echo.ok()) return 1;
  const std::string line =
      absl::StrCat((*ps)->address(), " ", (*secured)->address(), " ", (*echo)->address(), "\n");
  if (write(to, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return 1;
  for (char c; read(from, &c, 1) > 0;) {
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WireServers>> WireServers::Start(uint64_t max_bytes) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError("no pipe");
  }
  char folder[] = "/tmp/tessera-wire-XXXXXX";
  if (mkdtemp(folder) == nullptr) return absl::ResourceExhaustedError("no temporary folder");
  const std::string make =
      absl::StrCat(SourcePath("deploy/make-certificates"), " ", folder, " >/dev/null");
  if (std::system(make.c_str()) != 0) return absl::UnavailableError(make);
  SecurityFiles security;
  security.ca = absl::StrCat(folder, "/ca.crt");
  security.token = absl::StrCat(folder, "/token");
  const pid_t pid = fork();
  if (pid < 0) return absl::ResourceExhaustedError("no process for the servers");
  if (pid == 0) {
    close(in[1]);
    close(out[0]);
    _exit(Serve(max_bytes, security, folder, in[0], out[1]));
  }
  close(in[0]);
  close(out[1]);
  std::unique_ptr<WireServers> servers(new WireServers(pid, in[1], out[0]));
  servers->folder_ = folder;
  servers->security_ = security;
  std::string line;
  for (char c; read(out[0], &c, 1) == 1 && c != '\n';) line.push_back(c);
  const std::vector<std::string> addresses = absl::StrSplit(line, ' ');
  if (addresses.size() != 3) return absl::UnavailableError("the servers did not start");
  servers->ps_ = addresses[0];
  servers->secured_ps_ = addresses[1];
  servers->echo_ = addresses[2];
  return servers;
}

WireServers::~WireServers() {
  close(to_);
  close(from_);
  waitpid(pid_, nullptr, 0);
  std::filesystem::remove_all(folder_);
}

uint64_t WireServers::ResidentBytes() const { return tessera::ResidentBytes(pid_); }

}  // namespace tessera::bench
