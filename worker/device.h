#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cuda/stream.h"
#include "tessera/v1/job.pb.h"
#include "worker/card/card_seat.h"
#include "worker/dense/model.h"

namespace tessera::worker {

// Wishes are "auto" (or empty), "cpu", "cuda", "cuda:N", and in builds without CUDA "emulated"
// (cuda/stream.h), for tests; "emulated:BYTES" is one with so much memory.

// FAILED_PRECONDITION, with the reason: no job could compute there, because this machine has no
// card or none that can run the kernels.
absl::Status CheckDevice(absl::string_view wish);

// Where a job computes.
struct OpenedDevice {
  std::unique_ptr<CardSeat> seat;  // set if any card would do; held as long as the stream is used
  std::unique_ptr<cuda::Stream> stream;  // on the card; null: the CPU
};
// Chooses the device and logs the choice and its reason. "cuda" and "auto" share the machine's
// cards out among workers (card_seat.h). Only "auto" may choose the CPU (LeavesOnlyTheCpu). A wish
// that cannot be met is FAILED_PRECONDITION, RESOURCE_EXHAUSTED, UNAVAILABLE or INTERNAL.
absl::StatusOr<OpenedDevice> OpenDevice(absl::string_view wish, const Model& model);

// Whether "auto" computes on the CPU after this error of opening a card: there is none that can run
// the kernels, or an op does not run on it. A card that is full or fails is an error instead: the
// CPU would take many times as long, and nobody asked for it.
bool LeavesOnlyTheCpu(const absl::Status& opened);

// For a worker that computes on the CPU. FAILED_PRECONDITION, with the reason: this processor
// cannot compute in that precision.
absl::Status CheckPrecision(v1::TrainSpec::Precision wish);

}  // namespace tessera::worker
