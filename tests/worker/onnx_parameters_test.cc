// Which numbers of an ONNX file are parameters, and whose.
#include <set>

#include "tests/worker/onnx_testing.h"

namespace tessera::worker::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

TEST(OnnxFile, StartsFromItsNumbersAndTrainsInitializersAlone) {
  FileOfNodes file;
  file.Floats("w", {1, 1}, {3});
  file.Floats("b", {1}, {0.5f});
  file.Floats("half", {}, {0.5f});
  file.Node("MatMul", {"d0", "w"}, "product");
  file.Node("Add", {"product", "b"}, "sum");
  file.Node("Mul", {"sum", "half"}, "y");
  v1::JobSpec spec = FromFile(Job("lr", 0, 1));
  spec.mutable_model()->clear_output();
  const auto model = Import(spec, file.model.SerializeAsString());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->trained_floats(), 3u);
  Session session(**model);
  EXPECT_THAT(session.trained, ElementsAre(3, 0.5f, 0.5f));
  session.executor.Resize(2);
  session.executor.dense()[0] = 1;
  session.executor.dense()[1] = -2;
  EXPECT_THAT(session.Forward(), ElementsAre(1.75f, -2.75f));
}

// As PyTorch trains them.
TEST(OnnxFile, FactorsOfAProductAreNoPartOfItsWeights) {
  FileOfNodes file;
  file.Floats("w", {1, 2}, {3, -1});
  file.Floats("b", {2}, {0.5f, 2});
  file.Floats("v", {1, 2}, {4, 6});
  file.Floats("all", {1}, {0.25f});
  file.Floats("last", {2, 1}, {1, -2});
  file.Node("Gemm", {"d0", "w", "b"}, "product");
  file.Attribute("alpha").set_f(0.5f);
  file.Attribute("beta").set_f(4);
  file.Node("Gemm", {"d0", "v", "all"}, "other");
  file.Node("Add", {"product", "other"}, "sum");
  file.Node("MatMul", {"sum", "last"}, "y");
  v1::JobSpec spec = FromFile(Job("lr", 0, 1));
  spec.mutable_model()->clear_output();
  const auto model = Import(spec, file.model.SerializeAsString());
  ASSERT_TRUE(model.ok()) << model.status();
  Session session(**model);
  EXPECT_THAT(session.trained, UnorderedElementsAre(3, -1, 0.5f, 2, 4, 6, 0.25f, 1, -2));
  session.executor.Resize(1);
  session.executor.dense()[0] = 2;
  EXPECT_THAT(session.Forward(), ElementsAre(13.25f - 2 * 19.25f));
}

// Two towers of one module, and two modules that begin alike.
TEST(OnnxFile, SingleNumbersThatLayersShareStayOne) {
  const auto trained = [](const std::vector<float>& first, const std::vector<float>& second,
                          float bias) {
    FileOfNodes file;
    const auto size = static_cast<int64_t>(first.size());
    file.Floats("w0", {1, size}, first);
    if (second != first) file.Floats("w1", {1, size}, second);
    file.Floats("b", {1}, {bias});
    file.Floats("last", {size, 1}, std::vector<float>(first.size(), 0.25f));
    file.Node("Tanh", {"d0"}, "x0");
    file.Node("Sigmoid", {"d0"}, "x1");
    for (const std::string tower : {"0", "1"}) {
      const bool one = size == 1;
      const std::string w = second == first ? "w0" : "w" + tower, x = "x" + tower;
      file.Node(one ? "MatMul" : "Gemm",
                one ? std::vector<std::string>{x, w} : std::vector<std::string>{x, w, "b"},
                "p" + tower);
      if (one) file.Node("Add", {"p" + tower, "b"}, "q" + tower);
    }
    file.Node("Mul", {size == 1 ? "q0" : "p0", size == 1 ? "q1" : "p1"}, "product");
    file.Node("MatMul", {"product", "last"}, "y");
    return file.TrainedFloats() - first.size();
  };
  EXPECT_EQ(trained({3}, {3}, 0.5f), 2u);
  EXPECT_EQ(trained({3}, {4}, 0.5f), 3u);
  EXPECT_EQ(trained({3}, {3}, 0), 3u);
  EXPECT_EQ(trained({1}, {1}, 0.5f), 3u);
  EXPECT_EQ(trained({3, 4}, {3, 4}, 0.5f), 3u);
  EXPECT_EQ(trained({3, 4}, {5, 6}, 0.5f), 5u);
}

