#include "local/child_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/process/stop_signal.h"

namespace tessera::local {
namespace {

absl::Status Failed(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(error)));
}

// Runs between fork and exec, so makes only calls that are safe in a copy of a process with many
// threads.
[[noreturn]] void Become(char* const* arguments, int log, int null, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before the line above.
  if (getppid() != parent) _exit(1);
  UnblockStopSignals();
  dup2(null, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(arguments[0], arguments);
  // 128: another try may succeed.
  _exit(errno == EAGAIN || errno == ENOMEM || errno == ENFILE || errno == ETXTBSY ? 128 : 127);
}

}  // namespace

std::string Death::ToString() const {
  if (signal == 0) return absl::StrCat("exited with code ", code);
  return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")");
}

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& command,
                                                 const std::string& log_file) {
  if (access(command[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("cannot run ", command[0], ": ", strerror(errno),
                                            "; it is built beside this program"));
  }
  const int log = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return Failed(absl::StrCat("cannot open the log ", log_file), errno);
  const auto close_log = absl::MakeCleanup([log] { close(log); });
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0) return Failed("cannot open /dev/null", errno);
  const auto close_null = absl::MakeCleanup([null] { close(null); });
  std::vector<std::string> strings = command;
  std::vector<char*> arguments;
  for (std::string& text : strings) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  // This process may have inherited that SIGCHLD is ignored; then waitpid could not tell how a
  // child ended.
  signal(SIGCHLD, SIG_DFL);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Failed(absl::StrCat("cannot start ", command[0]), errno);
  if (pid == 0) Become(arguments.data(), log, null, parent);
  return ChildProcess(pid);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), death_(other.death_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(death_, other.death_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || death_.has_value()) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<Death> ChildProcess::Poll() {
  if (death_.has_value() || pid_ < 0) return death_;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  death_ = WIFSIGNALED(status) ? Death{.code = 0, .signal = WTERMSIG(status)}
                               : Death{.code = WEXITSTATUS(status), .signal = 0};
  return death_;
}

void ChildProcess::Send(int signal) {
  if (pid_ > 0 && !death_.has_value()) kill(pid_, signal);
}

uint64_t FileBytes(const std::string& file) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(file, error);
  return error ? 0 : size;
}

std::string Tail(const std::string& file, uint64_t begin, int lines) {
  constexpr uint64_t kLongest = 16384;
  const uint64_t size = FileBytes(file);
  if (size > begin + kLongest) begin = size - kLongest;
  std::ifstream in(file, std::ios::binary);
  if (!in || size <= begin) return "";
  in.seekg(static_cast<std::streamoff>(begin));
  std::string text(size - begin, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  size_t at = text.size();
  for (int i = 0; i < lines && at != std::string::npos && at > 0; ++i) {
    at = text.rfind('\n', at - 1);
  }
  return at == std::string::npos || at == 0 ? text : text.substr(at + 1);
}

absl::StatusOr<int> FreePort() {
  const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0) return Failed("cannot make a socket", errno);
  const auto close_socket = absl::MakeCleanup([s] { close(s); });
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(s, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      getsockname(s, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return Failed("cannot find a free port on 127.0.0.1", errno);
  }
  return ntohs(address.sin_port);
}

}  // namespace tessera::local
