#include "google/protobuf/text_format.h"
#include "tests/worker/dense_job_testing.h"

namespace tessera::worker::testing {
namespace {

using ::testing::AllOf;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::StartsWith;

// Two sparse columns, two dense ones, and layers in text format.
v1::JobSpec Layers(const std::string& text) {
  v1::JobSpec spec = Job("layers", 2, 2);
  EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(text, spec.mutable_model()));
  return spec;
}

std::string Units(int units) {
  return "options { fields { key: \"units\" value { number_value: " + std::to_string(units) +
         " } } }";
}

TEST(Layers, ComputeWhatTheZooComputes) {
  // FM written out: both models have a linear Gemm over the dense columns and nothing else trained.
  const v1::JobSpec layers =
      Layers(R"pb(
               layers {
                 name: "first"
                 op: "reduce_sum"
                 inputs: "linear"
                 options {
                   fields {
                     key: "axes"
                     value { list_value { values { number_value: 1 } } }
                   }
                   fields {
                     key: "keepdims"
                     value { bool_value: false }
                   }
                 }
               }
               layers { name: "dense_part" op: "linear" inputs: "dense")pb" +
             Units(1) + R"pb(}
                             layers { name: "second" op: "fm" inputs: "embedding" }
    layers { name: "all" op: "add" inputs: "first" inputs: "dense_part" inputs: "second" })pb");
  const std::unique_ptr<Model> a = MakeModel(layers), b = MakeModel(Job("fm", 2, 2));
  ASSERT_NE(a, nullptr);
  ASSERT_EQ(a->trained_floats(), b->trained_floats());
  Session from_layers(*a), from_zoo(*b);
  for (Session* session : {&from_layers, &from_zoo}) {
    session->Fill(20, 5);
    session->trained = {0.5f, -1.0f, 0.25f};
  }
  const std::vector<float> x = from_layers.Forward(), y = from_zoo.Forward();
  EXPECT_THAT(x, Pointwise(FloatNear(1e-5f), y));
}

TEST(Layers, ReadOneColumnOfATable) {
  // The logit is the sum of c1's embedding: no other gradient may differ from zero.
  const v1::JobSpec spec = Layers(R"pb(
    layers { name: "sum" op: "ReduceSum" inputs: "c1.embedding" }
    layers { name: "logit" op: "Bias" inputs: "sum" })pb");
  const std::unique_ptr<Model> model = MakeModel(spec);
  ASSERT_NE(model, nullptr);
  ASSERT_EQ(model->inputs().size(), 1);  // the linear table is not pulled
  EXPECT_EQ(model->inputs()[0].table, "embedding");
  EXPECT_EQ(model->inputs()[0].table_index, 1);
  Session session(*model);
  session.Fill(1, 6);
  session.labels[0] = 0;
  const float logit = session.Step().logits[0];
  const absl::Span<const float> rows = session.executor.pooled(0);
  EXPECT_NEAR(logit, rows[4] + rows[5] + rows[6] + rows[7], 1e-6);
  const absl::Span<const float> gradient = session.executor.pooled_gradient(0);
  const float slope = 1 / (1 + std::exp(-logit));
  EXPECT_THAT(gradient,
              Pointwise(FloatNear(1e-6f), {0.0f, 0.0f, 0.0f, 0.0f, slope, slope, slope, slope}));
}

TEST(Layers, ReadOneDenseColumn) {
  const v1::JobSpec spec = Layers(R"pb(layers { name: "logit" op: "Bias" inputs: "d1" })pb");
  const std::unique_ptr<Model> model = MakeModel(spec);
  ASSERT_NE(model, nullptr);
  Session session(*model);
  session.Fill(3, 6);
  const std::vector<float> logits = session.Forward();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(logits[i], session.executor.dense()[2 * i + 1]);
}

TEST(Layers, AddTheGradientsOfATensorWithSeveralReaders) {
  // logit = x * x + x + x of one dense-derived value: its slope is 2 x + 2.
  const v1::JobSpec spec = Layers(R"pb(
    layers { name: "x" op: "Bias" inputs: "d0" }
    layers { name: "square" op: "Mul" inputs: "x" inputs: "x" }
    layers {
      name: "same"
      op: "Reshape"
      inputs: "x"
      options {
        fields {
          key: "shape"
          value {
            list_value {
              values { number_value: 0 }
              values { number_value: 1 }
            }
          }
        }
      }
    }
    layers { name: "logit" op: "Add" inputs: "square" inputs: "x" inputs: "same" })pb");
  const std::unique_ptr<Model> model = MakeModel(spec);
  ASSERT_NE(model, nullptr);
  Session session(*model);
  session.Fill(1, 6);
  session.labels[0] = 0;
  session.trained[0] = 0.5f;
  const float x = session.executor.dense()[0] + 0.5f;
  const float logit = session.Step().logits[0];
  EXPECT_NEAR(logit, x * x + 2 * x, 1e-5);
  const float slope = 1 / (1 + std::exp(-logit));
  EXPECT_NEAR(session.trained_gradient[0], slope * (2 * x + 2), 1e-5);
}

// The gradient is the sum of what layers of their own would have, the move of statistics the mean.
TEST(Layers, ShareParametersAndAddTheirGradients) {
  const std::unique_ptr<Model> one = MakeModel(TwoTowers(true)), two = MakeModel(TwoTowers(false));
  ASSERT_TRUE(one != nullptr && two != nullptr);
  EXPECT_EQ(one->trained_floats(), 4u * 3 + 3 + 3 + 3);
  EXPECT_EQ(one->statistics_floats(), 6u);
  EXPECT_EQ(two->trained_floats(), 2 * one->trained_floats());
  Session shared(*one), apart(*two);
  const std::vector<float> values = Normals(3, one->trained_floats());
  for (size_t i = 0; i < apart.trained.size(); ++i) {
    if (i < values.size()) shared.trained[i] = values[i];
    apart.trained[i] = values[i % values.size()];
  }
  for (const uint32_t batch : {300u, 7u}) {
    shared.Fill(batch, 5);
    apart.Fill(batch, 5);
    EXPECT_EQ(shared.Step().loss_sum, apart.Step().loss_sum);
    const auto sum = [](const std::vector<float>& both, size_t half) {
      std::vector<float> sums;
      for (size_t i = 0; i < half; ++i) sums.push_back(both[i] + both[half + i]);
      return sums;
    };
    EXPECT_EQ(shared.trained_gradient, sum(apart.trained_gradient, one->trained_floats()));
    std::vector<float> moves = sum(apart.statistics_gradient, one->statistics_floats());
    for (float& move : moves) move /= 2;
    EXPECT_EQ(shared.statistics_gradient, moves);
    EXPECT_NE(shared.trained_gradient[0], apart.trained_gradient[0]);
  }
  EXPECT_THAT(one->graph().Summary(),
              AllOf(HasSubstr("of linear0\n"), HasSubstr("total: 21 trained "
                                                         "parameters, 6 running")));
}

// However many they are, and whatever the momentum.
TEST(Layers, ShareStatisticsThatSettleBetweenTheirs) {
  v1::JobSpec spec = Job("layers", 0, 2);
  for (const std::string op : {"batch_norm", "dice"}) {
    for (int i = 0; i < 26; ++i) {
      v1::LayerSpec* layer = spec.mutable_model()->add_layers();
      layer->set_name(absl::StrCat(op, i));
      layer->set_op(op);
      layer->add_inputs(absl::StrCat("d", i % 2));
      if (i > 0) layer->set_parameters_of(op + "0");
      *layer->mutable_options() = Options().Set("momentum", 1.0);
    }
  }
  v1::LayerSpec* logit = spec.mutable_model()->add_layers();
  logit->set_name("logit");
  logit->set_op("add");
  for (int i = 0; i < spec.model().layers_size() - 1; ++i) {
    logit->add_inputs(spec.model().layers(i).name());
  }
  const std::unique_ptr<Model> model = MakeModel(spec);
  ASSERT_NE(model, nullptr);
  Session session(*model);
  session.Fill(2, 5);
  const absl::Span<float> dense = session.executor.dense();  // [2, 2]
  const float values[] = {1, -1, 5, -1};
  std::copy(std::begin(values), std::end(values), dense.begin());
  for (int step = 0; step < 3; ++step) {
    session.Step();
    for (size_t i = 0; i < session.statistics.size(); ++i) {
      session.statistics[i] -= session.statistics_gradient[i];
    }
    // Means 3 and -1, variances 8 and 0.
    EXPECT_THAT(session.statistics, Pointwise(FloatNear(1e-5f), {1.0f, 4.0f, 1.0f, 4.0f}));
  }
}

TEST(Layers, ShareNoParametersOfAnotherShape) {
  v1::JobSpec spec = TwoTowers(true);
  spec.mutable_model()->mutable_layers(3)->set_parameters_of("norm0");
  EXPECT_THAT(ErrorOf(spec), AllOf(StartsWith("model.layers[3]: layer \"linear1\", Gemm("),
                                   HasSubstr("parameters_of: \"norm0\" has the parameters weight "
                                             "[3], bias [3], running_mean [3], running_var [3]; "
                                             "expected weight [3, 4], bias [3]")));
  spec.mutable_model()->mutable_layers(3)->set_parameters_of("out0");
  EXPECT_THAT(ErrorOf(spec), HasSubstr("\"out0\" has the parameters none"));
  spec.mutable_model()->mutable_layers(3)->set_parameters_of("liner0");
  EXPECT_THAT(ErrorOf(spec), AllOf(HasSubstr("parameters_of: no earlier layer \"liner0\""),
                                   HasSubstr("did you mean \"linear0\"?")));
}

TEST(Layers, TrainNothingThroughOpsWithoutAGradient) {
  for (const std::string op : {"ceil", "floor", "round", "step", "stop_gradient"}) {
    const std::string layers = "layers { name: \"x\" op: \"linear\" inputs: \"c0.embedding\" " +
                               Units(1) + "} layers { name: \"y\" op: \"" + op +
                               "\" inputs: \"x\" }";
    EXPECT_THAT(ErrorOf(Layers(layers)), HasSubstr("depends on nothing that can be trained"));
    const std::unique_ptr<Model> model = MakeModel(
        Layers(layers + "layers { name: \"z\" op: \"linear\" inputs: \"dense\" " + Units(1) +
               "} layers { name: \"sum\" op: \"add\" inputs: \"y\" inputs: \"z\" }"));
    ASSERT_NE(model, nullptr) << op;
    Session session(*model);
    for (const uint32_t batch : {3u, 300u}) {
      session.Fill(batch, 5);
      session.Step();
      for (size_t i = 0; i < 5; ++i) EXPECT_EQ(session.trained_gradient[i], 0) << op;
      for (size_t i = 5; i < 8; ++i) EXPECT_NE(session.trained_gradient[i], 0) << op;
      EXPECT_THAT(session.executor.pooled_gradient(0), ::testing::Each(0.0f)) << op;
    }
  }
}

TEST(Layers, NameTheOutput) {
  const std::string two = R"pb(
    layers { name: "a" op: "Bias" inputs: "d0" outputs: "y" }
    layers { name: "b" op: "Bias" inputs: "y" })pb";
  EXPECT_EQ(MakeModel(Layers(two))->graph().tensors().back().name, "b");
  EXPECT_THAT(ErrorOf(Layers(two + "output: \"y\"")),
              HasSubstr("layer \"b\": no other layer reads"));
  EXPECT_THAT(ErrorOf(Layers(two + "output: \"bb\"")),
              AllOf(StartsWith("model.output: unknown output \"bb\""),
                    HasSubstr("known are b, c0.embedding")));
}