// What exporters name so stands in the network's code.
TEST(OnnxFile, LeavesNumbersOfTheCodeAsTheyAre) {
  const auto trained = [](const std::string& name, const std::vector<int64_t>& dims,
                          const std::string& producer = "pytorch") {
    FileOfNodes file;
    file.model.set_producer_name(producer);
    file.model.mutable_opset_import(0)->set_version(12);  // the last with axes as an attribute
    file.Floats("w", {1, 1}, {3});
    file.Floats(name, dims, std::vector<float>(dims.empty() || dims[0] == 1 ? 1 : 3, 0.5f));
    file.Node("MatMul", {"d0", "w"}, "product");
    file.Node("Mul", {"product", name}, "scaled");
    file.Node("ReduceSum", {"scaled"}, "sum");
    file.Attribute("axes").add_ints(-1);
    file.Node("Add", {"sum", "d0"}, "y");
    return file.TrainedFloats() - 1;
  };
  for (const std::string name :
       {"val_3", "full", "full_2", "full_like", "arange_1", "scalar_tensor_default",
        "convert_element_type_default_1", "_to_copy_4", "p2o.pd_op.full.1.0"}) {
    EXPECT_EQ(trained(name, {1}), 0u) << name;
    EXPECT_EQ(trained(name, {}), 0u) << name;
  }
  EXPECT_EQ(trained("arange_1", {3}), 0u);
  EXPECT_EQ(trained("_to_copy", {3}), 0u);
  EXPECT_EQ(trained("val_3", {3}), 3u);
  EXPECT_EQ(trained("full.weight", {3}), 3u);
  EXPECT_EQ(trained("fullness", {}), 1u);
  EXPECT_EQ(trained("onnx::Mul_3", {}), 0u);
  EXPECT_EQ(trained("onnx::Mul_3", {1}), 1u);
  EXPECT_EQ(trained("value_cast", {}), 0u);
  EXPECT_EQ(trained("model/mul/y:0", {}, "tf2onnx"), 0u);
  EXPECT_EQ(trained("model/mul/y:0", {3}, "tf2onnx"), 3u);
  EXPECT_EQ(trained("model/Mul/ReadVariableOp:0", {}, "tf2onnx"), 1u);
}

// The op of ONNX has a scale and a shift always, the network's need not have them. Initializers are
// parameters however they start, but under names that exporters give other numbers.
TEST(OnnxFile, NormalizationsWithoutScaleAndShiftGetNone) {
  const auto file_of = [](const std::string& scale, const std::string& shift,
                          const std::string& producer) {
    FileOfNodes file;
    file.model.set_producer_name(producer);
    file.Floats("w", {1, 3}, {3, 1, 2});
    file.Floats("last", {3, 1}, {1, -1, 2});
    for (const auto& [name, number] :
         {std::pair(scale, 1.0f), {shift, 0.0f}, {"mean", 0.0f}, {"var", 2.0f}}) {
      if (!absl::StartsWith(name, "constant_")) {
        file.Floats(name, {3}, {number, number, number});
        continue;
      }
      file.Node("Constant", {}, name);
      auto* const value = file.Attribute("value").mutable_t();
      value->set_data_type(onnx::TensorProto::FLOAT);
      value->add_dims(3);
      for (int i = 0; i < 3; ++i) value->add_float_data(number);
    }
    file.Node("MatMul", {"d0", "w"}, "x");
    return file;
  };
  const auto batch = [&](const std::string& scale, const std::string& shift,
                         const std::string& producer = "pytorch") {
    FileOfNodes file = file_of(scale, shift, producer);
    file.Node("BatchNormalization", {"x", scale, shift, "mean", "var"}, "normal");
    file.Node("MatMul", {"normal", "last"}, "y");
    return file.TrainedFloats() - 6;
  };
  EXPECT_EQ(batch("constant_1", "constant_0"), 0u);
  EXPECT_EQ(batch("constant_1", "constant_0", "another"), 0u);
  EXPECT_EQ(batch("val_4", "val_7"), 0u);
  EXPECT_EQ(batch("other.running_var", "other.running_mean"), 0u);
  EXPECT_EQ(batch("b.weight", "b.bias"), 6u);
  EXPECT_EQ(batch("val_4", "val_7", "another"), 6u);
  EXPECT_EQ(batch("constant_1", "b.bias"), 6u);
  const auto of_sample = [&](const std::string& op, const std::string& scale,
                             const std::string& shift) {
    FileOfNodes file = file_of(scale, shift, "pytorch");
    const bool groups = op == "InstanceNormalization";
    if (groups) {
      file.Node("Flatten", {"x"}, "flat");
      file.Node("Unsqueeze", {"flat"}, "each");
      file.model.mutable_opset_import(0)->set_version(12);
      file.Attribute("axes").add_ints(2);
    }
    file.Node(op, {groups ? "each" : "x", scale, shift}, "normal");
    if (groups) file.Node("Flatten", {"normal"}, "rows");
    file.Node("MatMul", {groups ? "rows" : "normal", "last"}, "y");
    return file.TrainedFloats() - 6;
  };
  for (const std::string op : {"InstanceNormalization", "LayerNormalization"}) {
    EXPECT_EQ(of_sample(op, "constant_1", "constant_0"), 0u) << op;
    EXPECT_EQ(of_sample(op, "val_4", "val_7"), 0u) << op;
    EXPECT_EQ(of_sample(op, "n.weight", "n.bias"), 6u) << op;
  }
}

