#include "cuda/dense/products.h"

#include "cuda/launch.h"

#ifdef __CUDACC__
#include <cublas_v2.h>

#include "absl/strings/str_cat.h"
#else
#include "common/math/bfloat16.h"
#include "common/math/rounded.h"
#endif

namespace tessera::cuda {

#ifdef __CUDACC__

namespace {

cublasComputeType_t ComputeType(Products products) {
  switch (products) {
    case Products::kTf32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case Products::kBfloat16:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
    case Products::kFloat16:
      return CUBLAS_COMPUTE_32F_FAST_16F;
    default:
      return CUBLAS_COMPUTE_32F;
  }
}

}  // namespace

void Gemm(Stream& stream, Products products, int64_t m, int64_t n, int64_t k, Matrices a,
          Matrices b, float* c, bool add, int64_t count, int64_t c_stride, float alpha) {
  if (!stream.status().ok() || m == 0 || n == 0 || count == 0) return;
  if (k == 0) {
    if (!add) {
      for (int64_t i = 0; i < count; ++i) stream.Zero(c + i * c_stride, m * n);
    }
    return;
  }
  // cuBLAS reads columns first: what it takes for the transposes is C^T = B^T A^T.
  const float beta = add ? 1 : 0;
  const auto operation = [](const Matrices& x) { return x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const cublasStatus_t status = cublasGemmStridedBatchedEx(
      static_cast<cublasHandle_t>(stream.blas()), operation(b), operation(a), static_cast<int>(n),
      static_cast<int>(m), static_cast<int>(k), &alpha, b.data, CUDA_R_32F,
      static_cast<int>(b.transposed ? k : n), b.stride, a.data, CUDA_R_32F,
      static_cast<int>(a.transposed ? m : k), a.stride, &beta, c, CUDA_R_32F, static_cast<int>(n),
      c_stride, static_cast<int>(count), ComputeType(products), CUBLAS_GEMM_DEFAULT);
  if (status != CUBLAS_STATUS_SUCCESS) {
    stream.Fail(
        absl::InternalError(absl::StrCat("cuBLAS: a product of ", m, " x ", k, " and ", k, " x ", n,
                                         ", ", count, " times: ", cublasGetStatusString(status))));
  }
}

#else

namespace {

// What cuBLAS may make of an operand: to the nearest.
float Rounded(Products products, float x) {
  switch (products) {
    case Products::kTf32:
      return math::RoundedToTensorFloat32(x);
    case Products::kBfloat16:
      return math::FromBfloat16(math::NearestBfloat16(x));
    case Products::kFloat16:
      return math::RoundedToFloat16(x);
    default:
      return x;
  }
}

}  // namespace

void Gemm(Stream& stream, Products products, int64_t m, int64_t n, int64_t k, Matrices a,
          Matrices b, float* c, bool add, int64_t count, int64_t c_stride, float alpha) {
  ForEach(stream, "product", count * m * n, [=](int64_t i) {
    const int64_t product = i / (m * n), row = i / n % m, column = i % n;
    const float* const p = a.data + product * a.stride;
    const float* const q = b.data + product * b.stride;
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      sum += Rounded(products, a.transposed ? p[j * m + row] : p[row * k + j]) *
             Rounded(products, b.transposed ? q[column * k + j] : q[j * n + column]);
    }
    float& to = c[product * c_stride + row * n + column];
    to = alpha * sum + (add ? to : 0);
  });
}

#endif

}  // namespace tessera::cuda
