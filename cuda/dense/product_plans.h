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

// A product with all that belongs to it, as Gemm takes it. No size is 0.
struct Product {
  Products products;
  int64_t m, n, k;
  Matrices a, b;
  float* c;
  Epilogue epilogue;
  ProductBatch batch;
};

// How cuBLASLt does a stream's products. Which algorithm is chosen when a kind of product first
// comes, and kept: by cuBLAS's heuristic, from what `Key` holds and the card alone, or where the
// stream searches by trying the candidates. So the same sizes have the same kernel, first and
// later, captured and not. Belongs to the stream, whose thread is the only one to use it.
class ProductPlans {
 public:
  // The stream owns it. What fails is the stream's error: INTERNAL, or RESOURCE_EXHAUSTED where
  // the card has no room for the workspace.
  explicit ProductPlans(Stream& stream);
  ~ProductPlans();
  ProductPlans(const ProductPlans&) = delete;
  ProductPlans& operator=(const ProductPlans&) = delete;

  // Gives the stream the product. False: without bias and rectifier, because cuBLAS has no
  // algorithm for both at these sizes, or the bias does not begin at a multiple of 16 bytes. What
  // fails is the stream's error.
  bool Run(const Product& product);

 private:
  // All that the choice of an algorithm depends on, and what a search measures.
  using Key = std::array<int64_t, 16>;
  // A product as cuBLAS reads it, columns first: C^T [n, m] = B^T A^T, so that its A is our B. In
  // its words a bias has a number for each row of C^T. Stays where it was made.
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
