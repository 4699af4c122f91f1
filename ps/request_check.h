#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/table.h"
#include "tessera/v1/parameter_service.pb.h"

// What a peer sends, looked at before anything is done with it: sizes, table numbers, partitions,
// values. Nothing here changes a table.
namespace tessera::ps {

using Tables = std::vector<std::unique_ptr<Table>>;

// The keys of every block of a pull, in their order; the spans lie in the request.
// INVALID_ARGUMENT: no such table, a length that is not a multiple of 8, or an answer that would be
// larger than max_bytes; ABORTED: a partition that is another's.
using PullKeys = std::vector<absl::Span<const uint64_t>>;
absl::StatusOr<PullKeys> CheckPull(const Tables& tables, const v1::PullRequest& request,
                                   uint64_t max_bytes);

// The gradients (or values) of one block: besides, as many floats as keys * dim, all finite.
absl::StatusOr<Table::Gradients> CheckGradients(const Tables& tables,
                                                const v1::GradientBlock& block);

// Every block of a push, dense blocks assigned besides, and a learning_rate_scale that is finite
// and not negative. The result is by table; it points into the request.
absl::StatusOr<std::vector<std::vector<Table::Gradients>>> CheckPush(
    const Tables& tables, const v1::PushRequest& request);

// Of a block that has been checked.
Table::Gradients GradientsOf(const v1::GradientBlock& block);

}  // namespace tessera::ps
