#include "common/huge_pages.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "common/round_up.h"

namespace tessera {

void* AllocateOnHugePages(size_t bytes) {
  bytes = RoundUp(bytes, kHugePage);
  void* const memory = std::aligned_alloc(kHugePage, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

}  // namespace tessera
