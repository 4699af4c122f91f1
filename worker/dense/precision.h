#pragma once

namespace tessera::worker {

// Of the operands of products; sums are float32 in any case (train.precision). kTf32 and kFloat16
// are of cards alone.
enum class Precision { kFloat32, kBfloat16, kTf32, kFloat16 };

}  // namespace tessera::worker
