#pragma once

// For .cu files alone: it needs CUDA's headers.

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "cuda/dense/products.h"
#include "cuda/memory.h"
#include "cuda/stream.h"

namespace tessera::cuda {

// The arguments of Gemm. No size is 0.
struct Product {
  Products products;
  int64_t m, n, k;
  Matrices a, b;
  float* c;
  Epilogue epilogue;
  ProductBatch batch;
};

// Runs a stream's products by cuBLASLt. The algorithm is chosen when a kind of product first comes,
// and kept: cuBLAS's heuristic chooses by `Key` and the card alone, or, if the stream searches, the
// candidates are tried. So the same sizes always have the same kernel, captured or not. Belongs to
// the stream; only the stream's thread uses it.
class ProductPlans {
 public:
  // The stream owns this. Errors are the stream's: INTERNAL, or RESOURCE_EXHAUSTED if the card has
  // no room for the workspace.
  explicit ProductPlans(Stream& stream);
  ~ProductPlans();
  ProductPlans(const ProductPlans&) = delete;
  ProductPlans& operator=(const ProductPlans&) = delete;

  // Gives the stream the product. False: bias and rectifier are left to the caller, because cuBLAS
  // has no algorithm with them at these sizes or the bias does not begin at a multiple of 16 bytes.
  // Errors are the stream's.
  bool Run(const Product& product);

 private:
  // All that the choice of an algorithm, or a search for one, depends on.
  using Key = std::array<int64_t, 16>;
  // A product as cuBLAS reads it, columns first: C^T [n, m] = B^T A^T, so that its A is our B. In
  // cuBLAS's terms a bias has a number for each row of C^T. A Plan is never moved in memory.
  struct Plan {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, c;  // of cuBLAS
    cublasLtMatmulAlgo_t algorithm;
    bool finishes = false;  // adds the bias and rectifies
  };
  using Candidates = std::vector<cublasLtMatmulHeuristicResult_t>;

  static Key KeyOf(const Product& product);
  cublasStatus_t Choose(const Product& product, Plan* plan);
  cublasStatus_t FindCandidates(const Product& product, int most, Plan* plan,
                                Candidates* candidates);
  void Search(const Product& product, const Candidates& candidates, Plan* plan);
  cublasStatus_t Multiply(const Product& product, const cublasLtMatmulAlgo_t& algorithm, float* c,
                          Plan* plan);

  Stream& stream_;
  cublasLtHandle_t handle_ = nullptr;
  Memory workspace_;
  std::map<Key, Plan> plans_;
};

}  // namespace tessera::cuda
