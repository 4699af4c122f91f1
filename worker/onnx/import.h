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
// returns the tensors that the losses read: of each task its output, or of a model of one task
// model.output or the file's only output. Nodes that they do not need are left out. `starts` gets
// where the parameters begin.
//
// The file's inputs are named like those of `layers`; model.options.inputs names them otherwise:
//   options: {inputs: {numeric: dense, user_vector: user.embedding}}
// Initializers become parameters, of several layers where these train them alike; what a Constant
// node or an initializer without dimensions holds stays a number. Weights of matrices,
// normalisations and slopes are parameters wherever they stand.
//
// Errors go to the builder and begin with "model.onnx_file". UNIMPLEMENTED names every op that
// cannot be read.
std::vector<Tensor> BuildOnnx(const v1::ModelSpec& model, const ModelInputs& inputs,
                              absl::string_view file, GraphBuilder& graph, ParameterStarts* starts);

}  // namespace tessera::worker
