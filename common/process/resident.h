#pragma once

#include <cstdint>

namespace tessera {

// Bytes of this process that are in memory now (its resident set); 0 where that cannot be read.
uint64_t ResidentBytes();

}  // namespace tessera
