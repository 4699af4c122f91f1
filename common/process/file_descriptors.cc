#include "common/process/file_descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera {

absl::Status CheckFileDescriptors(uint64_t fewest) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  if (limit.rlim_cur >= fewest) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("this process may open ", limit.rlim_cur,
                                                    " files, expected at least ", fewest,
                                                    "; raise the limit (ulimit -n)"));
}

bool HasDescriptorForConnection() {
  // The next one is the lowest that is free.
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (next < 0) return false;
  ::close(next);
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  return static_cast<rlim_t>(next) < limit.rlim_cur - std::min<rlim_t>(limit.rlim_cur / 8, 1024);
}

}  // namespace tessera
