// Models to ONNX and back without another runtime; tests/onnx compares with onnxruntime.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>

#include "tests/worker/onnx_testing.h"
#include "tests/worker/zoo_testing.h"
#include "worker/dense/model_inputs.h"
#include "worker/onnx/emit.h"
#include "worker/onnx/export.h"
#include "worker/onnx/import.h"
#include "worker/onnx/reads.h"
#include "worker/onnx/safetensors.h"
#include "worker/onnx/writer.h"

#define ONNX_NAMESPACE onnx
#include "onnx/defs/schema.h"

namespace tessera::worker::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> NamesOf(
    const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values) {
  std::vector<std::string> names;
  for (const auto& value : values) names.push_back(value.name());
  return names;
}

// What a file has of these cannot be read: samples that meet others.
bool IsOnlyWritten(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const GraphNode& node) {
    return node.op_name == "RollBatch" && !node.training_only;
  });
}

// Of the nodes that a file has.
uint64_t WrittenTrainedFloats(const Graph& graph) {
  std::set<int32_t> parameters;
  for (const GraphNode& node : graph.nodes()) {
    if (!node.training_only) parameters.insert(node.parameters.begin(), node.parameters.end());
  }
  uint64_t floats = 0;
  for (const int32_t p : parameters) {
    const GraphParameter& parameter = graph.parameters()[p];
    if (parameter.spec.trained) floats += parameter.floats;
  }
  return floats;
}

// A job's model with drawn parameters, and the file that it is written as.
struct Written {
  explicit Written(const v1::JobSpec& spec)
      : model(NewModel(spec, InputsOf(spec).dense_width).value()), there(*model) {
    FillParameters(there, 1);
    file = ExportModel(spec, *model, there.trained, there.statistics, {}).value();
  }

  std::unique_ptr<Model> model;
  Session there;
  onnx::ModelProto file;
};

// What a file leaves out is ONNX's default, and what a layer leaves out is ours.
TEST(Onnx, OpsThatAreTheSameHaveTheSameDefaults) {
  int same = 0;
  for (const OpEntry& entry : AllOps()) {
    const onnx::OpSchema* const schema =
        onnx::OpSchemaRegistry::Schema(entry.name, OnnxWriter::kOpset, onnx::ONNX_DOMAIN);
    if (!entry.elementwise || schema == nullptr) continue;
    SCOPED_TRACE(entry.name);
    const google::protobuf::Struct none;
    OptionReader options(none, "options");
    entry.factory({{Shape{2}}}, options).IgnoreError();
    for (const OptionValue& option : options.read()) {
      const auto attribute = schema->attributes().find(option.name);
      if (attribute == schema->attributes().end()) continue;  // an input of the file
      ++same;
      EXPECT_EQ(static_cast<float>(option.value.number_value()),
                attribute->second.default_value.f())
          << option.name;
    }
  }
  EXPECT_GE(same, 6);
}

TEST(Onnx, HasAFormForEveryOpOfTheTable) {
  std::set<std::string> tested;
  for (const OnnxCase& test : OpCases()) tested.insert(test.op);
  for (const OpEntry& entry : AllOps()) {
    EXPECT_NE(FindEmitter(entry.name), nullptr)
        << entry.name << " is not in ONNX, and has no line in kEmitters, worker/onnx/emit.cc";
    EXPECT_TRUE(tested.contains(entry.name))
        << entry.name << " has no case: add one to tests/golden/dense_ops.py and run it";
  }
}

// Every op and every complete job goes out and comes back, with its parameters.
TEST(Onnx, ReadsWhatItWritesAndPredictsTheSame) {
  std::vector<OnnxCase> cases = OpCases();
  for (const std::vector<OnnxCase>& more : {JobCases(), ZooCases()}) {
    ASSERT_GT(more.size(), 20u);
    cases.insert(cases.end(), more.begin(), more.end());
  }
  for (const OnnxCase& test : cases) {
    SCOPED_TRACE(test.name);
    v1::JobSpec spec = test.spec;
    for (auto& column : *spec.mutable_data()->mutable_columns()) column.clear_transform();
    Written written(spec);
    Session& there = written.there;
    const auto read = Import(FromFile(spec), written.file.SerializeAsString());
    if (IsOnlyWritten(written.model->graph())) {
      EXPECT_FALSE(read.ok());
      continue;
    }
    ASSERT_TRUE(read.ok()) << read.status();
    Session back(**read);
    there.Fill(7, 2);
    back.Fill(7, 2);
    const std::vector<float> expected = there.Forward(), found = back.Forward();
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-4f * std::max(1.0f, std::fabs(expected[i])));
    }
    EXPECT_EQ((*read)->trained_floats(), WrittenTrainedFloats(written.model->graph()));
  }
}