TEST(Layers, GiveATaskAsManyLogitsAsItSays) {
  v1::JobSpec spec = Layers("layers { name: \"kind\" op: \"linear\" inputs: \"dense\" " + Units(3) +
                            "} tasks { name: \"kind\" label: \"label\" "
                            "loss: SOFTMAX_CROSS_ENTROPY classes: 3 }");
  EXPECT_NE(MakeModel(spec), nullptr);
  spec.mutable_model()->mutable_tasks(0)->set_classes(4);
  EXPECT_THAT(ErrorOf(spec), AllOf(StartsWith("model.tasks[0]: the task \"kind\"'s output"),
                                   HasSubstr("has the shape [batch, 3], expected [batch, 4]")));
}

TEST(KnownNames, AreANearOneAllOfThemOrNone) {
  EXPECT_EQ(KnownNames("abd", {"abc", "x"}), "; did you mean \"abc\"? Known are abc, x");
  EXPECT_EQ(KnownNames("q", {"abc", "x"}), "; known are abc, x");
  EXPECT_EQ(KnownNames("q", {}), "; there are none");
}

TEST(Layers, RefuseWhatIsWrongAndSayWhere) {
  EXPECT_THAT(ErrorOf(Layers("")), StartsWith("model.layers: "));
  EXPECT_THAT(ErrorOf(Layers("layers { name: \"a\" op: \"lineer\" inputs: \"dense\" }")),
              AllOf(StartsWith("model.layers[0]: layer \"a\": unknown op \"lineer\""),
                    HasSubstr("did you mean \"linear\"?"), HasSubstr("batch_norm")));
  EXPECT_THAT(ErrorOf(Layers("layers { name: \"a\" op: \"Bias\" inputs: \"c0.embeding\" }")),
              AllOf(HasSubstr("unknown input \"c0.embeding\""),
                    HasSubstr("did you mean \"c0.embedding\"?"), HasSubstr("Known are")));
  EXPECT_THAT(
      ErrorOf(Layers("layers { name: \"a\" op: \"FM\" inputs: \"dense\" }")),
      AllOf(StartsWith("model.layers[0]: layer \"a\", FM(dense [batch, 2]): "),
            HasSubstr("expected one input [batch, fields, dim]; found 1 input: [batch, 2]")));
  EXPECT_THAT(
      ErrorOf(Layers("layers { name: \"a\" op: \"Add\" inputs: \"dense\" inputs: \"embedding\" }")),
      HasSubstr(
          "Add(dense [batch, 2], embedding [batch, 2, 4]): expected two or more inputs of one "
          "shape, or of one rank with 1 where they differ; found 2 inputs: [batch, 2], [batch, 2, "
          "4]"));
  EXPECT_THAT(ErrorOf(Layers("layers { name: \"a\" op: \"Gemm\" inputs: \"dense\" }")),
              HasSubstr("options.units: must be set"));
  EXPECT_THAT(
      ErrorOf(Layers("layers { name: \"a\" op: \"Gemm\" inputs: \"dense\" " + Units(7) + " }")),
      HasSubstr("output \"a\" has the shape [batch, 7], expected [batch, 1]"));
  EXPECT_THAT(
      ErrorOf(Layers("layers { name: \"a\" op: \"Relu\" inputs: \"dense\" " + Units(7) + " }")),
      HasSubstr("options.units: there are no options here"));
  EXPECT_THAT(ErrorOf(Layers("layers { name: \"dense\" op: \"Relu\" inputs: \"dense\" }")),
              HasSubstr("the name \"dense\" is taken"));
  EXPECT_THAT(ErrorOf(Layers("layers { name: \"a\" op: \"Relu\" inputs: \"d0\" }")),
              HasSubstr("depends on nothing that can be trained"));
  EXPECT_THAT(
      ErrorOf(Layers("layers { name: \"a\" op: \"parameter\" options { fields { key: "
                     "\"shape\" value { list_value { values { number_value: 1 } } } } } }")),
      HasSubstr("output \"a\" is the same for every sample: no column of the data reaches "
                "it"));
  EXPECT_THAT(ErrorOf(Layers("layers { name: \"a\" op: \"Bias\" inputs: \"d0\" outputs: \"x\" "
                             "outputs: \"y\" }")),
              HasSubstr("has 1 outputs, found 2 names"));
  const auto split = [](const std::string& outputs) {
    return ErrorOf(
        Layers("layers { name: \"a\" op: \"Split\" inputs: \"dense\" " + outputs +
               " options { fields { key: \"num_outputs\" value { number_value: 2 } } } }"));
  };
  EXPECT_THAT(split("outputs: \"x\" outputs: \"x\""),
              HasSubstr("layer \"a\": two of its outputs are named \"x\""));
  EXPECT_THAT(split("outputs: \"x\" outputs: \"\""),
              HasSubstr("layer \"a\": its output 1 has no name"));
  EXPECT_THAT(
      ErrorOf(Layers("layers { name: \"a\" op: \"Gemm\" inputs: \"dense\" options { fields { "
                     "key: \"unit\" value { number_value: 1 } } } }")),
      HasSubstr("options.unit: unknown option; did you mean \"units\"?"));
  EXPECT_THAT(ErrorOf(Layers("layers { op: \"Bias\" inputs: \"d0\" }")),
              StartsWith("model.layers[0]: name: must be set"));
  EXPECT_THAT(ErrorOf(Layers("layers { name: \"a\" op: \"Bias\" }")),
              HasSubstr("Bias(): expected one input [batch, ..., n]; found no inputs"));
  EXPECT_THAT(ErrorOf(Layers("layers { name: \"a\" op: \"Attention\" inputs: \"embedding\" inputs: "
                             "\"embedding\" inputs: \"embedding\" options { fields { key: "
                             "\"heads\" value { number_value: 3 } } } }")),
              HasSubstr("options.heads: expected a divisor of 4 that leaves a head 1024 at most, "
                        "found 3"));
  EXPECT_THAT(ErrorOf(Layers("layers { name: \"a\" op: \"Concat\" }")),
              HasSubstr("Concat(): expected one or more inputs; found no inputs"));
  EXPECT_THAT(ErrorOf(Layers(
                  "layers { name: \"a\" op: \"Gemm\" inputs: \"dense\" " + Units(1 << 20) +
                  " } layers { name: \"b\" op: \"Gemm\" inputs: \"a\" " + Units(1 << 20) + " }")),
              AllOf(StartsWith("model.layers[1]: layer \"b\", "),
                    HasSubstr("weight would have 1099511627776 floats; expected at most 2^30")));
  EXPECT_THAT(ErrorOf(Layers("layers { name: \"a\" op: \"Bias\" inputs: \"d0\" } " +
                             std::string("options { fields { key: \"hidden\" } }"))),
              StartsWith("model.options: belongs to the models of the zoo"));
}

