#pragma once

// Dense models at the sizes that the benchmarks run, with random inputs.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/task_pool.h"
#include "worker/dense/executor.h"
#include "worker/dense/model.h"

namespace tessera::bench {

// A job as the worker gets it, as far as Model reads it.
struct DenseShape {
  std::string model;
  uint32_t fields = 0;
  uint32_t dim = 0;
  uint32_t dense = 0;
  uint32_t batch = 0;
  bool linear = false;
  std::vector<int64_t> bottom, hidden;
  bool regularised = false;  // batch normalisation and dropout
  worker::Precision precision = worker::Precision::kFloat32;
};

DenseShape DeepFmShape();  // Frappe's
DenseShape DlrmShape();    // Criteo's

// A model with all that a step needs.
class DenseStep {
 public:
  // On the stream's card, which has the pooled inputs already; null: on the CPU.
  DenseStep(const DenseShape& shape, TaskPool* pool,
            std::unique_ptr<cuda::Stream> stream = nullptr);

  // On a card: whether steps are captured and replayed; at first they are.
  void Capture(bool capture) { executor_.CapturePasses(capture); }
  // Forward and backward; the sum of the losses.
  double Run();
  absl::Status status() const { return executor_.status(); }

 private:
  void FillInput(size_t input);

  const std::unique_ptr<worker::Model> model_;
  worker::Executor executor_;
  std::vector<float> trained_, statistics_, trained_gradient_, statistics_gradient_, labels_;
  uint64_t step_ = 0;
};

// One layer's product of a step: x [batch, in] times the transpose of w [out, in].
struct DenseLayer {
  int64_t in = 0;
  int64_t out = 0;
  bool input_gradient = true;  // false: it reads data alone
};
std::vector<DenseLayer> DenseLayers(const DenseShape& shape);

}  // namespace tessera::bench
