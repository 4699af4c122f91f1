#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "common/wire/buffer.h"
#include "ps/calls/calls.h"
#include "ps/memory/byte_budget.h"

namespace tessera::ps {

// Keeps the pushes of one rank that come in parts until all parts are here. Not thread-safe.
class PushParts {
 public:
  static constexpr uint32_t kMaxParts = 1 << 14;
  static constexpr size_t kMaxPushes = 64;  // incomplete at a time

  // INVALID_ARGUMENT: the part is impossible or contradicts those before it, or it is the last and
  // the push has other bytes than were announced. RESOURCE_EXHAUSTED: too many pushes are
  // incomplete. `bulk_bytes` are those of this part.
  absl::Status Check(const v1::PushRequest& request, uint64_t bulk_bytes) const;
  bool Contains(uint64_t sequence) const { return pushes_.contains(sequence); }
  bool ContainsPart(const v1::PushRequest& request) const;
  // Whether all other parts are here.
  bool Completes(const v1::PushRequest& request) const;
  // Keeps a part that has passed Check, unless it is here already. `blocks` lie in `memory`.
  // `held`: room for the whole push, with its first part.
  void Add(const v1::PushRequest& request, uint64_t bulk_bytes, std::vector<GradientBlock> blocks,
           wire::Buffer memory, ByteBudget::Hold held);
  // Undoes Add of this part.
  void TakeBack(const v1::PushRequest& request, uint64_t bulk_bytes);
  // The blocks of a complete push in the order of its parts, however they came.
  std::vector<GradientBlock> Blocks(uint64_t sequence) const;

  struct Erased {
    std::vector<wire::Buffer> memory;
    ByteBudget::Hold held;  // room for all of it
  };
  Erased Erase(uint64_t sequence);
  void EraseAll() { pushes_.clear(); }

 private:
  struct Part {
    std::vector<GradientBlock> blocks;
    wire::Buffer memory;
  };
  struct Push {
    uint32_t parts = 0;
    uint64_t bulk_bytes = 0;  // announced
    uint64_t arrived_bytes = 0;
    double learning_rate_scale = 0;
    std::map<uint32_t, Part> arrived;  // by number
    ByteBudget::Hold held;
  };

  std::map<uint64_t, Push> pushes_;  // by sequence
};

}  // namespace tessera::ps