TEST(Layers, MayNotHaveTheNamesOfColumns) {
  // Whether a layer reads the column before, after, or not at all.
  const std::string taken = "layers { name: \"d1\" op: \"Bias\" inputs: \"d0\" }";
  const std::string reads = "layers { name: \"a\" op: \"Bias\" inputs: \"d1\" }";
  for (const std::string& layers : {taken, taken + reads, reads + taken}) {
    EXPECT_THAT(ErrorOf(Layers(layers)),
                HasSubstr("layer \"d1\": the name \"d1\" is taken by the column \"d1\""));
  }
  EXPECT_THAT(
      ErrorOf(Layers("layers { name: \"c1.embedding\" op: \"Bias\" inputs: \"d0\" }")),
      HasSubstr(
          "layer \"c1.embedding\": the name \"c1.embedding\" is taken by the column \"c1\" in "
          "the table \"embedding\""));
  EXPECT_THAT(ErrorOf(Layers("layers { name: \"a\" op: \"Split\" inputs: \"dense\" outputs: \"x\" "
                             "outputs: \"d0\" options { fields { key: \"num_outputs\" value { "
                             "number_value: 2 } } } }")),
              HasSubstr("layer \"a\": the name \"d0\" is taken by the column \"d0\""));
}

TEST(Layers, MayNotReadAColumnThatHasTheNameOfATable) {
  v1::JobSpec spec = Layers("layers { name: \"a\" op: \"Bias\" inputs: \"linear\" }");
  ASSERT_EQ(spec.data().columns(1).name(), "d0");
  spec.mutable_data()->mutable_columns(1)->set_name("linear");
  EXPECT_THAT(ErrorOf(spec), StartsWith("model.layers[0]: layer \"a\": its input \"linear\" is "
                                        "the name of a dense column and of a table; "));
  // Whole inputs have them all.
  spec.mutable_model()->mutable_layers(0)->set_inputs(0, "dense");
  *spec.mutable_model()->mutable_layers(0)->mutable_op() = "Gemm";
  *spec.mutable_model()->mutable_layers(0)->mutable_options() = Options().Set("units", 1.0);
  EXPECT_NE(MakeModel(spec), nullptr);
}

