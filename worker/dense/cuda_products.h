#pragma once

#include "cuda/dense/products.h"
#include "worker/dense/precision.h"

namespace tessera::worker {

// The precision of a card's products for a job's precision.
inline cuda::Products CudaProducts(Precision precision) {
  switch (precision) {
    case Precision::kBfloat16:
      return cuda::Products::kBfloat16;
    case Precision::kTf32:
      return cuda::Products::kTf32;
    case Precision::kFloat16:
      return cuda::Products::kFloat16;
    case Precision::kFloat32:
      break;
  }
  return cuda::Products::kFloat32;
}

}  // namespace tessera::worker
