#include "tests/ps/failing_memory.h"

#include <cstdlib>

namespace tessera::ps::failing_memory {
namespace {

[[maybe_unused]] const bool told = is_there = true;

void Admit(size_t bytes) {
  if (allocations_left >= 0 && bytes >= least_bytes && allocations_left-- == 0) {
    throw std::bad_alloc();
  }
  if (bytes > most_bytes.load(std::memory_order_relaxed)) throw std::bad_alloc();
}

void* Allocate(size_t bytes) {
  Admit(bytes);
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* Allocate(size_t bytes, std::align_val_t align) {
  Admit(bytes);
  const auto alignment = static_cast<size_t>(align);
  void* const memory = std::aligned_alloc(alignment, (bytes + alignment - 1) & ~(alignment - 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace
}  // namespace tessera::ps::failing_memory

void* operator new(size_t bytes) { return tessera::ps::failing_memory::Allocate(bytes); }
void* operator new[](size_t bytes) { return tessera::ps::failing_memory::Allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t align) {
  return tessera::ps::failing_memory::Allocate(bytes, align);
}
void* operator new[](size_t bytes, std::align_val_t align) {
  return tessera::ps::failing_memory::Allocate(bytes, align);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
