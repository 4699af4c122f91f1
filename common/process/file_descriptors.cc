#include "common/process/file_descriptors.h"

#include <sys/resource.h>

#include "absl/strings/str_cat.h"

namespace tessera {

absl::Status CheckFileDescriptors(uint64_t fewest) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= fewest) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("this process may open ", limit.rlim_cur,
                                                    " files, expected at least ", fewest,
                                                    "; raise the limit (ulimit -n)"));
}

}  // namespace tessera
