#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iterator>

namespace tessera {

// From here on the system gives this process `more` threads more, and no further ones. It becomes a
// process of a user of its own, since limits do not bind root and count all threads of a user: for
// the child of a death test. Where it cannot, not being root's, it has none more at all.
inline void LimitThreads(int more) {
  const auto threads = std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                                     std::filesystem::directory_iterator());
  rlimit limit = {};
  getrlimit(RLIMIT_NPROC, &limit);
  limit.rlim_cur = 0;
  if (geteuid() == 0 && setuid(static_cast<uid_t>(1'000'000 + getpid())) == 0) {
    limit.rlim_cur = static_cast<rlim_t>(threads + more);
  }
  if (setrlimit(RLIMIT_NPROC, &limit) != 0) std::perror("setrlimit");
}

// As many as before.
inline void UnlimitThreads() {
  rlimit limit = {};
  getrlimit(RLIMIT_NPROC, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NPROC, &limit);
}

}  // namespace tessera