// With its statistics, which move as they did.
TEST(Onnx, DiceTrainsOnWhereItIsReadAgain) {
  for (const Shape& shape : {Shape{3}, Shape{2, 3}}) {
    const v1::JobSpec spec =
        CaseOfOp({"Dice", {shape}, Options().Set("momentum", 0.3).Set("epsilon", 0.125)}, {}, 1)
            .spec;
    Written written(spec);
    Session& there = written.there;
    const auto read = Import(FromFile(spec), written.file.SerializeAsString());
    ASSERT_TRUE(read.ok()) << read.status();
    Session back(**read);
    EXPECT_EQ(back.trained, there.trained);
    EXPECT_EQ(back.statistics, there.statistics);
    there.Fill(7, 2);
    back.Fill(7, 2);
    EXPECT_NEAR(back.Step().loss_sum, there.Step().loss_sum, 1e-4);
    ExpectNear(back.trained_gradient, there.trained_gradient, "gradient");
    ExpectNear(back.statistics_gradient, there.statistics_gradient, "statistics");
  }
}

TEST(Onnx, NamesTheInputsOfAFileAfterTheColumns) {
  v1::JobSpec spec = Job("deepfm", 2, 1);
  SetOptions(spec, SmallMlp());
  const std::unique_ptr<Model> model = MakeModel(spec);
  Session session(*model);
  std::map<std::string, InlineTable> tables;
  tables["embedding"] = {{7, 9}, std::vector<float>(8, 0.5f)};
  const auto file = ExportModel(spec, *model, session.trained, session.statistics, tables);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(NamesOf(file->graph().input()),
              ElementsAre("d0", "c0.linear", "c0", "c1.linear", "c1"));
  EXPECT_THAT(NamesOf(file->graph().output()), ElementsAre("prediction", "logit"));
}

TEST(Onnx, WritesALogitWhereTheLossReadsOne) {
  for (const LossInfo& info : AllLosses()) {
    SCOPED_TRACE(LossName(info.loss));
    const bool classes = info.outputs == math::Outputs::kClasses;
    v1::JobSpec spec = Job("dnn", 2, 1);
    SetOptions(spec, SmallMlp());
    if (classes) spec.mutable_model()->mutable_options()->MergeFrom(Options().Set("classes", 3.0));
    spec.mutable_model()->set_loss(info.loss);
    const std::unique_ptr<Model> model = MakeModel(spec);
    Session session(*model);
    const auto file = ExportModel(spec, *model, session.trained, session.statistics, {});
    ASSERT_TRUE(file.ok()) << file.status();
    std::vector<std::string> names = {"prediction"};
    if (classes) names.push_back("probability");
    if (classes || info.outputs == math::Outputs::kLogits) names.push_back("logit");
    EXPECT_EQ(NamesOf(file->graph().output()), names);
  }
}

TEST(Onnx, SaysWhatAKeyWithoutARowGives) {
  v1::TableSpec table;
  EXPECT_EQ(UnseenValue(table), 0);
  table.mutable_initializer()->mutable_constant()->set_value(0.25f);
  EXPECT_EQ(UnseenValue(table), 0.25f);
  table.mutable_initializer()->mutable_uniform()->set_min(-1);
  table.mutable_initializer()->mutable_uniform()->set_max(2);
  EXPECT_EQ(UnseenValue(table), 0.5f);
  table.mutable_initializer()->mutable_normal()->set_mean(-0.5f);
  EXPECT_EQ(UnseenValue(table), -0.5f);
}

// Two layers of one module: in the file, as they are read, and out again.
TEST(Onnx, KeepsParametersShared) {
  const v1::JobSpec spec = TwoTowers(/*shared=*/true);
  Written written(spec);
  Session& there = written.there;
  const auto read = Import(FromFile(spec), written.file.SerializeAsString());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->trained_floats(), written.model->trained_floats());
  EXPECT_EQ((*read)->statistics_floats(), written.model->statistics_floats());
  Session back(**read);
  there.Fill(7, 2);
  back.Fill(7, 2);
  EXPECT_EQ(back.Forward(), there.Forward());
}

