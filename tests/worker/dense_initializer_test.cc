#include "worker/dense/initializer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/worker/dense_job_testing.h"
#include "tests/worker/zoo_testing.h"

namespace tessera::worker::testing {
namespace {

// Each scheme by its standard deviation, and the uniform ones by their bound.
TEST(Initializer, IsThatOfTheSchemeThatTheOptionsName) {
  constexpr double kIn = 300, kOut = 500, kGain = 0.5;
  struct Case {
    const char* scheme;
    double deviation;
    bool uniform;
  };
  const Case cases[] = {
      {"xavier_normal", kGain * std::sqrt(2 / (kIn + kOut)), false},
      {"xavier_uniform", kGain * std::sqrt(2 / (kIn + kOut)), true},
      {"he_normal", kGain * std::sqrt(2 / kIn), false},
      {"he_uniform", kGain * std::sqrt(2 / kIn), true},
      {"lecun_normal", kGain * std::sqrt(1 / kIn), false},
      {"lecun_uniform", kGain * std::sqrt(1 / kIn), true},
      {"normal", kGain, false},
      {"uniform", kGain / std::sqrt(3), true},
  };
  for (const auto& [scheme, deviation, uniform] : cases) {
    SCOPED_TRACE(scheme);
    const google::protobuf::Struct fields =
        Options().Set("init", std::string(scheme)).Set("gain", kGain);
    OptionReader options(fields, "options");
    const WeightInit init = WeightInit::Read(options);
    ASSERT_TRUE(options.Finish().ok());
    const Initializer start = init.For(static_cast<int64_t>(kIn), static_cast<int64_t>(kOut));
    EXPECT_EQ(start.kind == Initializer::Kind::kUniform, uniform);
    EXPECT_NEAR(start.value, deviation * (uniform ? std::sqrt(3) : 1), 1e-7);
  }
}

TEST(Initializer, LayersStartAsTheirOptionsSay) {
  v1::JobSpec spec = Job("layers", 1, 400);
  const auto add = [&](const char* name, const char* op, std::vector<std::string> inputs,
                       google::protobuf::Struct options) {
    v1::LayerSpec& layer = *spec.mutable_model()->add_layers();
    layer.set_name(name);
    layer.set_op(op);
    for (std::string& input : inputs) layer.add_inputs(std::move(input));
    *layer.mutable_options() = std::move(options);
  };
  add("a", "linear", {"dense"},
      Options().Set("units", 400.0).Set("gain", 0.5).Set("bias_value", 3.0));
  add("b", "parameter", {}, Options().Set("shape", std::vector<int64_t>{400}).Set("stddev", 0.1));
  add("c", "multiply", {"a", "b"}, {});
  add("d", "linear", {"c"}, Options().Set("units", 1.0));
  const std::unique_ptr<Model> model = MakeModel(spec);
  ASSERT_NE(model, nullptr);
  const Session session(*model);
  const auto spread = [&](size_t parameter) {
    const GraphParameter& of = model->graph().parameters()[parameter];
    double squares = 0;
    for (uint64_t i = 0; i < of.floats; ++i) {
      squares += std::pow(session.trained[of.offset + i], 2);
    }
    return std::sqrt(squares / static_cast<double>(of.floats));
  };
  EXPECT_NEAR(spread(0), 0.5 * std::sqrt(2.0 / 800), 0.001);
  const GraphParameter& bias = model->graph().parameters()[1];
  for (uint64_t i = 0; i < bias.floats; ++i) EXPECT_EQ(session.trained[bias.offset + i], 3);
  EXPECT_NEAR(spread(2), 0.1, 0.015);
}

TEST(Initializer, AllGemmsOfAModelStartAsItsOptionSays) {
  v1::JobSpec spec = Job("dnn", 25, 0);
  SetOptions(spec, Options()
                       .Set("hidden", std::vector<int64_t>{300, 200})
                       .Set("init", std::string("he_uniform")));
  const std::unique_ptr<Model> model = MakeModel(spec);
  ASSERT_NE(model, nullptr);
  const Session session(*model);
  int weights = 0;
  for (const GraphParameter& of : model->graph().parameters()) {
    if (of.spec.shape.size() != 2) continue;
    SCOPED_TRACE(of.name);
    ++weights;
    const double bound = std::sqrt(6.0 / static_cast<double>(of.spec.shape[1]));
    double sum = 0, squares = 0, most = 0;
    for (uint64_t i = 0; i < of.floats; ++i) {
      const double value = session.trained[of.offset + i];
      sum += value;
      squares += value * value;
      most = std::max(most, std::abs(value));
    }
    const auto n = static_cast<double>(of.floats);
    EXPECT_LE(most, bound);
    EXPECT_GT(most, 0.95 * bound);
    EXPECT_NEAR(sum / n, 0, 4 * bound / std::sqrt(3 * n));
    EXPECT_NEAR(squares / n, bound * bound / 3, 0.15 * bound * bound / 3);
  }
  EXPECT_EQ(weights, 3);
}

// They have no gain, and weights of deviation 1 are far too large in any.
TEST(Initializer, ModelsHaveTheSchemesThatGoByTheSizeOfALayer) {
  v1::JobSpec spec = Job("dnn", 25, 0);
  for (const char* const scheme : {"normal", "uniform"}) {
    SetOptions(spec, Options().Set("init", std::string(scheme)));
    EXPECT_EQ(ErrorOf(spec),
              absl::StrCat("model.options.init: unknown value \"", scheme,
                           "\"; known are xavier_normal, xavier_uniform, he_normal, he_uniform, "
                           "lecun_normal, lecun_uniform"));
  }
}

TEST(Initializer, ModelsStartFromXavierWeightsThatDependOnTheSeedAlone) {
  v1::JobSpec spec = Job("dnn", 25, 0);
  SetOptions(spec, Options().Set("hidden", std::vector<int64_t>{300}).Set("batch_norm", true));
  const std::unique_ptr<Model> model = MakeModel(spec);
  Session session(*model);
  const GraphParameter& weight = model->graph().parameters()[0];
  ASSERT_EQ(weight.name, "mlp/1/linear/weight");
  ASSERT_EQ(weight.spec.shape, (std::vector<int64_t>{300, 100}));
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < weight.floats; ++i) {
    sum += session.trained[i];
    squares += session.trained[i] * session.trained[i];
  }
  const double n = static_cast<double>(weight.floats);
  EXPECT_NEAR(sum / n, 0, 4 * std::sqrt(2.0 / 400 / n));
  EXPECT_NEAR(squares / n, 2.0 / 400, 0.05 * 2.0 / 400);
  // Bias 0, BatchNormalization weight 1 and bias 0, running mean 0 and variance 1.
  EXPECT_EQ(session.trained[30000], 0);
  EXPECT_EQ(session.trained[30300], 1);
  EXPECT_EQ(session.trained[30600], 0);
  EXPECT_EQ(session.statistics[0], 0);
  EXPECT_EQ(session.statistics[300], 1);
  EXPECT_EQ(Session(*MakeModel(spec)).trained, session.trained);
  spec.set_seed(12);
  EXPECT_NE(Session(*MakeModel(spec)).trained, session.trained);
}

}  // namespace
}  // namespace tessera::worker::testing
