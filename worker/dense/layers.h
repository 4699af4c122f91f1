#pragma once

#include <string>
#include <vector>

#include "tessera/v1/job.pb.h"
#include "worker/dense/graph.h"
#include "worker/dense/model_inputs.h"

namespace tessera::worker {

// model.name of a job whose network is its `layers`.
inline constexpr char kLayersModel[] = "layers";

// Adds the layers of `model.layers` to the graph, whose inputs are "dense" and the tables, and
// returns the tensor that the loss reads. Errors go to the builder and begin with
// "model.layers[i]".
Tensor BuildLayers(const v1::ModelSpec& model, const ModelInputs& inputs, GraphBuilder& graph);

// The tensor of a name that layers may read without a layer that makes it: "dense", a table, a
// column, "COLUMN.TABLE". Cut out of the graph's inputs when first asked for. Index -1: no such
// name.
Tensor FindLayerInput(const std::string& name, const ModelInputs& inputs, GraphBuilder& graph);
std::vector<std::string> KnownLayerInputs(const ModelInputs& inputs, GraphBuilder& graph);

}  // namespace tessera::worker
