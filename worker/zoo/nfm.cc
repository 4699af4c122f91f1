#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// Neural factorization machine (He, Chua 2017, arXiv:1708.05027): the linear part and a deep
// network over the field vectors' bi-interaction pooling. Options: linear_table and those of the
// MLP.
Tensor BuildNfm(ModelParts& parts) {
  const Tensor pooled = parts.graph().Add("nfm/bi_interaction", "FM", {parts.FieldVectors()},
                                          Options().Set("sum", false));
  return parts.graph().Add("model/logit", "Add", {parts.Linear(), parts.Mlp(pooled)});
}

}  // namespace tessera::worker
