#include "tests/overload/ps_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "common/log.h"
#include "common/metrics/metrics.h"
#include "common/process/freed_memory.h"
#include "common/process/resident.h"
#include "common/rpc/channels.h"
#include "ps/parameter_server.h"

namespace tessera::overload {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

bool WriteAll(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, at, bytes);
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}
bool ReadAll(int fd, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::read(fd, at, bytes);
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool WriteText(int fd, const std::string& text) {
  const uint64_t bytes = text.size();
  return WriteAll(fd, &bytes, sizeof(bytes)) && WriteAll(fd, text.data(), bytes);
}
absl::StatusOr<std::string> ReadText(int fd) {
  uint64_t bytes = 0;
  if (!ReadAll(fd, &bytes, sizeof(bytes))) return absl::UnavailableError("the ps has ended");
  std::string text(bytes, '\0');
  if (!ReadAll(fd, text.data(), bytes)) return absl::UnavailableError("the ps has ended");
  return text;
}

// Until `from` is closed at its other end. The exit status.
int Serve(const PsProcess::Options& soaked, int from, int to) {
  KeepFreedMemoryWithin(soaked.memory_bytes);
  InitLog("soak-ps", "error");
  const auto channels = NewNetworkChannels();
  MetricsRegistry metrics;
  ps::ParameterServer::Options options;
  options.server.listen = "127.0.0.1:0";
  options.master_address = "127.0.0.1:1";  // there is none
  options.name = "ps-0";
  options.channels = channels.get();
  options.files = &PosixFileSystem();
  options.clock = &SystemClock();
  options.metrics = &metrics;
  options.spill_folder = soaked.folder;
  options.memory_bytes = soaked.memory_bytes;
  options.memory_of_process = true;
  const uint64_t max_shared_bytes = options.max_shared_bytes;
  options.BoundBeside(soaked.memory_bytes);
  options.max_queued_bytes = soaked.max_queued_bytes;
  options.max_shared_bytes = max_shared_bytes;  // with little memory it would share none
  const auto ps = ps::ParameterServer::Start(options);
  if (!ps.ok()) {
    SPDLOG_ERROR("{}", ps.status().ToString());
    return 1;
  }
  if (!WriteText(to, (*ps)->address())) return 1;
  for (char c; ::read(from, &c, 1) > 0;) {
    if (!WriteText(to, metrics.Text())) return 1;
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PsProcess>> PsProcess::Start(const Options& options) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError("no pipe");
  }
  const pid_t pid = ::fork();
  if (pid < 0) return absl::ResourceExhaustedError("no process for the ps");
  if (pid == 0) {
    ::close(in[1]);
    ::close(out[0]);
    ::_exit(Serve(options, in[0], out[1]));
  }
  ::close(in[0]);
  ::close(out[1]);
  std::unique_ptr<PsProcess> ps(new PsProcess(pid, in[1], out[0]));
  absl::StatusOr<std::string> address = ReadText(out[0]);
  if (!address.ok()) return address.status();
  ps->address_ = *std::move(address);
  return ps;
}

PsProcess::~PsProcess() {
  ::close(to_);
  ::close(from_);
  for (const absl::Time begin = absl::Now(); ::waitpid(pid_, nullptr, WNOHANG) == 0;) {
    absl::SleepFor(absl::Milliseconds(10));
    if (absl::Now() - begin < kPatience) continue;
    SPDLOG_ERROR("the ps has not ended within {}", absl::FormatDuration(kPatience));
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    return;
  }
}

uint64_t PsProcess::ResidentBytes() const { return tessera::ResidentBytes(pid_); }

absl::StatusOr<std::string> PsProcess::Metrics() const {
  const char c = 'm';
  if (!WriteAll(to_, &c, 1)) return absl::UnavailableError("the ps has ended");
  return ReadText(from_);
}

}  // namespace tessera::overload
