#pragma once

#include "worker/dense/graph.h"
#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// One per file, named after it: reads its options and returns the logits [batch, 1].
Tensor BuildDeepFm(ModelParts& parts);
Tensor BuildDnn(ModelParts& parts);
Tensor BuildFm(ModelParts& parts);
Tensor BuildLr(ModelParts& parts);
Tensor BuildWideDeep(ModelParts& parts);

}  // namespace tessera::worker
