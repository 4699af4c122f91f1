#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// Adaptive factorization network (Cheng, Shen, Huang 2020, arXiv:1909.03276): logarithmic neurons
// form products of powers of the field vectors, exp(W ln |v|), which a deep network reads. AFN+
// adds a deep network over embeddings of its own. A logarithm's slope has no bound near 0: rows
// want an optimizer that divides by the gradients' size, or clipped gradients. Options: log_neurons
// (1000); afn_hidden, the layers over them ([400]); log_batch_norm (true); ensemble, whether it is
// AFN+ (true); deep_table, the embeddings of its deep network (deep), whose layers are those of the
// MLP; linear_table names a table that is left out.
Tensor BuildAfn(ModelParts& parts) {
  OptionReader& options = parts.options();
  GraphBuilder& graph = parts.graph();
  const int64_t neurons = options.Int("log_neurons", 1000, 1, 1 << 16);
  const bool log_batch_norm = options.Bool("log_batch_norm", true);
  const bool ensemble = options.Bool("ensemble", true);
  const ModelParts::MlpShape mlp = parts.ReadMlp();
  ModelParts::MlpShape top = mlp;
  top.hidden = parts.Widths("afn_hidden", {400});
  const Tensor deep = ensemble ? parts.TakeTable("deep_table", "deep") : Tensor();

  const Tensor fields = parts.AllFieldVectors();
  const Tensor size = graph.Add("afn/abs", "Abs", {fields});
  const Tensor positive = graph.Add("afn/clip", "Clip", {size}, Options().Set("min", 1e-5));
  // [batch, dim, fields]: a neuron weighs the fields.
  Tensor x = graph.Add("afn/columns", "Transpose", {graph.Add("afn/log", "Log", {positive})},
                       Options().Set("perm", std::vector<int64_t>{0, 2, 1}));
  if (log_batch_norm) x = graph.Add("afn/log_batch_norm", "BatchNormalization", {x});
  x = graph.Add("afn/exp", "Exp", {parts.Linear("afn/neurons", x, neurons, false)});
  if (log_batch_norm) x = graph.Add("afn/exp_batch_norm", "BatchNormalization", {x});
  x = parts.Hidden("afn", graph.Add("afn/flat", "Flatten", {x}), top);
  const Tensor logit = parts.Linear("afn/logit", x, 1);
  if (!ensemble) return logit;
  const Tensor other = parts.Linear("mlp/logit", parts.Hidden("mlp", deep, mlp), 1);
  return parts.Linear("model/logit", parts.Concat("model/logits", {logit, other}), 1);
}

}  // namespace tessera::worker
