#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tessera/v1/job.pb.h"
#include "tests/worker/dense_step.h"
#include "tests/worker/dense_testing.h"
#include "worker/dense/executor.h"
#include "worker/dense/model.h"
#include "worker/new_model.h"

namespace tessera::worker::testing {

// A job of `fields` sparse columns c0, c1, ..., each in the tables "linear" (dim 1) and "embedding"
// (dim 4), and `dense` dense columns d0, d1, ...
inline v1::JobSpec Job(const std::string& model, int fields, int dense) {
  v1::JobSpec spec;
  spec.set_seed(11);
  spec.mutable_model()->set_name(model);
  auto* data = spec.mutable_data();
  data->set_format(v1::CSV);
  const auto add_column = [&](const std::string& name, v1::ColumnRole role) {
    auto* column = data->add_columns();
    column->set_name(name);
    column->set_role(role);
    return column;
  };
  add_column("label", v1::LABEL);
  for (int i = 0; i < dense; ++i) add_column("d" + std::to_string(i), v1::DENSE);
  for (int i = 0; i < fields; ++i) {
    auto* column = add_column("c" + std::to_string(i), v1::SPARSE);
    column->add_table("linear");
    column->add_table("embedding");
  }
  for (const auto& [name, dim] : {std::pair("linear", 1), std::pair("embedding", 4)}) {
    auto* table = spec.add_tables();
    table->set_name(name);
    table->set_dim(dim);
  }
  return spec;
}

inline void SetOptions(v1::JobSpec& spec, google::protobuf::Struct options) {
  *spec.mutable_model()->mutable_options() = std::move(options);
}

inline std::unique_ptr<Model> MakeModel(const v1::JobSpec& spec) {
  uint32_t dense = 0;
  for (const auto& column : spec.data().columns()) dense += column.role() == v1::DENSE;
  absl::StatusOr<std::unique_ptr<Model>> model = NewModel(spec, dense);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? std::move(*model) : nullptr;
}

inline std::string ErrorOf(const v1::JobSpec& spec) {
  uint32_t dense = 0;
  for (const auto& column : spec.data().columns()) dense += column.role() == v1::DENSE;
  const absl::Status status = NewModel(spec, dense).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

// An executor with its parameters, gradients and labels.
struct Session {
  explicit Session(const Model& model, TaskPool* pool = nullptr,
                   std::unique_ptr<cuda::Stream> stream = nullptr)
      : model(model),
        executor(model, pool, std::move(stream)),
        trained(model.trained_floats()),
        statistics(model.statistics_floats()),
        trained_gradient(model.trained_floats()),
        statistics_gradient(model.statistics_floats()) {
    model.InitialParameters(absl::MakeSpan(trained), absl::MakeSpan(statistics));
  }

  // Random features and labels.
  void Fill(uint32_t batch, uint64_t seed) {
    executor.Resize(batch);
    const auto copy = [](const std::vector<float>& from, absl::Span<float> to) {
      std::copy(from.begin(), from.end(), to.begin());
    };
    copy(Normals(seed, executor.dense().size()), executor.dense());
    for (size_t i = 0; i < model.inputs().size(); ++i) {
      const absl::Span<float> pooled = executor.pooled(i);
      copy(Normals(seed + 1 + i, pooled.size(), 0.5f), pooled);
    }
    for (size_t i = 0; i < model.lengths().size(); ++i) {
      const absl::Span<float> lengths = executor.length(i);
      for (size_t b = 0; b < lengths.size(); ++b) lengths[b] = static_cast<float>((seed + b) % 5);
    }
    labels.resize(batch);
    for (uint32_t i = 0; i < batch; ++i) labels[i] = RandomUniform(seed + 99, i) < 0.4f ? 1 : 0;
  }

  Executor::StepResult Step(float scale = 1, uint64_t step = 5, uint32_t rank = 0) {
    std::vector<uint64_t> groups;
    for (size_t i = 0; i < labels.size(); ++i) groups.push_back(i / 5);
    return ForwardBackward(executor, {.trained = trained,
                                      .statistics = statistics,
                                      .targets = Targets(labels, 1, weights, groups),
                                      .loss_scale = scale,
                                      .dropout_step = step,
                                      .rank = rank,
                                      .trained_gradient = absl::MakeSpan(trained_gradient),
                                      .statistics_gradient = absl::MakeSpan(statistics_gradient)});
  }
  std::vector<float> Forward() {
    const absl::Span<const float> logits = executor.Forward(trained, statistics);
    return {logits.begin(), logits.end()};
  }

  const Model& model;
  Executor executor;
  std::vector<float> trained, statistics, trained_gradient, statistics_gradient, labels;
  std::vector<float> weights;  // empty: all 1
};

// What a card computed, and what the CPU did: sums have another order, and a card's functions other
// last bits.
inline void ExpectNear(absl::Span<const float> found, absl::Span<const float> expected,
                       const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  float largest = 1e-3f;
  for (const float value : expected) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 2e-4f * largest) << what << ", element " << i;
  }
}

// Two towers of one linear layer and a normalisation, over a column each: two layers of their own,
// or one pair of layers whose parameters both use.
inline v1::JobSpec TwoTowers(bool shared) {
  v1::JobSpec spec = Job("layers", 2, 1);
  const auto add = [&](const std::string& name, const std::string& op,
                       const std::vector<std::string>& inputs,
                       const google::protobuf::Struct& options = {}) {
    v1::LayerSpec* layer = spec.mutable_model()->add_layers();
    layer->set_name(name);
    layer->set_op(op);
    for (const std::string& input : inputs) layer->add_inputs(input);
    *layer->mutable_options() = options;
    return layer;
  };
  for (const std::string tower : {"0", "1"}) {
    v1::LayerSpec* linear =
        add("linear" + tower, "Gemm", {"c" + tower + ".embedding"}, Options().Set("units", 3.0));
    v1::LayerSpec* norm = add("norm" + tower, "BatchNormalization", {"linear" + tower});
    if (shared && tower == "1") {
      linear->set_parameters_of("linear0");
      norm->set_parameters_of("norm0");
    }
    add("out" + tower, "Tanh", {"norm" + tower});
  }
  add("product", "Mul", {"out0", "out1"});
  add("logit", "ReduceSum", {"product"});
  return spec;
}

inline google::protobuf::Struct SmallMlp() {
  return Options()
      .Set("hidden", std::vector<int64_t>{17, 9})
      .Set("batch_norm", true)
      .Set("dropout", 0.25);
}

}  // namespace tessera::worker::testing
