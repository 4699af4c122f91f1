#include "absl/strings/str_cat.h"
#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// DCN V2 (Wang et al. 2021, arXiv:2008.13535): cross layers x0 * (W x + b) + x, W of full rank or
// U V^T, and a deep network, over the same features (parallel) or over what the cross layers give
// (stacked). Options: cross_layers (3); low_rank, that of W (0: full); structure (parallel);
// hidden: [] leaves the deep network out; those of the MLP.
Tensor BuildDcnV2(ModelParts& parts) {
  const int64_t layers = parts.options().Int("cross_layers", 3, 1, 100);
  const int64_t low_rank = parts.options().Int("low_rank", 0, 0, 1 << 16);
  const std::string structure =
      parts.options().Choice("structure", "parallel", {"parallel", "stacked"});
  const ModelParts::MlpShape mlp = parts.ReadMlp();
  const Tensor x0 = parts.Features();
  Tensor x = x0;
  for (int64_t i = 1; i <= layers; ++i) {
    const std::string name = absl::StrCat("cross/", i);
    Tensor y = x;
    if (low_rank > 0) y = parts.Linear(name + "/project", y, low_rank, false);
    y = parts.Linear(name + "/linear", y, parts.Size(x0, 0));
    y = parts.graph().Add(name + "/product", "Mul", {x0, y});
    x = parts.graph().Add(name, "Add", {y, x});
  }
  if (structure == "stacked") {
    x = parts.Hidden("mlp", x, mlp);
  } else if (!mlp.hidden.empty()) {
    x = parts.Concat("model/features", {x, parts.Hidden("mlp", x0, mlp)});
  }
  return parts.Linear("model/logit", x, 1);
}

}  // namespace tessera::worker