// A sequence of two places of each column, through recurrences, a Bilinear and a Parameter that the
// two towers share.
TEST(Onnx, KeepsParametersOfRecurrencesAndOthersShared) {
  v1::JobSpec spec = Job("layers", 2, 1);
  const auto add = [&](const std::string& name, const std::string& tower, const std::string& op,
                       const std::vector<std::string>& inputs,
                       const google::protobuf::Struct& options = {}, bool shares = true) {
    v1::LayerSpec* layer = spec.mutable_model()->add_layers();
    layer->set_name(name + tower);
    layer->set_op(op);
    for (const std::string& input : inputs) layer->add_inputs(input);
    *layer->mutable_options() = options;
    if (shares && tower == "1") layer->set_parameters_of(name + "0");
  };
  const auto units = [](double n) { return Options().Set("units", n); };
  for (const std::string tower : {"0", "1"}) {
    const std::string column = "c" + tower + ".embedding";
    add("places", tower, "Reshape", {column}, Options().Set("shape", std::vector<int64_t>{0, 2, 2}),
        false);
    add("gru", tower, "GRU", {"places" + tower}, units(3));
    add("lstm", tower, "LSTM", {"gru" + tower}, units(2));
    add("score", tower, "Gemm", {"lstm" + tower}, units(1));
    add("weight", tower, "Softmax", {"score" + tower}, Options().Set("axis", 1.0), false);
    add("augru", tower, "AUGRU", {"lstm" + tower, "weight" + tower},
        units(3).Set("sequence", false));
    add("bilinear", tower, "Bilinear", {"augru" + tower, column}, units(3));
    add("factor", tower, "Parameter", {}, Options().Set("shape", std::vector<int64_t>{3}));
    add("out", tower, "Mul", {"bilinear" + tower, "factor" + tower}, {}, false);
  }
  add("product", "", "Mul", {"out0", "out1"}, {}, false);
  add("logit", "", "ReduceSum", {"product"}, {}, false);
  const std::unique_ptr<Model> model = MakeModel(spec);
  ASSERT_NE(model, nullptr);
  Session there(*model);
  FillParameters(there, 1);
  const auto file = ExportModel(spec, *model, there.trained, there.statistics, {});
  ASSERT_TRUE(file.ok()) << file.status();
  size_t floats = 0;
  for (const onnx::TensorProto& tensor : file->graph().initializer()) {
    if (tensor.data_type() == onnx::TensorProto::FLOAT) floats += tensor.raw_data().size() / 4;
  }
  EXPECT_EQ(floats, model->trained_floats());
  const auto read = Import(FromFile(spec), file->SerializeAsString());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->trained_floats(), model->trained_floats());
  Session back(**read);
  there.Fill(7, 2);
  back.Fill(7, 2);
  ExpectNear(back.Forward(), there.Forward(), "logits");
}

// As files have it whose writers fill in both.
TEST(Onnx, ClipKeepsTheLargestBounds) {
  constexpr double kLargest = 3.4028234663852886e38;
  for (const auto& [min, max] :
       {std::pair(0.25, kLargest), std::pair(-kLargest, 0.25), std::pair(-kLargest, kLargest)}) {
    SCOPED_TRACE(min);
    const v1::JobSpec spec =
        CaseOfOp({"Clip", {Shape{3}}, Options().Set("min", min).Set("max", max)}, {}, 1).spec;
    const auto model = NewModel(spec, 0);
    ASSERT_TRUE(model.ok()) << model.status();
    Session there(**model);
    FillParameters(there, 1);
    const auto file = ExportModel(spec, **model, there.trained, there.statistics, {});
    ASSERT_TRUE(file.ok()) << file.status();
    const auto read = Import(FromFile(spec), file->SerializeAsString());
    ASSERT_TRUE(read.ok()) << read.status();
    Session back(**read);
    there.Fill(7, 2);
    back.Fill(7, 2);
    EXPECT_EQ(back.Forward(), there.Forward());
  }
}

TEST(OnnxFile, IsToldApartFromItsInputsNames) {
  FileOfNodes file;
  file.model.mutable_graph()->mutable_input(0)->set_name("x");
  file.Floats("w", {1, 1}, {3});
  file.Node("MatMul", {"x", "w"}, "y");
  EXPECT_THAT(file.Error(), AllOf(HasSubstr("input \"x\" is nothing that the job's data has"),
                                  HasSubstr("d0, dense"), HasSubstr("model.options.inputs")));
  v1::JobSpec spec = FromFile(Job("lr", 0, 1));
  spec.mutable_model()->clear_output();
  auto& names = (*spec.mutable_model()->mutable_options()->mutable_fields())["inputs"];
  (*names.mutable_struct_value()->mutable_fields())["x"].set_string_value("d0");
  EXPECT_TRUE(Import(spec, file.model.SerializeAsString()).ok());
}

