#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::local {

// How a process ended.
struct Death {
  int code = 0;    // exit code, when signal is 0
  int signal = 0;  // that killed it
  // "exited with code 1", "was killed by signal 9 (Killed)".
  std::string ToString() const;
};

// A program started by this one, in a process group of its own (so that Ctrl-C reaches only us),
// with no input and with its output appended to a log. The kernel kills it when the thread that
// started it ends. Not thread-safe; the destructor kills it and waits.
class ChildProcess {
 public:
  // NOT_FOUND: there is no such program; UNAVAILABLE: it cannot be started now.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& command,
                                            const std::string& log_file);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // How it ended; nothing while it runs. Does not wait.
  std::optional<Death> Poll();
  void Send(int signal);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = -1;  // -1: moved from
  std::optional<Death> death_;
};

// The last lines of a file, at most `lines`, from what was written after byte `begin`; empty where
// it cannot be read.
std::string Tail(const std::string& file, uint64_t begin, int lines);
// 0 where there is none.
uint64_t FileBytes(const std::string& file);

// A TCP port of loopback that is free now.
absl::StatusOr<int> FreePort();

}  // namespace tessera::local
