#pragma once

#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Whether `error` is the one that std::thread throws if the system has no thread to give.
inline bool IsNoThread(const std::system_error& error) {
  return error.code() == std::errc::resource_unavailable_try_again;
}

// RESOURCE_EXHAUSTED: the system gives this process no thread for `what`.
inline absl::Status NoThread(absl::string_view what) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "no thread for ", what,
      "; allow more of them (ulimit -u, pids.max of the cgroup, TasksMax of systemd)"));
}

// Returns the result of `work`, a Status or StatusOr; NoThread if `work` throws for want of a
// thread.
template <typename Work>
auto OrNoThread(absl::string_view what, Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::system_error& error) {
    if (!IsNoThread(error)) throw;
    return NoThread(what);
  }
}

}  // namespace tessera
