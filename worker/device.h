#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cuda/stream.h"
#include "tessera/v1/job.pb.h"
#include "worker/dense/model.h"

namespace tessera::worker {

// Wishes are "auto" (or empty), "cpu", "cuda", "cuda:N", and in builds without CUDA "emulated"
// (cuda/stream.h), for tests.

// FAILED_PRECONDITION: no job could compute there on this machine, and why.
absl::Status CheckDevice(absl::string_view wish);

// The card for a job, a stream on it; null: the CPU. Only "auto" may choose the CPU for want of a
// card or of an op that runs there, and it logs what it chose and why. A wish that cannot be met is
// FAILED_PRECONDITION or RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<cuda::Stream>> OpenDevice(absl::string_view wish,
                                                         const Model& model);

// Of a worker that computes on the CPU. FAILED_PRECONDITION: the processor cannot compute so, and
// why.
absl::Status CheckPrecision(v1::TrainSpec::Precision wish);

}  // namespace tessera::worker
