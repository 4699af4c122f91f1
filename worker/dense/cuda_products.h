#pragma once

#include "cuda/dense/products.h"
#include "worker/dense/precision.h"

namespace tessera::worker {

// A job's precision as a card's products have it.
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
