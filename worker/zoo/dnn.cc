#include "worker/zoo/models.h"

namespace tessera::worker {

// A deep network over embeddings and dense features (as the deep part of Covington, Adams, Sargin
// 2016, "Deep Neural Networks for YouTube Recommendations", RecSys). Options: those of the MLP;
// linear_table names a table that it leaves out, so that one spec serves several models.
Tensor BuildDnn(ModelParts& parts) { return parts.Mlp(parts.Features()); }

}  // namespace tessera::worker
