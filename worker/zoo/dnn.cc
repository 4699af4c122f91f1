#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// A deep network over embeddings and dense features (as the deep part of Covington, Adams, Sargin
// 2016, "Deep Neural Networks for YouTube Recommendations", RecSys). Options: those of the MLP;
// classes, for the loss softmax_cross_entropy; linear_table names a table that it leaves out, so
// that one spec serves several models.
Tensor BuildDnn(ModelParts& parts) {
  return parts.Logit("mlp/logit", parts.Hidden("mlp", parts.Features(), parts.ReadMlp()));
}

}  // namespace tessera::worker
