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
  int signal = 0;  // the signal that killed the process; 0: none did
  // "exited with code 1", "was killed by signal 9 (Killed)".
  std::string ToString() const;
};

// A program started by this one, in a process group of its own (so that Ctrl-C reaches only this
// program), with no input and with its output appended to a log. The kernel kills the child when
// the thread that started it ends. Not thread-safe; the destructor kills the child and waits.
class ChildProcess {
 public:
  // NOT_FOUND: there is no such program. UNAVAILABLE: the program cannot be started now.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& command,
                                            const std::string& log_file);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // How the process ended; nullopt while it runs. Does not wait.
  std::optional<Death> Poll();
  void Send(int signal);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = -1;  // -1: moved from
  std::optional<Death> death_;
};

// The last lines of a file after byte `begin`, at most `lines` of them; empty if the file cannot be
// read.
std::string Tail(const std::string& file, uint64_t begin, int lines);
// The file's size; 0: no such file.
uint64_t FileBytes(const std::string& file);

// A TCP port of loopback that is free now.
absl::StatusOr<int> FreePort();

}  // namespace tessera::local
