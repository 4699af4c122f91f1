#include "common/process/stop_signal.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "common/process/no_thread.h"

namespace tessera {
namespace {

constexpr int kExitNoThread = 128;  // another try may succeed

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void UnblockStopSignals() {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

StopSignal::StopSignal() {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const absl::Status begun = OrNoThread("SIGTERM and SIGINT", [this] {
    watcher_ = std::thread([this] { Watch(); });
    return absl::OkStatus();
  });
  if (begun.ok()) return;
  std::fprintf(stderr, "error: %s\n", std::string(begun.message()).c_str());
  _exit(kExitNoThread);
}

StopSignal::~StopSignal() {
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  pthread_kill(watcher_.native_handle(), SIGTERM);  // only wakes it
  watcher_.join();
}

void StopSignal::Watch() {
  const sigset_t set = StopSignals();
  int seen = 0;
  while (true) {
    int number = 0;
    if (sigwait(&set, &number) != 0) continue;
    {
      absl::MutexLock lock(&mu_);
      if (ending_) return;
    }
    // The user insists, or the clean stop hangs: ends at once, without cleanup.
    if (++seen > 1) _exit(128 + number);
    AskBecause(number);
  }
}

void StopSignal::AskBecause(int signal) {
  std::function<void()> callback;
  {
    absl::MutexLock lock(&mu_);
    if (asked_) return;
    asked_ = true;
    signal_ = signal;
    callback = std::exchange(callback_, nullptr);
  }
  if (callback) callback();
}

void StopSignal::Ask() { AskBecause(0); }

void StopSignal::OnStop(std::function<void()> callback) {
  {
    absl::MutexLock lock(&mu_);
    if (!asked_) {
      callback_ = std::move(callback);
      return;
    }
  }
  callback();
}

bool StopSignal::Wait(absl::Duration limit) {
  absl::MutexLock lock(&mu_);
  return mu_.AwaitWithTimeout(absl::Condition(&asked_), limit);
}

bool StopSignal::asked() const {
  absl::MutexLock lock(&mu_);
  return asked_;
}

int StopSignal::signal() const {
  absl::MutexLock lock(&mu_);
  return signal_;
}

}  // namespace tessera
