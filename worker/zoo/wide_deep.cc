#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// Wide & Deep (Cheng et al. 2016, arXiv:1606.07792): a linear part and a deep network, their logits
// added. Crossed features are columns of the data. Options: linear_table and those of the MLP.
Tensor BuildWideDeep(ModelParts& parts) {
  return parts.graph().Add("model/logit", "Add", {parts.Linear(), parts.Mlp(parts.Features())});
}

}  // namespace tessera::worker