TEST(OnnxFile, ListsEveryOpThatCannotBeRead) {
  FileOfNodes file;
  file.Node("Tan", {"d0"}, "s");
  file.Node("Cosh", {"s"}, "c");
  file.Node("Sinh", {"d0"}, "unused");
  file.Node("Tan", {"c"}, "y");
  EXPECT_THAT(file.Error(), AllOf(HasSubstr("model.onnx_file (model.onnx)"),
                                  HasSubstr("cannot be read: Cosh, Tan. Known are Abs")));
}

TEST(OnnxFile, ErrorsNameTheNodeAndWhatIsWrong) {
  {
    FileOfNodes file;
    file.Floats("w", {2, 1}, {3, 4});
    file.Node("Gemm", {"d0", "w"}, "y");
    EXPECT_THAT(file.Error(),
                AllOf(HasSubstr("node \"y\" (Gemm)"), HasSubstr("its weights [2, 1] do not fit"),
                      HasSubstr("[batch, 1]")));
  }
  {
    FileOfNodes file;
    std::vector<float> numbers(16385);
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    file.Floats("w", {1, 16385}, numbers);
    file.Node("Transpose", {"w"}, "turned");
    file.Node("MatMul", {"d0", "w"}, "a");
    file.Node("MatMul", {"a", "turned"}, "y");
    EXPECT_THAT(file.Error(),
                AllOf(HasSubstr("node \"y\" (MatMul)"),
                      HasSubstr("\"w\" is trained by layer \"a\" already, in another form")));
  }
  {
    FileOfNodes file;
    file.Floats("w", {1, 1}, {3});
    file.Node("MatMul", {"d0", "w"}, "a");
    file.Node("Sigmoid", {"a"}, "y");
    EXPECT_THAT(file.Error(), HasSubstr("set model.output to \"a\""));
  }
  {
    FileOfNodes file;
    file.Floats("w", {1, 1}, {3});
    file.Node("MatMul", {"d0", "w"}, "a");
    file.Node("Sigmoid", {"a"}, "b");
    file.Node("Flatten", {"b"}, "c");
    file.Node("Identity", {"c"}, "y");
    EXPECT_THAT(file.Error(), AllOf(HasSubstr("the output \"y\" is a probability"),
                                    HasSubstr("set model.output to \"a\"")));
  }
  {
    FileOfNodes file;
    file.Floats("w", {1, 3}, {3, 4, 5});
    file.Node("MatMul", {"d0", "w"}, "a");
    file.Node("Softmax", {"a"}, "b");
    file.Node("Identity", {"b"}, "y");
    EXPECT_THAT(file.Error(v1::SOFTMAX_CROSS_ENTROPY),
                AllOf(HasSubstr("the output \"y\" is a probability, and softmax_cross_entropy"),
                      HasSubstr("set model.output to \"a\", what its Softmax reads")));
    EXPECT_THAT(file.Error(v1::MEAN_SQUARED_ERROR), Not(HasSubstr("is a probability")));
  }
  {
    FileOfNodes file;
    file.Input("d0", 3);
    file.model.mutable_graph()->mutable_input()->DeleteSubrange(0, 1);
    file.Node("Relu", {"d0"}, "y");
    EXPECT_THAT(file.Error(), HasSubstr("input \"d0\" is [batch, 3] in the file"));
  }
  {
    FileOfNodes file;
    file.Node("Relu", {"nobody"}, "y");
    EXPECT_THAT(file.Error(), HasSubstr("reads \"nobody\", which nothing before it makes"));
  }
  {
    FileOfNodes file;
    file.Node("Relu", {"d0"}, "other");
    EXPECT_THAT(file.Error(), HasSubstr("no node makes the output \"y\""));
  }
}