// Decay would move it, and nothing would hold it.
TEST(OnnxFile, DoesNotTrainWhatNoGradientReaches) {
  FileOfNodes file;
  file.Floats("w", {1, 1}, {3});
  file.Floats("places", {1, 1}, {2});
  file.Floats("rounded", {1, 1}, {1.5f});
  file.Floats("truth", {1, 1}, {1});
  file.Floats("low", {}, {-4});
  file.Floats("chosen", {1, 1}, {7});
  file.Node("MatMul", {"d0", "w"}, "product");
  file.Node("Less", {"places", "product"}, "below");
  file.Node("Floor", {"rounded"}, "whole");
  file.Node("Cast", {"truth"}, "condition");
  file.Attribute("to").set_i(onnx::TensorProto::BOOL);
  file.Node("And", {"below", "condition"}, "both");
  file.Node("Clip", {"product", "low"}, "clipped");
  file.Node("Add", {"clipped", "whole"}, "sum");
  file.Node("Where", {"both", "sum", "chosen"}, "y");
  EXPECT_EQ(file.TrainedFloats(), 2u);  // w and chosen
}

// A weight that no other node reads is a linear layer's, or one's of each place: as a tensor every
// sample would have a copy.
TEST(OnnxFile, WeightsOfProductsAreLinearLayers) {
  const auto layers = [](const std::string& op, const std::string& equation) {
    FileOfNodes file;
    file.model.mutable_opset_import(0)->set_version(12);
    file.Floats("w", {2, 1, 3}, {1, 2, 3, 4, 5, 6});
    file.Floats("last", {6, 1}, {1, 2, 3, 4, 5, 6});
    file.Floats("apart", {1, 2}, {1, 2});
    file.Node("MatMul", {"d0", "apart"}, "two");
    file.Node("Unsqueeze", {"two"}, "each");
    file.Attribute("axes").add_ints(2);
    file.Node(op, {equation == "bei,eio->beo" ? "each" : "d0", "w"}, "product");
    if (op == "Einsum") file.Attribute("equation").set_s(equation);
    file.Node("Transpose", {"product"}, "samples");
    auto& perm = file.Attribute("perm");
    for (const int64_t axis : {op == "Einsum" ? 0 : 1, op == "Einsum" ? 1 : 0, 2}) {
      perm.add_ints(axis);
    }
    file.Node("Flatten", {"samples"}, "flat");
    file.Node("MatMul", {"flat", "last"}, "y");
    v1::JobSpec spec = FromFile(Job("lr", 0, 1));
    spec.mutable_model()->clear_output();
    const auto model = Import(spec, file.model.SerializeAsString());
    EXPECT_TRUE(model.ok()) << model.status();
    std::multiset<std::string> found;
    for (const GraphNode& node : (*model)->graph().nodes()) {
      if (node.op_name == "Gemm" || node.op_name == "MatMul" || node.op_name == "Parameter") {
        found.insert(node.op_name);
      }
    }
    return found;
  };
  EXPECT_THAT(layers("Einsum", "bi,eio->beo"), ElementsAre("Gemm", "Gemm"));
  EXPECT_THAT(layers("MatMul", ""), ElementsAre("Gemm", "Gemm"));
  EXPECT_THAT(layers("Einsum", "bei,eio->beo"), ElementsAre("Gemm", "Gemm", "Gemm", "Gemm"));
}

// Parts of what nobody else reads are parameters of their own; of what others read, too, they are
// not, however it was moved before.
TEST(OnnxFile, TrainsEveryNumberOnce) {
  for (const bool moved : {false, true}) {
    FileOfNodes file;
    const auto split = [&](const std::string& name) {
      file.Node("Split", {moved ? "turned" : "w"}, name + "0");
      onnx::NodeProto& node = *file.model.mutable_graph()->mutable_node()->rbegin();
      node.add_output(name + "1");
      auto* const axis = node.add_attribute();
      axis->set_name("axis");
      axis->set_type(onnx::AttributeProto::INT);
      axis->set_i(moved ? 0 : 1);
    };
    // d0 a b of the parts a and b.
    const auto product = [&](const std::string& name, const std::string& output) {
      file.Node("Transpose", {name + (moved ? "0" : "1")}, output + "/turned");
      file.Node("MatMul", {"d0", moved ? output + "/turned" : name + "0"}, output + "/hidden");
      file.Node("MatMul", {output + "/hidden", moved ? name + "1" : output + "/turned"}, output);
    };
    file.Floats("w", {1, 4}, {1, 2, 3, 5});
    if (moved) file.Node("Transpose", {"w"}, "turned");
    split("first");
    if (moved) split("second");
    product("first", "one");
    product(moved ? "second" : "first", "other");
    file.Node("Add", {"one", "other"}, "y");
    v1::JobSpec spec = FromFile(Job("lr", 0, 1));
    spec.mutable_model()->clear_output();
    const auto model = Import(spec, file.model.SerializeAsString());
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->trained_floats(), 4u);
    Session session(**model);
    session.executor.Resize(1);
    session.executor.dense()[0] = 2;
    EXPECT_THAT(session.Forward(), ElementsAre(2 * 2 * (1 * 3 + 2 * 5)));
  }
}

}  // namespace
}  // namespace tessera::worker::testing
