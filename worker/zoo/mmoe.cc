#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// Multi-gate mixture of experts (Ma et al. 2018, "Modeling Task Relationships in Multi-task
// Learning with Multi-gate Mixture-of-Experts", equations 4 to 7): every task has a gate, a softmax
// over experts that all tasks share, and a tower that reads its mixture. Options: experts, how many
// (4); those of the MLP, which are each expert's; tower, the layers of each task's ([64]); classes,
// of tasks of softmax_cross_entropy that do not say how many they have.
Tensor BuildMmoe(ModelParts& parts) {
  GraphBuilder& graph = parts.graph();
  const int64_t experts = parts.options().Int("experts", 4, 1, 256);
  ModelParts::MlpShape shape = parts.ReadMlp({{256, 128}, "relu", false, 0});
  const Tensor features = parts.Features();
  std::vector<Tensor> outputs;
  for (int64_t e = 1; e <= experts; ++e) {
    const std::string name = "expert" + std::to_string(e);
    const Tensor x = parts.Hidden(name, features, shape);
    outputs.push_back(
        graph.Add(name + "/output", "Reshape", {x},
                  Options().Set("shape", std::vector<int64_t>{0, 1, parts.Size(x, 0)})));
  }
  const Tensor all = outputs.size() == 1
                         ? outputs[0]
                         : graph.Add("experts/all", "Concat", outputs, Options().Set("axis", 1.0));
  shape.hidden = parts.Widths("tower", {64});
  for (const ModelParts::Task& task : parts.Tasks()) {
    const Tensor score = parts.Linear(task.name + "/gate/score", features, experts, false);
    const Tensor gate = graph.Add(task.name + "/gate", "Reshape",
                                  {graph.Add(task.name + "/gate/softmax", "Softmax", {score})},
                                  Options().Set("shape", std::vector<int64_t>{0, 1, experts}));
    const Tensor mixture =
        graph.Add(task.name + "/mixture", "Flatten",
                  {graph.Add(task.name + "/mixture/sum", "MatMul", {gate, all})});
    parts.TaskLogit(task, parts.Hidden(task.name + "/tower", mixture, shape));
  }
  return {};
}

}  // namespace tessera::worker
