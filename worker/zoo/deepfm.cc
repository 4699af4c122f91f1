#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// DeepFM (Guo et al. 2017, arXiv:1703.04247): a factorization machine and a deep network over the
// same embeddings, their logits added. Options: linear_table and those of the MLP.
Tensor BuildDeepfm(ModelParts& parts) {
  const Tensor linear = parts.Linear();
  const Tensor pairs = parts.graph().Add("fm/pairs", "FM", {parts.FieldVectors()});
  const Tensor deep = parts.Mlp(parts.Features());
  return parts.graph().Add("model/logit", "Add", {linear, pairs, deep});
}

}  // namespace tessera::worker
