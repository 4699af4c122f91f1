#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/file_system.h"
#include "tessera/v1/job.pb.h"
#include "worker/dense/graph.h"
#include "worker/dense/loss.h"
#include "worker/dense/model_inputs.h"
#include "worker/dense/precision.h"

namespace tessera::worker {

// What adds the network of a job to a graph that has its inputs, and gives what the losses read.
// Errors go to the builder.
struct Network {
  Tensor output;                 // of a model without tasks
  std::vector<Tensor> of_tasks;  // one for each task; empty: tasks name tensors of the graph
  ParameterStarts starts;        // of parameters that do not start as their op says
  // Of a model of the zoo, those that it has, set or not.
  std::vector<OptionValue> options;
};
using BuildNetwork = absl::FunctionRef<Network(const ModelInputs& inputs, GraphBuilder& graph)>;

// The dense network of a job: its graph and the initial values of its parameters. Immutable and
// thread-safe; outlives its Executors. Needs no data and no device, so `check` builds one too.
class Model {
 public:
  // The model whose network `build` adds to the graph; NewModel (worker/new_model.h) knows which
  // that is. `dense_width` is the width of the reader's batches, the sum of the dense columns'
  // widths. INVALID_ARGUMENT and UNIMPLEMENTED name the field that is wrong.
  static absl::StatusOr<std::unique_ptr<Model>> New(const v1::JobSpec& spec, uint32_t dense_width,
                                                    BuildNetwork build);

  // Sizes of the flat arrays, tensors in graph order one after another.
  uint64_t trained_floats() const { return graph_->trained_floats(); }
  uint64_t statistics_floats() const { return graph_->statistics_floats(); }
  // Writes the values that training starts from: those of the ONNX file, else functions of
  // (spec.seed, parameter name, index).
  void InitialParameters(absl::Span<float> trained,            // [trained_floats]
                         absl::Span<float> statistics) const;  // [statistics_floats]

  // An input that the model reads from a table: the pooled rows of the table's columns, [batch,
  // fields, dim]; or the rows of one sequence column one after another, padded with zeros, where
  // `fields` is its max_length.
  struct Input {
    std::string table;
    uint32_t table_index = 0;  // in TablesOf(spec)
    uint32_t fields = 0;       // pooled columns that name the table, in the order of the spec
    uint32_t dim = 0;
    int32_t tensor = -1;        // in graph()
    std::string sequence = {};  // the column of a sequence; empty: the pooled ones
  };
  absl::Span<const Input> inputs() const { return inputs_; }
  // How many rows a sample's sequence has, [batch, 1].
  struct Length {
    uint32_t sparse_index = 0;  // index of the column among the SPARSE columns
    int32_t tensor = -1;
  };
  absl::Span<const Length> lengths() const { return lengths_; }
  uint32_t dense_width() const { return dense_width_; }
  // The tensor of the dense features; -1: there are none.
  int32_t dense_tensor() const { return dense_tensor_; }

  const Graph& graph() const { return *graph_; }
  // One for each of the graph's outputs.
  const std::vector<LossFunction>& losses() const { return losses_; }
  // Whether a loss compares samples of a group.
  bool ranks() const;
  // Classes of the task; 1 where it has none.
  uint32_t OutputWidth(size_t task) const;
  // Of products, in training.
  Precision precision() const { return precision_; }
  uint64_t seed() const { return seed_; }
  std::string Summary() const { return graph_->Summary(); }
  // Of a model of the zoo, those that it has, set or not.
  absl::Span<const OptionValue> options() const { return options_; }

 private:
  Model() = default;

  std::vector<LossFunction> losses_;
  Precision precision_ = Precision::kFloat32;
  uint64_t seed_ = 0;
  uint32_t dense_width_ = 0;
  int32_t dense_tensor_ = -1;
  std::vector<Input> inputs_;
  ParameterStarts starts_;
  std::vector<Length> lengths_;
  std::vector<OptionValue> options_;
  std::unique_ptr<const Graph> graph_;
};

}  // namespace tessera::worker
