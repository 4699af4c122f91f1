#pragma once

namespace tessera::worker {

// Of the operands of products; sums are float32 either way (train.precision).
enum class Precision { kFloat32, kBfloat16 };

}  // namespace tessera::worker
