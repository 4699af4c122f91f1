#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// Field-aware factorization machine (Juan et al. 2016, "Field-aware Factorization Machines for CTR
// Prediction", RecSys): the linear part and the products of all pairs of fields, each by its vector
// for the other field: the table's dim is (fields - 1) k. Options: linear_table.
Tensor BuildFfm(ModelParts& parts) {
  const Tensor pairs = parts.graph().Add("ffm/pairs", "FFM", {parts.FieldVectors()});
  return parts.graph().Add("model/logit", "Add", {parts.Linear(), pairs});
}

}  // namespace tessera::worker
