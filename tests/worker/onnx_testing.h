#pragma once

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/config/yaml_job.h"
#include "common/job/tasks.h"
#include "tests/paths.h"
#include "tests/worker/dense_job_testing.h"
#include "tests/worker/op_cases.h"
#include "tests/worker/zoo_testing.h"
#include "worker/dense/model_inputs.h"
#include "worker/onnx/onnx_proto.h"
#include "worker/zoo/zoo.h"

namespace tessera::worker::testing {

// A job whose model goes to ONNX and back.
struct OnnxCase {
  std::string name;
  std::string op;  // of those made for one
  v1::JobSpec spec;
};

// A regression over one op: its inputs are pooled rows, reshaped; its outputs go side by side
// through a linear layer, so that any number that differs shows.
// `numbers`: what the case has for each input, if it has numbers.
inline OnnxCase CaseOfOp(const OpCase& given, const std::vector<GoldenTensor>& numbers,
                         int outputs) {
  const std::string& op = given.op;
  const std::vector<Shape>& inputs = given.inputs;
  OnnxCase made;
  made.op = op;
  v1::JobSpec& spec = made.spec;
  spec.set_seed(3);
  spec.mutable_data()->set_format(v1::CSV);
  auto* model = spec.mutable_model();
  model->set_name("layers");
  model->set_loss(v1::MEAN_SQUARED_ERROR);
  const auto add = [&](const std::string& name, const std::string& layer_op,
                       const std::vector<std::string>& from,
                       const google::protobuf::Struct& layer_options = {}) {
    auto* layer = model->add_layers();
    layer->set_name(name);
    layer->set_op(layer_op);
    for (const std::string& input : from) layer->add_inputs(input);
    *layer->mutable_options() = layer_options;
    return layer;
  };
  // What has no inputs stands beside one.
  const std::vector<Shape> shapes = inputs.empty() ? std::vector<Shape>{{2}} : inputs;
  std::vector<std::string> names, flat;
  for (size_t k = 0; k < shapes.size(); ++k) {
    const std::string column = absl::StrCat("c", k), table = absl::StrCat("t", k);
    auto* added = spec.mutable_data()->add_columns();
    added->set_name(column);
    added->set_role(v1::SPARSE);
    added->add_table(table);
    std::vector<int64_t> shape = {0};
    for (size_t i = 0; i < shapes[k].rank(); ++i) shape.push_back(shapes[k].dim(i));
    auto* added_table = spec.add_tables();
    added_table->set_name(table);
    added_table->set_dim(static_cast<uint32_t>(shapes[k].floats()));
    names.push_back(absl::StrCat("in", k));
    add(names.back(), "Reshape", {absl::StrCat(column, ".", table)}, Options().Set("shape", shape));
    // An input is kept to numbers of the kind that the case has there.
    const double least = k < numbers.size()
                             ? *std::min_element(numbers[k].values.begin(), numbers[k].values.end())
                             : -1;
    if (least < 0) continue;
    const std::string as_given = names.back();
    names.back() = absl::StrCat("kept", k);
    if (least == 0) {  // a condition
      add(names.back(), "Step", {as_given});
    } else if (shapes[k] == Shape{1}) {  // lengths
      const std::string size = absl::StrCat("size", k), factor = absl::StrCat("factor", k);
      add(size, "Abs", {as_given});
      add(factor, "Constant", {},
          Options().Set("shape", std::vector<int64_t>{1}).Set("value", 6.0));
      add(names.back(), "Mul", {size, factor});
    } else {
      add(names.back(), "Abs", {as_given});
    }
  }
  auto* layer = add("op", op, inputs.empty() ? std::vector<std::string>() : names, given.options);
  std::vector<std::string> results = {"op"};
  if (outputs > 1) results.clear();
  for (int k = 0; outputs > 1 && k < outputs; ++k) {
    results.push_back(absl::StrCat("out", k));
    layer->add_outputs(results.back());
  }
  if (inputs.empty()) results.push_back(names[0]);
  for (const std::string& result : results) {
    flat.push_back("flat_" + result);
    add(flat.back(), "Flatten", {result});
  }
  add("all", "Concat", flat);
  add("sum", "Gemm", {"all"}, Options().Set("units", 1.0));
  return made;
}

// Every op of the table, by the cases of tests/golden/dense_ops.txt.
inline std::vector<OnnxCase> OpCases() {
  std::vector<OnnxCase> cases;
  for (const GoldenOp& golden : GoldenOps()) {
    cases.push_back(
        CaseOfOp(golden, golden.Of("input"), static_cast<int>(golden.Of("output").size())));
  }
  for (const OpCase& other : OpsWithoutNumbers()) cases.push_back(CaseOfOp(other, {}, 1));
  for (size_t i = 0; i < cases.size(); ++i)
    cases[i].name = absl::StrCat("op-", i, "-", cases[i].op);
  return cases;
}

// The complete jobs of deploy/jobs.
inline std::vector<OnnxCase> JobCases() {
  std::vector<OnnxCase> cases;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("deploy/jobs"))) {
    if (entry.path().extension() != ".yaml") continue;
    const absl::StatusOr<LoadedJob> job = LoadJobFile(entry.path().string());
    EXPECT_TRUE(job.ok()) << job.status();
    if (job.ok()) cases.push_back({"job-" + entry.path().stem().string(), "", job->spec});
  }
  return cases;
}

