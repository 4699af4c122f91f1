#include "ps/huge_page_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <iterator>
#include <new>

#include "common/round_up.h"

namespace tessera::ps {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kHugePage = 2 << 20;

void* AlignedAlloc(size_t alignment, size_t bytes) {
  void* const block = std::aligned_alloc(alignment, bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace

HugePageMemory::~HugePageMemory() {
  for (void* const chunk : chunks_) std::free(chunk);
}

void* HugePageMemory::Allocate(size_t bytes) {
  if (bytes < kSmall) return AlignedAlloc(kLine, bytes);
  absl::MutexLock lock(&mu_);
  return Take(bytes);
}

void HugePageMemory::Free(void* block, size_t bytes) {
  if (bytes < kSmall) {
    std::free(block);
    return;
  }
  absl::MutexLock lock(&mu_);
  Put(static_cast<char*>(block), bytes);
}

size_t HugePageMemory::free_bytes() const {
  absl::ReaderMutexLock lock(&mu_);
  return free_bytes_;
}

void* HugePageMemory::Take(size_t bytes) {
  auto fit = by_size_.lower_bound({bytes, nullptr});
  if (fit == by_size_.end()) {
    const size_t chunk_bytes = RoundUp(bytes, kHugePage);
    void* const chunk = AlignedAlloc(kHugePage, chunk_bytes);
    // A wish: without huge pages the same memory is only slower.
    ::madvise(chunk, chunk_bytes, MADV_HUGEPAGE);
    chunks_.push_back(chunk);
    Put(static_cast<char*>(chunk), chunk_bytes);
    fit = by_size_.lower_bound({bytes, nullptr});
  }
  const auto [size, begin] = *fit;
  by_size_.erase(fit);
  by_address_.erase(begin);
  free_bytes_ -= size;
  if (size > bytes) Put(begin + bytes, size - bytes);
  return begin;
}

void HugePageMemory::Put(char* begin, size_t bytes) {
  free_bytes_ += bytes;
  auto after = by_address_.lower_bound(begin);
  if (after != by_address_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
      by_size_.erase({before->second, before->first});
      by_address_.erase(before);
    }
  }
  if (after != by_address_.end() && begin + bytes == after->first) {
    bytes += after->second;
    by_size_.erase({after->second, after->first});
    by_address_.erase(after);
  }
  by_address_.emplace(begin, bytes);
  by_size_.emplace(bytes, begin);
}

}  // namespace tessera::ps
