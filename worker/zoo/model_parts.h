#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/dense/graph.h"
#include "worker/dense/model_inputs.h"
#include "worker/dense/options.h"

namespace tessera::worker {

// What the models of the zoo have in common. Options are read by name as parts ask for them; an
// error goes to the builder and leaves the tensors that follow meaningless, so a model is written
// without checks. Lives while one model is built.
class ModelParts {
 public:
  ModelParts(std::string model, const ModelInputs& inputs, OptionReader& options,
             GraphBuilder& graph);

  GraphBuilder& graph() { return graph_; }
  OptionReader& options() { return options_; }

  // Sum over fields of the rows of the linear table, of dim 1, plus a bias, plus a linear map of
  // the dense features where there are any: [batch, 1].
  //   linear_table  its name ("linear"); may be missing where the data has no sparse columns
  Tensor Linear();
  // Field vectors of all tables but the linear one, [batch, fields, dim]; they need one dim.
  Tensor FieldVectors();
  // The same flattened, whatever their dims, and the dense features: [batch, n].
  Tensor Features();
  // A layer is Gemm, BatchNormalization, activation, Dropout; then a Gemm to [batch, 1].
  //   hidden      widths ([400, 400, 400])
  //   activation  relu, ... any activation op ("relu")
  //   batch_norm  (false)
  //   dropout     share of a layer's outputs that is zeroed in training, 0 <= dropout < 1 (0)
  Tensor Mlp(Tensor input);

 private:
  const std::string& LinearTable();
  std::vector<const ModelInputs::Table*> EmbeddingTables();
  void Fail(const std::string& message);

  const std::string model_;
  const ModelInputs& inputs_;
  OptionReader& options_;
  GraphBuilder& graph_;
  std::optional<std::string> linear_table_;
};

}  // namespace tessera::worker
