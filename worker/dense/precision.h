#pragma once

namespace tessera::worker {

// What the operands of products are rounded to (train.precision); sums are always float32. Only
// cards have kTf32 and kFloat16.
enum class Precision { kFloat32, kBfloat16, kTf32, kFloat16 };

}  // namespace tessera::worker
