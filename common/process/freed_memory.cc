#include "common/process/freed_memory.h"

#include <malloc.h>

#include <algorithm>

namespace tessera {

void KeepFreedMemoryWithin(uint64_t budget) {
  const uint64_t largest = std::clamp<uint64_t>(budget / 64, 128 << 10, 32 << 20);
  mallopt(M_MMAP_THRESHOLD, static_cast<int>(largest));
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(2 * largest));
  mallopt(M_ARENA_MAX, static_cast<int>(std::clamp<uint64_t>(budget >> 26, 2, 64)));
}

}  // namespace tessera
