#pragma once

#include "tessera/v1/job.pb.h"
#include "worker/dense/graph.h"
#include "worker/dense/model_inputs.h"

namespace tessera::worker {

// Adds the layers of `model.layers` to the graph, whose inputs are "dense" and the tables, and
// returns the tensor that the loss reads. Errors go to the builder and begin with
// "model.layers[i]".
Tensor BuildLayers(const v1::ModelSpec& model, const ModelInputs& inputs, GraphBuilder& graph);

}  // namespace tessera::worker
