#pragma once

#include <cstddef>

namespace tessera {

inline constexpr size_t kHugePage = size_t{2} << 20;

// At least `bytes` of uninitialised memory, a multiple of kHugePage at a multiple of it, which the
// system is asked to lay on pages of 2 MiB: the processor finds addresses there without walks
// through the page tables. Where the system has none the memory is only slower. Throws
// std::bad_alloc. Freed by std::free. Thread-safe.
void* AllocateOnHugePages(size_t bytes);

}  // namespace tessera
