#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/calls.h"
#include "ps/table.h"

// What a peer sends, looked at before anything is done with it: sizes, table numbers, partitions,
// values. Nothing here changes a table.
namespace tessera::ps {

using Tables = std::vector<std::unique_ptr<Table>>;

// The keys of every block of a pull, in their order; the spans lie in the call.
// INVALID_ARGUMENT: no such table, a length that is not a multiple of 8, room for another number of
// rows, whole rows that may not be asked for, or an answer that would be larger than max_bytes;
// ABORTED: a partition that is another's.
using PullKeys = std::vector<absl::Span<const uint64_t>>;
absl::StatusOr<PullKeys> CheckPull(const Tables& tables, const PullCall& call, uint64_t max_bytes);

// The gradients (or values, or changes) of one block, of which `block` has neither: besides, as
// many numbers as the keys have, all finite, and of gradients none larger than their optimizer has
// room for; `assigned`: they are values. The result lies in `keys` and `values`, which are aligned
// for numbers of 64 bits.
absl::StatusOr<GradientBlock> CheckGradients(const Tables& tables, const v1::GradientBlock& block,
                                             Bulk keys, Bulk values, bool assigned);

// Every block of a push, dense blocks assigned besides, a learning_rate_scale with which no rate is
// negative or infinite, and its number, which rows are marked with. The result lies in the call's
// memory.
absl::StatusOr<std::vector<GradientBlock>> CheckPush(const Tables& tables, const PushCall& call);

}  // namespace tessera::ps
