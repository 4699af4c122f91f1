#include "common/process/resident.h"

#include <unistd.h>

#include <fstream>

namespace tessera {

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");  // pages: total, resident, ... (proc(5))
  uint64_t total = 0;
  uint64_t resident = 0;
  if (!(statm >> total >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace tessera
