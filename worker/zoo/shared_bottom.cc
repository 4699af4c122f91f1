#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// Shared bottom (Caruana 1997, "Multitask Learning"; as the baseline of Ma et al. 2018): one
// network reads all features, and a tower for each task reads that network. Options: those of the
// MLP, which are the shared network's; tower, the layers of each task's ([64]); classes, of tasks
// of softmax_cross_entropy that do not say how many they have.
Tensor BuildSharedBottom(ModelParts& parts) {
  ModelParts::MlpShape shape = parts.ReadMlp({{256, 128}, "relu", false, 0});
  const Tensor shared = parts.Hidden("shared", parts.Features(), shape);
  shape.hidden = parts.Widths("tower", {64});
  for (const ModelParts::Task& task : parts.Tasks()) {
    parts.TaskLogit(task, parts.Hidden(task.name + "/tower", shared, shape));
  }
  return {};
}

}  // namespace tessera::worker
