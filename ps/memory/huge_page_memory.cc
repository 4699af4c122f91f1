#include "ps/memory/huge_page_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <iterator>
#include <new>

#include "common/huge_pages.h"
#include "common/round_up.h"

namespace tessera::ps {
namespace {

constexpr size_t kLine = 64;

void* AllocateSmall(size_t bytes) {
  void* const block = std::aligned_alloc(kLine, bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace

HugePageMemory::~HugePageMemory() {
  for (const auto& [chunk, bytes] : chunks_) std::free(chunk);
  for (const auto& [bytes, chunk] : given_back_) std::free(chunk);
}

void* HugePageMemory::Allocate(size_t bytes) {
  if (bytes < kSmall) return AllocateSmall(bytes);
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

size_t HugePageMemory::bytes() const {
  absl::ReaderMutexLock lock(&mu_);
  return bytes_;
}

size_t HugePageMemory::free_bytes() const {
  absl::ReaderMutexLock lock(&mu_);
  return free_bytes_;
}

std::vector<HugePageMemory::Chunk> HugePageMemory::chunks() const {
  std::vector<Chunk> chunks;
  absl::ReaderMutexLock lock(&mu_);
  auto range = by_address_.begin();
  for (const auto& [begin, bytes] : chunks_) {
    Chunk chunk = {.begin = begin, .bytes = bytes};
    for (; range != by_address_.end() && range->first < begin + bytes; ++range) {
      chunk.free_bytes += range->second;
    }
    chunks.push_back(chunk);
  }
  return chunks;
}

void HugePageMemory::Close(const char* begin) {
  absl::MutexLock lock(&mu_);
  const auto chunk = chunks_.find(const_cast<char*>(begin));
  if (chunk == chunks_.end()) return;
  closed_ = chunk->first;
  closed_bytes_ = chunk->second;
  auto range = by_address_.lower_bound(closed_);
  while (range != by_address_.end() && range->first < closed_ + closed_bytes_) {
    closed_free_.emplace_back(*range);
    Forget(range++);
  }
}

size_t HugePageMemory::GiveBack() {
  absl::MutexLock lock(&mu_);
  char* const chunk = std::exchange(closed_, nullptr);
  const size_t bytes = std::exchange(closed_bytes_, 0);
  size_t free = 0;
  for (const auto& [begin, range_bytes] : closed_free_) free += range_bytes;
  const auto ranges = std::exchange(closed_free_, {});
  free_bytes_ -= free;
  if (chunk == nullptr || free < bytes || ::madvise(chunk, bytes, MADV_DONTNEED) != 0) {
    for (const auto& [begin, range_bytes] : ranges) Put(begin, range_bytes);
    return 0;
  }
  bytes_ -= bytes;
  chunks_.erase(chunk);
  given_back_.emplace(bytes, chunk);
  return bytes;
}

void HugePageMemory::AddChunk(size_t bytes) {
  if (const auto known = given_back_.lower_bound({bytes, nullptr}); known != given_back_.end()) {
    const auto [known_bytes, chunk] = *known;
    bytes_ += known_bytes;
    chunks_.emplace(chunk, known_bytes);
    given_back_.erase(known);
    return Put(chunk, known_bytes);
  }
  char* const chunk = static_cast<char*>(AllocateOnHugePages(bytes));
  bytes_ += bytes;
  chunks_.emplace(chunk, bytes);
  Put(chunk, bytes);
}

void HugePageMemory::Forget(std::map<char*, size_t>::iterator range) {
  by_size_.erase({range->second, range->first});
  by_address_.erase(range);
}

void* HugePageMemory::Take(size_t bytes) {
  auto fit = by_size_.lower_bound({bytes, nullptr});
  if (fit == by_size_.end()) {
    AddChunk(RoundUp(bytes, kHugePage));
    fit = by_size_.lower_bound({bytes, nullptr});
  }
  const auto [size, begin] = *fit;
  Forget(by_address_.find(begin));
  free_bytes_ -= size;
  if (size > bytes) Put(begin + bytes, size - bytes);
  return begin;
}

void HugePageMemory::Put(char* begin, size_t bytes) {
  free_bytes_ += bytes;
  if (begin >= closed_ && begin < closed_ + closed_bytes_) {
    closed_free_.emplace_back(begin, bytes);
    return;
  }
  auto after = by_address_.lower_bound(begin);
  if (after != by_address_.begin() && !chunks_.contains(begin)) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
      Forget(before);
    }
  }
  if (after != by_address_.end() && begin + bytes == after->first &&
      !chunks_.contains(after->first)) {
    bytes += after->second;
    Forget(after);
  }
  by_address_.emplace(begin, bytes);
  by_size_.emplace(bytes, begin);
}

}  // namespace tessera::ps
