#pragma once

#include "cuda/dense/products.h"
#include "worker/dense/precision.h"

namespace tessera::worker {

// A job's precision as a card's products have it.
inline cuda::Products CudaProducts(Precision precision) {
  return precision == Precision::kBfloat16 ? cuda::Products::kBfloat16 : cuda::Products::kFloat32;
}

}  // namespace tessera::worker
