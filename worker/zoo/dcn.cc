#include "absl/strings/str_cat.h"
#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// Deep & Cross network (Wang et al. 2017, arXiv:1708.05123): cross layers and a deep network side
// by side over the same features. Options: cross_layers (3); hidden: [] leaves the deep network
// out; those of the MLP.
Tensor BuildDcn(ModelParts& parts) {
  const int64_t layers = parts.options().Int("cross_layers", 3, 1, 100);
  const ModelParts::MlpShape mlp = parts.ReadMlp();
  const Tensor x0 = parts.Features();
  Tensor x = x0;
  for (int64_t i = 1; i <= layers; ++i) x = parts.Cross(absl::StrCat("cross/", i), x0, x);
  if (!mlp.hidden.empty()) x = parts.Concat("model/features", {x, parts.Hidden("mlp", x0, mlp)});
  return parts.Linear("model/logit", x, 1);
}

}  // namespace tessera::worker
