#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/wire/buffer.h"
#include "ps/calls/shared_regions.h"
#include "ps/memory/byte_budget.h"
#include "ps/tables/table.h"
#include "tessera/v1/parameter_service.pb.h"

// Pulls and pushes as JobShard takes and answers them: the messages of parameter_service.proto
// without their bulk, which lies beside them in memory that moves along.
namespace tessera::ps {

// A `bytes` field that was taken out of a message: aligned for 64-bit numbers, not checked.
using Bulk = absl::Span<const char>;

struct PullCall {
  v1::PullRequest request;  // blocks without keys
  std::vector<Bulk> keys;   // [request.tables]
  wire::Buffer memory;      // the keys lie here
  uint64_t bytes = 0;       // of the whole message
  // Where the rows are written; nullopt: into memory of the answer.
  std::optional<SlotUse> slot;
  std::vector<absl::Span<char>> room;  // [request.tables], in the slot
};

struct PullAnswer {
  v1::PullResponse response;         // blocks without values
  std::vector<wire::Buffer> values;  // [response.tables]; empty: they are in the call's slot
  RowCounts counts;                  // over all keys
  ByteBudget::Hold unsent;           // holds the values' bytes until the caller has them
};
using PullDone = absl::AnyInvocable<void(absl::StatusOr<PullAnswer>) &&>;

struct PushCall {
  v1::PushRequest request;      // blocks without keys and gradients
  std::vector<Bulk> keys;       // [request.tables]
  std::vector<Bulk> gradients;  // [request.tables]
  // Keys and gradients lie here: all keys, then all gradients, each begun at a multiple of 8, with
  // zeros between. Those in memory shared with the caller do not.
  wire::Buffer memory;
  uint64_t bytes = 0;  // of the whole message
};

inline RowPart PartOf(const v1::KeyBlock& block) {
  return block.whole() ? RowPart::kWhole : RowPart::kEmbedding;
}

// One block of a push, checked.
struct GradientBlock {
  uint32_t table = 0;
  Table::Gradients gradients;
};

}  // namespace tessera::ps
