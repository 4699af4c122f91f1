#include "common/process/resident.h"

#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace tessera {

uint64_t ResidentBytes() { return ResidentBytes(::getpid()); }

uint64_t ResidentBytes(int pid) {
  // Its numbers are pages: total, resident, ... (proc(5)).
  std::ifstream statm(absl::StrCat("/proc/", pid, "/statm"));
  uint64_t total = 0;
  uint64_t resident = 0;
  if (!(statm >> total >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace tessera
