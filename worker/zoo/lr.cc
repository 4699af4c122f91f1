#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// Logistic regression (as in Richardson, Dominowska, Ragno 2007, for clicks). Options:
// linear_table.
Tensor BuildLr(ModelParts& parts) { return parts.Linear(); }

}  // namespace tessera::worker
