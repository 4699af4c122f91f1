#pragma once

#include <string>
#include <vector>

#include "tessera/v1/job.pb.h"
#include "worker/dense/graph.h"
#include "worker/dense/model_inputs.h"

namespace tessera::worker {

// Adds the zoo model that `model.name` names to the graph, whose inputs are "dense" and the tables,
// and returns its logits; `options` gets those that the model has. Errors go to the builder; errors
// of options begin with "model.options.NAME: ".
Tensor BuildZooModel(const v1::ModelSpec& model, const ModelInputs& inputs, GraphBuilder& graph,
                     std::vector<OptionValue>* options);

// All models' names, sorted, for lists and messages.
std::vector<std::string> ZooModelNames();

}  // namespace tessera::worker