// Every model of the zoo, small.
inline std::vector<OnnxCase> ZooCases() {
  std::vector<OnnxCase> cases;
  for (const std::string& name : ZooModelNames()) {
    cases.push_back({"zoo-" + name, "", TinyJob(name)});
  }
  return cases;
}

// Parameters like those of a trained model: none at its start, variances above zero.
inline void FillParameters(Session& session, uint64_t seed) {
  for (const GraphParameter& parameter : session.model.graph().parameters()) {
    auto& all = parameter.spec.trained ? session.trained : session.statistics;
    // Sums stay near 1: of a matrix [units, ...], one row is a sum.
    const size_t width = parameter.spec.shape.size() < 2
                             ? 1
                             : parameter.floats / static_cast<size_t>(parameter.spec.shape[0]);
    std::vector<float> values =
        Normals(seed++, parameter.floats, 1 / std::sqrt(static_cast<float>(width)));
    if (parameter.spec.name == "running_var") {
      for (float& v : values) v = std::fabs(v) + 0.5f;
    }
    std::copy(values.begin(), values.end(), all.begin() + parameter.offset);
  }
}

// The same job with its model in a file.
inline v1::JobSpec FromFile(v1::JobSpec spec) {
  v1::ModelSpec* model = spec.mutable_model();
  model->set_name("onnx");
  model->set_onnx_file("model.onnx");
  model->clear_layers();
  model->clear_options();
  const auto raw = [](v1::Loss loss) {
    const math::Outputs kind = OutputsOf(loss);
    const bool logits = kind == math::Outputs::kLogits || kind == math::Outputs::kClasses;
    return logits ? "logit" : "prediction";
  };
  for (v1::TaskSpec& task : *model->mutable_tasks()) {
    task.set_output(absl::StrCat(raw(task.loss()), "/", task.name()));
  }
  if (model->tasks().empty()) model->set_output(raw(model->loss()));
  return spec;
}

inline absl::StatusOr<std::unique_ptr<Model>> Import(const v1::JobSpec& spec,
                                                     const std::string& file) {
  return NewModel(spec, InputsOf(spec).dense_width, file);
}

// A file of one input, "d0" [batch, 1], that tests add nodes to; the last one makes "y".
struct FileOfNodes {
  FileOfNodes() {
    model.set_ir_version(8);
    auto* opset = model.add_opset_import();
    opset->set_version(17);
    Input("d0", 1);
    model.mutable_graph()->add_output()->set_name("y");
  }
  void Input(const std::string& name, int64_t width) {
    auto* input = model.mutable_graph()->add_input();
    input->set_name(name);
    auto* type = input->mutable_type()->mutable_tensor_type();
    type->set_elem_type(onnx::TensorProto::FLOAT);
    type->mutable_shape()->add_dim()->set_dim_param("n");
    type->mutable_shape()->add_dim()->set_dim_value(width);
  }
  void Floats(const std::string& name, std::vector<int64_t> dims, std::vector<float> values) {
    auto* tensor = model.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    tensor->mutable_dims()->Add(dims.begin(), dims.end());
    tensor->mutable_float_data()->Add(values.begin(), values.end());
  }
  onnx::NodeProto& Node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::string& output) {
    auto* node = model.mutable_graph()->add_node();
    node->set_op_type(op);
    for (const std::string& input : inputs) node->add_input(input);
    node->add_output(output);
    return *node;
  }
  // A new one of the last node.
  onnx::AttributeProto& Attribute(const std::string& name) {
    auto* made = model.mutable_graph()->mutable_node()->rbegin()->add_attribute();
    made->set_name(name);
    return *made;
  }
  size_t TrainedFloats() const {
    v1::JobSpec spec = FromFile(Job("lr", 0, 1));
    spec.mutable_model()->clear_output();
    const auto read = Import(spec, model.SerializeAsString());
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? (*read)->trained_floats() : 0;
  }
  std::string Error(v1::Loss loss = v1::BINARY_CROSS_ENTROPY) const {
    v1::JobSpec spec = FromFile(Job("lr", 0, 1));
    spec.mutable_model()->set_loss(loss);
    spec.mutable_model()->clear_output();
    return std::string(Import(spec, model.SerializeAsString()).status().message());
  }
  onnx::ModelProto model;
};

}  // namespace tessera::worker::testing
