#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/v1/job.pb.h"
#include "worker/dense/graph.h"
#include "worker/dense/model_inputs.h"
#include "worker/dense/options.h"

namespace tessera::worker {

// Parts that the models of the zoo share. Each part reads its options by name. An error goes to the
// builder, and later tensors are meaningless then, so models need no checks. Lives while one model
// is built.
class ModelParts {
 public:
  ModelParts(const v1::ModelSpec& model, const ModelInputs& inputs, OptionReader& options,
             GraphBuilder& graph);

  GraphBuilder& graph() { return graph_; }
  OptionReader& options() { return options_; }

  // The sum over fields of the rows of the linear table, which has dim 1, plus a bias, plus a
  // linear map of the dense features if there are any: [batch, 1].
  //   linear_table  its name ("linear"); may be missing if the data has no sparse columns
  Tensor Linear();
  // Field vectors of all tables but the linear one, [batch, fields, dim]; the tables must have one
  // dim.
  Tensor FieldVectors();
  // FieldVectors and, for each dense feature, a trained vector times the feature (as in AutoInt,
  // Song et al. 2019, equation 5): for models that read fields only.
  Tensor AllFieldVectors();
  // The rows of all tables but the linear one flattened, whatever their dims, and the dense
  // features: [batch, n].
  Tensor Features();
  // Returns the rows of the table that the option `option` names, flattened, and leaves the table
  // out of the three above from here on. The table must exist; it may be taken again.
  Tensor TakeTable(const std::string& option, const std::string& by_default);

  struct MlpShape {
    std::vector<int64_t> hidden = {400, 400, 400};
    std::string activation = "relu";
    bool batch_norm = false;
    double dropout = 0;  // share of a layer's outputs that is zeroed in training
  };
  // Options hidden, activation (one of ActivationOps), batch_norm, dropout; missing ones stay as in
  // `shape`.
  MlpShape ReadMlp(MlpShape shape);
  MlpShape ReadMlp() { return ReadMlp(MlpShape()); }
  // Option activation, one of ActivationOps.
  std::string ReadActivation(const std::string& by_default);
  // Option `name`, widths of layers.
  std::vector<int64_t> Widths(const std::string& name, const std::vector<int64_t>& by_default);
  // The hidden layers, NAME/1/linear and so on: each Gemm, BatchNormalization, activation, Dropout.
  Tensor Hidden(const std::string& name, Tensor x, const MlpShape& shape);
  // The parts of a hidden layer after its Gemm.
  Tensor Activate(const std::string& layer, Tensor x, const MlpShape& shape);
  Tensor Drop(const std::string& layer, Tensor x, double dropout);
  // A Gemm; its weights start as the option init says (xavier_normal, see WeightInit).
  Tensor Linear(const std::string& name, Tensor x, int64_t units, bool bias = true);
  // Hidden layers and a Gemm to [batch, 1], named mlp/...; options those of ReadMlp.
  Tensor Mlp(Tensor input);

  // Whether the losses of all tasks read logits of label 1 (math::Outputs::kLogits).
  bool ReadsLogits() const;

  // The tasks of model.tasks, for models of several; an error if there are none.
  struct Task {
    std::string name;
    int64_t logits = 1;  // of a loss of classes, one for each; 0: nobody says how many
  };
  // Option: classes, of tasks whose loss is softmax_cross_entropy and which do not say how many.
  std::vector<Task> Tasks();
  // Adds the tensor named like the task: a Gemm to [batch, logits].
  void TaskLogit(const Task& task, Tensor x);
  // A Gemm to the logits of the only task, [batch, classes]; option classes (1).
  Tensor Logit(const std::string& name, Tensor x);

  // Sequences and the candidate that they are compared with, for models of behaviour. Options:
  // sequence, columns whose pooling is sequence, and target, for each of them the column that it is
  // compared with, in the same table. Several sequences are put side by side. They have one
  // max_length and their places belong together, so the first sequence's length is that of all.
  struct Behaviour {
    Tensor target;                         // [batch, d]
    Tensor sequence;                       // [batch, T, d]
    Tensor length;                         // [batch, 1]
    int64_t places = 0;                    // T
    std::vector<std::string> tables = {};  // of each sequence
  };
  Behaviour ReadBehaviour();
  // Behaviour that did not happen, place by place; only sequence and length are set. Option:
  // negative, as many columns as `sequence`, of the same tables and max_length. Without it,
  // and unless they are to be `joined` for a loss that reads them, length.index is -1.
  Behaviour ReadNegatives(const Behaviour& of, bool joined);
  // [batch, T, 1]: `valid` in the places of the sequence, `padding` behind them.
  Tensor Mask(const std::string& name, const Behaviour& of, double valid, double padding);

  // A cross layer of DCN (Wang et al. 2017, arXiv:1708.05123, equation 3): x0 (x^T w) + b + x.
  Tensor Cross(const std::string& name, Tensor x0, Tensor x);
  // The parts side by side along the last axis.
  Tensor Concat(const std::string& name, const std::vector<Tensor>& parts);
  // The sum of the parts; a single part is returned as it is.
  Tensor Sum(const std::string& name, const std::vector<Tensor>& parts);
  int64_t Size(Tensor x, size_t axis);  // axis 0 is the one after the batch

  void Fail(const std::string& message);

 private:
  const std::string& LinearTable();
  const std::string& Init();
  std::vector<const ModelInputs::Table*> EmbeddingTables();
  // The column that the option names. nullptr and an error unless its pooling is sequence and its
  // max_length `places` (0: any).
  const ModelInputs::Sequence* FindSequence(const std::string& option, const std::string& column,
                                            int64_t places);
  // False and an error unless pooled rows of the column are in a table of embeddings.
  bool CheckTarget(const std::string& column);

  const v1::ModelSpec& model_;
  const ModelInputs& inputs_;
  OptionReader& options_;
  GraphBuilder& graph_;
  std::optional<std::string> linear_table_;
  std::optional<std::string> init_;
  std::set<std::string> taken_tables_;
};

}  // namespace tessera::worker
