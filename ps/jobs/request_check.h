#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/calls/calls.h"
#include "ps/tables/table.h"

// Checks what a peer sends before anything is done with it: sizes, table numbers, partitions,
// values. Nothing here changes a table.
namespace tessera::ps {

// INVALID_ARGUMENT: not what names a job, nor the folder of its logs.
absl::Status CheckJobId(const std::string& id);

// INVALID_ARGUMENT: a job of so many workers, tables or maps, or with this max_lead, cannot be
// opened. Partitions and tables themselves are checked where they are made.
absl::Status CheckOpen(const v1::OpenJobRequest& request);

// The keys of every block of a pull, in the order of the blocks; the spans lie in the call.
// INVALID_ARGUMENT: there is no such table, a length is not a multiple of 8, there is room for
// another number of rows, whole rows may not be asked for, or the answer would be larger than
// max_bytes; ABORTED: a key's partition is another ps's.
using PullKeys = std::vector<absl::Span<const uint64_t>>;
absl::StatusOr<PullKeys> CheckPull(const Tables& tables, const PullCall& call, uint64_t max_bytes);

// Checks one block of gradients (or values, or changes), which come beside `block`. Besides
// CheckPull's rules: as many numbers as the keys need, all finite, and no gradient larger than its
// optimizer has room for. `assigned`: they are values. The result lies in `keys` and `values`,
// which are aligned for 64-bit numbers.
absl::StatusOr<GradientBlock> CheckGradients(const Tables& tables, const v1::GradientBlock& block,
                                             Bulk keys, Bulk values, bool assigned);

// Checks every block of a push. Besides: dense blocks are assigned, no rate becomes negative or
// infinite with its learning_rate_scale, and rows can be marked with its number. The result lies in
// the call's memory.
absl::StatusOr<std::vector<GradientBlock>> CheckPush(const Tables& tables, const PushCall& call);

}  // namespace tessera::ps
