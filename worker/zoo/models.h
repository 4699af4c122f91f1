#pragma once

#include "worker/dense/graph.h"
#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// One model per file, named after it: reads its options and returns the logits [batch, 1]. A model
// of several tasks leaves them in tensors named like the tasks.
Tensor BuildAfm(ModelParts& parts);
Tensor BuildAfn(ModelParts& parts);
Tensor BuildAutoInt(ModelParts& parts);
Tensor BuildDcn(ModelParts& parts);
Tensor BuildDcnV2(ModelParts& parts);
Tensor BuildDeepFm(ModelParts& parts);
Tensor BuildDien(ModelParts& parts);
Tensor BuildDin(ModelParts& parts);
Tensor BuildDlrm(ModelParts& parts);
Tensor BuildDnn(ModelParts& parts);
Tensor BuildEdcn(ModelParts& parts);
Tensor BuildFfm(ModelParts& parts);
Tensor BuildFinalMlp(ModelParts& parts);
Tensor BuildFinalNet(ModelParts& parts);
Tensor BuildFm(ModelParts& parts);
Tensor BuildFwfm(ModelParts& parts);
Tensor BuildLr(ModelParts& parts);
Tensor BuildMaskNet(ModelParts& parts);
Tensor BuildMmoe(ModelParts& parts);
Tensor BuildNfm(ModelParts& parts);
Tensor BuildSharedBottom(ModelParts& parts);
Tensor BuildWideDeep(ModelParts& parts);
Tensor BuildXDeepFm(ModelParts& parts);

}  // namespace tessera::worker
