#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cuda/stream.h"
#include "tessera/v1/job.pb.h"
#include "worker/card_seat.h"
#include "worker/dense/model.h"

namespace tessera::worker {

// Wishes are "auto" (or empty), "cpu", "cuda", "cuda:N", and in builds without CUDA "emulated"
// (cuda/stream.h), for tests.

// FAILED_PRECONDITION: no job could compute there on this machine, for want of a card or of one
// that can run the kernels, and why.
absl::Status CheckDevice(absl::string_view wish);

// Where a job computes.
struct OpenedDevice {
  std::unique_ptr<CardSeat> seat;        // of a wish for any card; as long as the stream is used
  std::unique_ptr<cuda::Stream> stream;  // on the card; null: the CPU
};
// "cuda" and "auto" share the machine's cards out among workers (card_seat.h). Only "auto" may
// choose the CPU for want of a card or of an op that runs there. What was chosen is logged, and
// why. A wish that cannot be met is FAILED_PRECONDITION, RESOURCE_EXHAUSTED or UNAVAILABLE.
absl::StatusOr<OpenedDevice> OpenDevice(absl::string_view wish, const Model& model);

// Of a worker that computes on the CPU. FAILED_PRECONDITION: the processor cannot compute so, and
// why.
absl::Status CheckPrecision(v1::TrainSpec::Precision wish);

}  // namespace tessera::worker