TEST(OnnxFile, AProbabilityIsAnErrorWhereTheLossReadsALogit) {
  for (const LossInfo& info : AllLosses()) {
    for (const char* op : {"Sigmoid", "Softmax"}) {
      FileOfNodes file;
      file.Floats("w", {1, 3}, {3, 4, 5});
      file.Node("MatMul", {"d0", "w"}, "a");
      file.Node(op, {"a"}, "y");
      const math::Outputs reads =
          op == std::string("Sigmoid") ? math::Outputs::kLogits : math::Outputs::kClasses;
      const auto says = HasSubstr(absl::StrCat(LossName(info.loss), " reads logits"));
      if (info.outputs == reads) {
        EXPECT_THAT(file.Error(info.loss), says) << op;
      } else {
        EXPECT_THAT(file.Error(info.loss), Not(says)) << op;
      }
    }
  }
}

TEST(OnnxFile, WhatOnnxDoesNotKnowOfAnOpIsAnError) {
  const auto error_of = [](const std::string& op, const std::vector<std::string>& inputs,
                           const auto& name, const auto& value) {
    FileOfNodes file;
    file.Floats("w", {1, 1}, {3});
    onnx::AttributeProto& attribute = *file.Node(op, inputs, "y").add_attribute();
    attribute.set_name(name);
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, float>) {
      attribute.set_type(onnx::AttributeProto::FLOAT);
      attribute.set_f(value);
    } else {
      attribute.set_type(onnx::AttributeProto::INT);
      attribute.set_i(value);
    }
    return file.Error();
  };
  EXPECT_THAT(error_of("Gemm", {"d0", "w"}, "alpha", 1),
              HasSubstr("node \"y\" (Gemm): attribute \"alpha\" is INT, expected FLOAT"));
  EXPECT_THAT(error_of("Gemm", {"d0", "w"}, "transB", 1.0f),
              HasSubstr("attribute \"transB\" is FLOAT, expected INT"));
  EXPECT_THAT(error_of("LeakyRelu", {"d0"}, "alhpa", 0.5f),
              HasSubstr("\"alhpa\" is none of its attributes; did you mean \"alpha\""));
  EXPECT_THAT(error_of("Relu", {"d0"}, "foo", 3),
              HasSubstr("\"foo\" is none of its attributes; it has none"));
  FileOfNodes two;
  two.Node("Relu", {"d0", "d0"}, "y");
  EXPECT_THAT(two.Error(), HasSubstr("node \"y\" (Relu): has 2 inputs, expected at most 1"));
  FileOfNodes pool;
  pool.Node("MaxPool", {"d0"}, "y");
  EXPECT_THAT(pool.Error(), HasSubstr("has no attribute \"kernel_shape\", which it must"));
  // Debian's library does not know the op as it is then.
  two.model.mutable_opset_import(0)->set_version(24);
  EXPECT_THAT(two.Error(), Not(HasSubstr("expected at most")));
}

TEST(OnnxFile, ANameThatIsMadeTwiceIsAnError) {
  FileOfNodes file;
  file.Node("Neg", {"d0"}, "y");
  file.Node("Abs", {"d0"}, "y");
  EXPECT_THAT(file.Error(), HasSubstr("\"y\" is made by a node Neg, and made by a node Abs too"));
  FileOfNodes shadowed;
  shadowed.Floats("w", {1, 1}, {3});
  shadowed.Node("Neg", {"d0"}, "w").set_name("n");
  shadowed.Node("MatMul", {"d0", "w"}, "y");
  EXPECT_THAT(shadowed.Error(),
              HasSubstr("\"w\" is an initializer, and made by node \"n\" (Neg) too"));
  FileOfNodes input;
  input.Node("Neg", {"d0"}, "d0");
  input.Node("Relu", {"d0"}, "y");
  EXPECT_THAT(input.Error(), HasSubstr("\"d0\" is an input, and made by a node Neg too"));
  FileOfNodes twice;
  twice.Floats("w", {1, 1}, {3});
  twice.Floats("w", {1, 1}, {4});
  twice.Node("MatMul", {"d0", "w"}, "y");
  EXPECT_THAT(twice.Error(), HasSubstr("\"w\" is the name of two initializers"));
}

TEST(OnnxFile, AReductionOverNoAxesMayBeNothing) {
  for (const char* op : {"ReduceSum", "ReduceMean"}) {
    FileOfNodes file;
    file.Floats("w", {1, 1}, {3});
    file.Node("MatMul", {"d0", "w"}, "a");
    onnx::AttributeProto& noop = *file.Node(op, {"a"}, "y").add_attribute();
    noop.set_name("noop_with_empty_axes");
    noop.set_type(onnx::AttributeProto::INT);
    noop.set_i(1);
    file.model.mutable_opset_import(0)->set_version(18);
    EXPECT_EQ(file.Error(), "") << op;
  }
}

