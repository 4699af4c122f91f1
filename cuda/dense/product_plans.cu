// Products by cuBLASLt: their description, the choice of an algorithm, and the call.
#include "cuda/dense/product_plans.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cuda/memory.h"
#include "cuda/native.h"

namespace tessera::cuda {
namespace {

// Large enough for every product; given once, so that the choice of kernels and their bits do not
// depend on what ran before.
constexpr size_t kWorkspaceBytes = kWorkspaceFloats * sizeof(float);
// Batches have few sizes, and a plan takes less than a kilobyte.
constexpr size_t kMostPlans = 4096;
constexpr int kMostCandidates = 16;
// Bytes that no kernel loads more of at once. What else an address is a multiple of depends on the
// largest batch so far, which is not to choose kernels.
constexpr uintptr_t kMostAlignment = 16;

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

cublasLtEpilogue_t EpilogueOf(const Epilogue& epilogue) {
  if (epilogue.bias != nullptr) {
    return epilogue.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  }
  return epilogue.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

// Bytes, a power of two.
uint32_t AlignmentOf(const float* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  uintptr_t alignment = kMostAlignment;
  while (address % alignment != 0) alignment /= 2;
  return static_cast<uint32_t>(alignment);
}

// What cuBLAS is told, attribute by attribute, until it refuses one.
class Description {
 public:
  cublasStatus_t status() const { return status_; }
  void Keep(cublasStatus_t status) {
    if (status_ == CUBLAS_STATUS_SUCCESS) status_ = status;
  }
  template <typename T>
  void Set(cublasLtMatmulDescOpaque_t* of, cublasLtMatmulDescAttributes_t what, const T& value) {
    Keep(cublasLtMatmulDescSetAttribute(of, what, &value, sizeof(value)));
  }
  template <typename T>
  void Set(cublasLtMatrixLayoutOpaque_t* of, cublasLtMatrixLayoutAttribute_t what, const T& value) {
    Keep(cublasLtMatrixLayoutSetAttribute(of, what, &value, sizeof(value)));
  }
  template <typename T>
  void Set(cublasLtMatmulPreferenceOpaque_t* of, cublasLtMatmulPreferenceAttributes_t what,
           const T& value) {
    Keep(cublasLtMatmulPreferenceSetAttribute(of, what, &value, sizeof(value)));
  }
  // Columns lie side by side: float32 throughout.
  void SetLayout(cublasLtMatrixLayoutOpaque_t* of, int64_t rows, int64_t columns, int64_t count,
                 int64_t stride) {
    Keep(cublasLtMatrixLayoutInit(of, CUDA_R_32F, rows, columns, rows));
    Set(of, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(count));
    Set(of, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }

 private:
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

// A card without room for a kernel's code, for which cuBLAS has no error of its own.
bool LacksRoom(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_INTERNAL_ERROR && status != CUBLAS_STATUS_NOT_INITIALIZED &&
      status != CUBLAS_STATUS_EXECUTION_FAILED) {
    return false;
  }
  constexpr size_t kCodeBytes = 64 << 20;
  size_t free = 0, total = 0;
  const bool known = cudaMemGetInfo(&free, &total) == cudaSuccess;  // a lost card does not say
  cudaGetLastError();
  return known && free < kCodeBytes;
}

// `what` is what was tried. A card without room is not lost.
absl::Status StatusOf(cublasStatus_t status, absl::string_view what) {
  const std::string text = absl::StrCat("cuBLAS: ", what, ": ", cublasLtGetStatusString(status));
  return status == CUBLAS_STATUS_ALLOC_FAILED || LacksRoom(status)
             ? absl::ResourceExhaustedError(text)
             : absl::InternalError(text);
}

// Of the card; unlike Memory's it is no error of the stream where there is none.
class ScratchForSearch {
 public:
  explicit ScratchForSearch(size_t bytes) {
    if (cudaMalloc(&data_, bytes) == cudaSuccess) return;
    data_ = nullptr;
    cudaGetLastError();  // it would be the next launch's
  }
  ~ScratchForSearch() {
    cudaFree(data_);
    cudaGetLastError();
  }
  ScratchForSearch(const ScratchForSearch&) = delete;
  ScratchForSearch& operator=(const ScratchForSearch&) = delete;
  float* data() const { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
};

// Milliseconds between two points of a stream's work.
class Timer {
 public:
  explicit Timer(Stream& stream) : stream_(stream) {
    stream.Check("a timer", cudaEventCreate(&begin_));
    stream.Check("a timer", cudaEventCreate(&end_));
  }
  ~Timer() {
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
    cudaGetLastError();
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void Begin() { Record(begin_); }
  // Waits for the work since Begin.
  float End() {
    float milliseconds = 0;
    Record(end_);
    if (!stream_.status().ok()) return 0;
    stream_.Check("what is timed", cudaEventSynchronize(end_));
    stream_.Check("a timer", cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds;
  }

 private:
  void Record(cudaEvent_t event) {
    if (!stream_.status().ok()) return;
    stream_.Check("a timer", cudaEventRecord(event, Native(stream_)));
  }

  Stream& stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace

ProductPlans::ProductPlans(Stream& stream) : stream_(stream) {
  if (const cublasStatus_t status = cublasLtCreate(&handle_); status != CUBLAS_STATUS_SUCCESS) {
    cudaGetLastError();
    stream.Fail(StatusOf(status, "its start"));
  }
  workspace_ = Memory(stream, Memory::Where::kDevice, kWorkspaceFloats);
}

ProductPlans::~ProductPlans() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

ProductPlans::Key ProductPlans::KeyOf(const Product& product) {
  const Epilogue& epilogue = product.epilogue;
  return {static_cast<int64_t>(product.products),
          product.m,
          product.n,
          product.k,
          product.a.transposed,
          product.b.transposed,
          product.a.stride,
          product.b.stride,
          product.batch.count,
          product.batch.c_stride,
          epilogue.add,
          EpilogueOf(epilogue),
          AlignmentOf(product.a.data),
          AlignmentOf(product.b.data),
          AlignmentOf(product.c),
          AlignmentOf(epilogue.bias)};
}

bool ProductPlans::Run(const Product& product) {
  const Key key = KeyOf(product);
  auto found = plans_.find(key);
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  if (found == plans_.end()) {
    if (plans_.size() == kMostPlans) plans_.clear();
    found = plans_.try_emplace(key).first;
    status = Choose(product, &found->second);
  }
  Plan& plan = found->second;
  if (status == CUBLAS_STATUS_SUCCESS && stream_.status().ok()) {
    status = Multiply(product, plan.algorithm, product.c, &plan);
  }
  if (status != CUBLAS_STATUS_SUCCESS) {
    plans_.erase(found);
    cudaGetLastError();
    stream_.Fail(StatusOf(
        status, absl::StrCat("a product of ", product.m, " x ", product.k, " and ", product.k,
                             " x ", product.n, ", ", product.batch.count, " times")));
    return true;
  }
  return plan.finishes;
}

cublasStatus_t ProductPlans::Choose(const Product& product, Plan* plan) {
  // Nothing can be timed in a capture.
  const bool searches = stream_.searches_products() && !stream_.capturing();
  const int most = searches ? kMostCandidates : 1;
  // The heuristic cannot be told how a bias is aligned, and some kernels fault where it is less.
  plan->finishes = AlignmentOf(product.epilogue.bias) == kMostAlignment;
  Candidates candidates;
  cublasStatus_t status = FindCandidates(product, most, plan, &candidates);
  if (candidates.empty() && EpilogueOf(product.epilogue) != CUBLASLT_EPILOGUE_DEFAULT) {
    plan->finishes = false;
    status = FindCandidates(product, most, plan, &candidates);
  }
  if (candidates.empty()) {
    return status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status;
  }
  plan->algorithm = candidates[0].algo;
  if (candidates.size() > 1) Search(product, candidates, plan);
  return CUBLAS_STATUS_SUCCESS;
}

// Describes the product, in *plan, and asks for algorithms, the best by cuBLAS's estimate first. It
// may have none and call that a success.
cublasStatus_t ProductPlans::FindCandidates(const Product& product, int most, Plan* plan,
                                            Candidates* candidates) {
  const int64_t m = product.m, n = product.n, k = product.k, count = product.batch.count;
  const Matrices &a = product.a, &b = product.b;
  const Epilogue& epilogue = product.epilogue;
  const auto transposed = [](bool is) { return is ? CUBLAS_OP_T : CUBLAS_OP_N; };
  Description description;
  description.Keep(
      cublasLtMatmulDescInit(&plan->operation, ComputeType(product.products), CUDA_R_32F));
  description.Set(&plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, transposed(b.transposed));
  description.Set(&plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, transposed(a.transposed));
  if (plan->finishes) {
    description.Set(&plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(epilogue));
    description.Set(&plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.bias);
  }
  description.SetLayout(&plan->a, b.transposed ? k : n, b.transposed ? n : k, count, b.stride);
  description.SetLayout(&plan->b, a.transposed ? m : k, a.transposed ? k : m, count, a.stride);
  description.SetLayout(&plan->c, n, m, count, product.batch.c_stride);

  cublasLtMatmulPreferenceOpaque_t preference = {};
  description.Keep(cublasLtMatmulPreferenceInit(&preference));
  description.Set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                  static_cast<uint64_t>(kWorkspaceBytes));
  description.Set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(b.data));
  description.Set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(a.data));
  description.Set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(product.c));
  description.Set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(product.c));
  if (description.status() != CUBLAS_STATUS_SUCCESS) return description.status();

  candidates->resize(most);
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, &plan->operation, &plan->a, &plan->b, &plan->c,
                                     &plan->c, &preference, most, candidates->data(), &found);
  candidates->resize(status == CUBLAS_STATUS_SUCCESS ? found : 0);
  candidates->erase(std::remove_if(candidates->begin(), candidates->end(),
                                   [](const cublasLtMatmulHeuristicResult_t& candidate) {
                                     return candidate.state != CUBLAS_STATUS_SUCCESS;
                                   }),
                    candidates->end());
  return status;
}

// Times the candidates over the product's own operands. C is left alone: they write elsewhere, and
// with `add` read there too. Where the card has no room for that, the first candidate stays.
void ProductPlans::Search(const Product& product, const Candidates& candidates, Plan* plan) {
  constexpr int kRounds = 3, kProducts = 5;
  const auto floats = static_cast<size_t>((product.batch.count - 1) * product.batch.c_stride +
                                          product.m * product.n);
  const ScratchForSearch c(floats * sizeof(float));
  if (c.data() == nullptr) return;
  stream_.Zero(c.data(), floats);
  Timer timer(stream_);
  float best = std::numeric_limits<float>::infinity();
  for (const cublasLtMatmulHeuristicResult_t& candidate : candidates) {
    if (!stream_.status().ok()) return;
    const auto run = [&] { return Multiply(product, candidate.algo, c.data(), plan); };
    // The first time loads the kernel.
    if (run() != CUBLAS_STATUS_SUCCESS) {
      cudaGetLastError();
      continue;
    }
    for (int round = 0; round < kRounds; ++round) {
      timer.Begin();
      for (int i = 0; i < kProducts; ++i) run();
      const float milliseconds = timer.End();
      if (milliseconds >= best) continue;
      best = milliseconds;
      plan->algorithm = candidate.algo;
    }
  }
}

// `c`: the product's, or memory like it.
cublasStatus_t ProductPlans::Multiply(const Product& product, const cublasLtMatmulAlgo_t& algorithm,
                                      float* c, Plan* plan) {
  const Epilogue& epilogue = product.epilogue;
  const float beta = epilogue.add ? 1 : 0;
  Description description;
  if (plan->finishes && epilogue.bias != nullptr) {
    description.Set(&plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.bias);
  }
  if (description.status() != CUBLAS_STATUS_SUCCESS) return description.status();
  return cublasLtMatmul(handle_, &plan->operation, &epilogue.alpha, product.b.data, &plan->a,
                        product.a.data, &plan->b, &beta, c, &plan->c, c, &plan->c, &algorithm,
                        workspace_.data(), kWorkspaceBytes, Native(stream_));
}

}  // namespace tessera::cuda
