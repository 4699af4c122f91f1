#pragma once

#include <cstdint>

namespace tessera {

// Bytes of this process that are in memory now (its resident set); 0 if that cannot be read.
uint64_t ResidentBytes();
// ResidentBytes of another process.
uint64_t ResidentBytes(int pid);

}  // namespace tessera