struct WrongOption {
  const char* op;
  const char* input;
  google::protobuf::Struct options;
  const char* message;
};

TEST(Layers, RefuseWrongOptionsOfEveryOp) {
  const auto ints = [](std::vector<int64_t> values) { return values; };
  const WrongOption wrong[] = {
      {"Gemm", "dense", Options().Set("units", 1.5), "options.units: expected a whole number"},
      {"Gemm", "dense", Options().Set("units", std::string("x")), "found the text \"x\""},
      {"Gemm", "dense", Options().Set("units", 1.0).Set("bias", 3.0),
       "options.bias: expected true"},
      {"Dropout", "dense", Options().Set("ratio", 1.0),
       "options.ratio: expected a number from 0 to below 1"},
      {"Dropout", "dense", Options().Set("rate", 0.5),
       "options.rate: unknown option; known are ratio"},
      {"BatchNormalization", "dense", Options().Set("momentum", 2.0), "options.momentum: expected"},
      {"BatchNormalization", "dense", Options().Set("epsilon", 0.0), "options.epsilon: expected"},
      {"Slice", "embedding", Options().Set("axis", 3.0),
       "axis 3 of [batch, 2, 4]: expected 1 to 2"},
      {"Slice", "embedding", Options().Set("start", 2.0),
       "options.start: expected a whole number from -2 to 1"},
      {"Slice", "embedding", Options().Set("start", -1.0).Set("end", -1.0),
       "options.end: must be above start, which is 1"},
      {"Slice", "embedding", Options().Set("start", 1.0).Set("end", 1.0),
       "options.end: must be above start"},
      {"Concat", "dense", Options().Set("axis", 0.0), "0 is the batch"},
      {"Reshape", "dense", Options().Set("shape", ints({0, 3})), "must hold the input's 2 floats"},
      {"Reshape", "dense", Options().Set("shape", ints({2})), "expected a list that starts with 0"},
      {"ReduceSum", "embedding", Options().Set("axes", ints({1, 1})),
       "options.axes: expected different"},
      {"ReduceSum", "embedding", Options().Set("axes", ints({})),
       "options.axes: expected at least one"},
      {"Elu", "dense", Options().Set("alpha", -1.0), "options.alpha: expected a number"},
      {"Mul", "dense", {}, "expected two inputs of one shape"},
      {"ReduceMax", "embedding", Options().Set("axes", ints({})),
       "options.axes: expected at least one"},
      {"Softmax", "dense", Options().Set("axis", 2.0), "axis 2 of [batch, 2]: expected 1 to 1"},
      {"LayerNormalization", "dense", Options().Set("affine_axis", 0.0), "0 is the batch"},
      {"MatMul", "embedding", Options().Set("transB", true),
       "expected two inputs [batch, ..., m, k] and [batch, ..., n, k]"},
      {"Attention", "embedding", {}, "expected queries [batch, T, n], keys [batch, S, n]"},
      {"LSTM", "embedding", {}, "options.units: must be set"},
      {"LSTM", "dense", Options().Set("units", 2.0), "expected [batch, T, n]"},
      {"Transpose", "embedding", Options().Set("perm", ints({0, 1, 1})),
       "options.perm: expected 0, the batch, and then each axis from 1 to 2 once"},
      {"Bilinear", "embedding", Options().Set("units", 2.0),
       "expected two inputs [batch, ..., m] and [batch, ..., n]"},
      {"Bilinear", "embedding", {}, "options.units: must be set"},
      {"Transpose", "embedding", {}, "options.perm: expected 0"},
      {"Split", "embedding", {}, "options.split: set either"},
      {"Split", "embedding", Options().Set("split", ints({1, 2})),
       "the sizes must add up to the axis's, 4; found 3"},
      {"Split", "embedding", Options().Set("num_outputs", 3.0),
       "options.num_outputs: must divide the axis's size, which is 4"},
      {"Gather", "embedding", Options().Set("indices", ints({-2, 2})),
       "options.indices: expected a list, each element a whole number from -2 to 1"},
      {"Gather", "embedding", {}, "options.indices: must be set"},
      {"Clip", "dense", Options().Set("min", 1.0).Set("max", 0.0), "options.max: expected"},
      {"Parameter", "dense", Options().Set("shape", ints({3})),
       "expected no inputs; found 1 input"},
      {"Parameter", "dense", {}, "options.shape: must be set"},
      // 2^80 floats, which 64 bits hold as 0.
      {"Parameter", "dense", Options().Set("shape", ints({1 << 20, 1 << 20, 1 << 20, 1 << 20})),
       "options.shape: expected at most 2^20 floats"},
      {"Constant", "dense",
       Options().Set("shape", ints({1 << 20, 1 << 20, 1 << 20, 1 << 20})).Set("value", 1.0),
       "options.shape: expected at most 2^20 floats"},
      {"DotInteraction", "dense", {}, "expected one input [batch, 2 or more fields, dim]"},
      {"FieldPairs", "dense", {}, "expected one input [batch, 2 or more fields, dim]"},
      {"FFM", "dense", {}, "expected one input [batch, 2 or more fields, (fields - 1) k]"},
  };
  for (const WrongOption& w : wrong) {
    v1::JobSpec spec = Layers("");
    auto* layer = spec.mutable_model()->add_layers();
    layer->set_name("a");
    layer->set_op(w.op);
    layer->add_inputs(w.input);
    *layer->mutable_options() = w.options;
    EXPECT_THAT(ErrorOf(spec),
                AllOf(StartsWith("model.layers[0]: layer \"a\", "), HasSubstr(w.message)));
  }
}

}  // namespace
}  // namespace tessera::worker::testing
