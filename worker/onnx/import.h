#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "tessera/v1/job.pb.h"
#include "worker/dense/graph.h"
#include "worker/dense/model_inputs.h"
#include "worker/onnx/read.h"

namespace tessera::worker {

// model.name of a job whose network is an ONNX file.
inline constexpr char kOnnxModel[] = "onnx";

// Adds the network of an ONNX file to the graph, whose inputs are "dense" and the tables, and
// returns the tensors that the losses read: each task's output; for a model of one task
// model.output or the file's only output. Nodes that these do not need are left out. `starts` gets
// the initial values of the parameters.
//
// The file's inputs have the names that `layers` may read; model.options.inputs renames them:
//   options: {inputs: {numeric: dense, user_vector: user.embedding}}
// Initializers become parameters, except those that no gradient reaches, that hold infinities or
// that stand in the network's code (initializers.h); layers that use one in the same way share it.
// Numbers of a Constant node are not trained. But weights of matrices, normalisations and slopes
// are parameters wherever the file has them, but for scales and shifts that stand for none
// (initializers.h).
//
// Errors go to the builder and begin with "model.onnx_file". UNIMPLEMENTED names every op that
// cannot be read.
std::vector<Tensor> BuildOnnx(const v1::ModelSpec& model, const ModelInputs& inputs,
                              absl::string_view file, GraphBuilder& graph, ParameterStarts* starts);

}  // namespace tessera::worker
