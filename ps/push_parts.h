#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "common/wire/buffer.h"
#include "ps/calls.h"

namespace tessera::ps {

// Pushes of one rank that come in parts, until all parts are there. Not thread-safe.
class PushParts {
 public:
  static constexpr uint32_t kMaxParts = 1 << 14;
  static constexpr size_t kMaxPushes = 64;  // that are incomplete at a time

  // INVALID_ARGUMENT: a part that cannot be, that does not agree with those before it, or with
  // which, as the last one, the push has not what was announced; RESOURCE_EXHAUSTED: too many
  // pushes are incomplete. `bulk_bytes` are those of this part.
  absl::Status Check(const v1::PushRequest& request, uint64_t bulk_bytes) const;
  bool Contains(uint64_t sequence) const { return pushes_.contains(sequence); }
  bool ContainsPart(const v1::PushRequest& request) const;
  // All parts but this one are there.
  bool Completes(const v1::PushRequest& request) const;
  // Keeps a part that Check has passed, unless it is there already. `blocks` lie in `memory`.
  void Add(const v1::PushRequest& request, uint64_t bulk_bytes, std::vector<GradientBlock> blocks,
           wire::Buffer memory);
  // As if Add had never been called with it.
  void TakeBack(const v1::PushRequest& request, uint64_t bulk_bytes);
  // The blocks of a complete push, by part: the same order however they came.
  std::vector<GradientBlock> Blocks(uint64_t sequence) const;

  struct Erased {
    std::vector<wire::Buffer> memory;
    uint64_t bulk_bytes = 0;  // that were announced
  };
  Erased Erase(uint64_t sequence);
  Erased EraseAll();

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
  };
  static void Move(Push& push, Erased* erased);

  std::map<uint64_t, Push> pushes_;  // by sequence
};

}  // namespace tessera::ps
