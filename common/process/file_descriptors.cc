#include "common/process/file_descriptors.h"

#include <sys/resource.h>

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

}  // namespace tessera
