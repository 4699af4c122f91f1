#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// Field-weighted factorization machine (Pan et al. 2018, arXiv:1806.03514): the linear part and the
// dot products of all pairs of field vectors, with a trained weight for each pair of fields.
// Options: linear_table.
Tensor BuildFwfm(ModelParts& parts) {
  const Tensor dots = parts.graph().Add("fwfm/dots", "DotInteraction", {parts.FieldVectors()});
  const Tensor pairs = parts.Linear("fwfm/pairs", dots, 1, false);
  return parts.graph().Add("model/logit", "Add", {parts.Linear(), pairs});
}

}  // namespace tessera::worker
