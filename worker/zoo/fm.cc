#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// Factorization machine (Rendle 2010, "Factorization Machines", ICDM): the linear part and the
// products of all pairs of field vectors. Options: linear_table.
Tensor BuildFm(ModelParts& parts) {
  const Tensor pairs = parts.graph().Add("fm/pairs", "FM", {parts.FieldVectors()});
  return parts.graph().Add("model/logit", "Add", {parts.Linear(), pairs});
}

}  // namespace tessera::worker