// Of any op: input 0, or a later one, is not there.
TEST(OnnxFile, AMissingInputIsAnError) {
  for (const std::string& op : ReadableOnnxOps()) {
    const size_t least = FindOnnxOp(op)->least_inputs;
    for (size_t inputs = 0; inputs < least; ++inputs) {
      FileOfNodes file;
      file.Node(op, std::vector<std::string>(inputs, "d0"), "y");
      EXPECT_THAT(file.Error(),
                  HasSubstr(absl::StrCat("node \"y\" (", op, "): input ", inputs, " is missing")));
    }
    FileOfNodes file;
    file.Node(op, {}, "y");
    EXPECT_THAT(file.Error(), HasSubstr(absl::StrCat("node \"y\" (", op, ")")));
  }
}

// Whatever the bytes, the answer is a status.
TEST(OnnxFile, DamagedFilesAreErrors) {
  v1::JobSpec spec = TinyJob("masknet");
  const std::unique_ptr<Model> model = MakeModel(spec);
  Session session(*model);
  const std::string whole =
      ExportModel(spec, *model, session.trained, session.statistics, {})->SerializeAsString();
  spec = FromFile(spec);
  ASSERT_TRUE(Import(spec, whole).ok());
  EXPECT_THAT(std::string(Import(spec, "not a model").status().message()),
              HasSubstr("is no ONNX model"));
  EXPECT_FALSE(Import(spec, "").ok());
  for (size_t length = 0; length < whole.size(); length += 7) {
    Import(spec, whole.substr(0, length)).status().IgnoreError();
  }
  for (size_t i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    for (uint64_t k = 0; k < 3; ++k) {
      damaged[RandomBits(i, 2 * k) % damaged.size()] = static_cast<char>(RandomBits(i, 2 * k + 1));
    }
    Import(spec, damaged).status().IgnoreError();
  }
}

TEST(Safetensors, AreAHeaderAndTheTensorsBytes) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/rows-", getpid(), ".safetensors");
  const uint64_t keys[] = {5, 3};
  const float rows[] = {1, 2, 3, 4};
  auto writer = SafetensorsWriter::Create(PosixFileSystem(), path,
                                          {{"keys", "U64", {2}, 16}, {"rows", "F32", {2, 2}, 16}},
                                          {{"table", "t"}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append({reinterpret_cast<const char*>(keys), 16}).ok());
  EXPECT_EQ((*writer)->Finish().code(), absl::StatusCode::kInternal);  // rows are missing
  ASSERT_TRUE((*writer)->Append({reinterpret_cast<const char*>(rows), 16}).ok());
  EXPECT_FALSE((*writer)->Append("more").ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const std::string bytes = ReadWholeFile(PosixFileSystem(), path).value();
  const std::string header =
      R"({"__metadata__":{"table":"t"},"keys":{"dtype":"U64","shape":[2],"data_offsets":[0,16]},)"
      R"("rows":{"dtype":"F32","shape":[2,2],"data_offsets":[16,32]}})";
  const size_t padded = (header.size() + 7) / 8 * 8;
  ASSERT_EQ(bytes.size(), 8 + padded + 32);
  EXPECT_EQ(static_cast<uint8_t>(bytes[0]), padded);
  EXPECT_EQ(bytes.substr(8, header.size()), header);
  EXPECT_EQ(std::memcmp(bytes.data() + 8 + padded, keys, 16), 0);
  EXPECT_EQ(std::memcmp(bytes.data() + 8 + padded + 16, rows, 16), 0);
  std::filesystem::remove(path);
}

TEST(Safetensors, ThatAreNotFinishedLeaveNothingAndWhatIsThereStays) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/unfinished-", getpid(), ".safetensors");
  ASSERT_TRUE(WriteFileAtomically(PosixFileSystem(), path, "earlier").ok());
  {
    auto writer = SafetensorsWriter::Create(PosixFileSystem(), path, {{"k", "U64", {1}, 8}}, {});
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Append("8 bytes.").ok());
    ASSERT_TRUE((*writer)->Close().ok());
    EXPECT_TRUE(std::filesystem::exists(path + ".tmp"));
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  EXPECT_EQ(ReadWholeFile(PosixFileSystem(), path).value(), "earlier");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tessera::worker::testing
