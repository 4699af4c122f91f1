// Forward and backward of the dense graph alone, beside the products in it alone.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "common/task_pool.h"
#include "tests/bench/bench.h"
#include "worker/dense/bfloat16_product.h"
#include "worker/dense/executor.h"
#include "worker/dense/gemm.h"

namespace tessera::bench {
namespace {

using worker::Executor;
using worker::Model;

// A job as the worker gets it, as far as Model reads it.
struct Shape {
  std::string model;
  uint32_t fields = 0;
  uint32_t dim = 0;
  uint32_t dense = 0;
  uint32_t batch = 0;
  bool linear = false;
  std::vector<int64_t> bottom, hidden;
  bool regularised = false;  // batch normalisation and dropout
  worker::Precision precision = worker::Precision::kFloat32;
};

google::protobuf::Value ListOf(const std::vector<int64_t>& numbers) {
  google::protobuf::Value value;
  for (const int64_t number : numbers) {
    value.mutable_list_value()->add_values()->set_number_value(static_cast<double>(number));
  }
  return value;
}

v1::JobSpec JobOf(const Shape& shape) {
  v1::JobSpec spec;
  spec.set_seed(1);
  spec.mutable_model()->set_name(shape.model);
  auto& options = *spec.mutable_model()->mutable_options()->mutable_fields();
  options["hidden"] = ListOf(shape.hidden);
  if (!shape.bottom.empty()) options["bottom"] = ListOf(shape.bottom);
  if (shape.regularised) {
    options["batch_norm"].set_bool_value(true);
    options["dropout"].set_number_value(0.2);
  }
  const auto add_column = [&](const std::string& name, v1::ColumnRole role) {
    auto* column = spec.mutable_data()->add_columns();
    column->set_name(name);
    column->set_role(role);
    return column;
  };
  add_column("label", v1::LABEL);
  for (uint32_t i = 0; i < shape.dense; ++i) add_column(absl::StrCat("d", i), v1::DENSE);
  for (uint32_t i = 0; i < shape.fields; ++i) {
    auto* column = add_column(absl::StrCat("c", i), v1::SPARSE);
    if (shape.linear) column->add_table("linear");
    column->add_table("embedding");
  }
  const auto add_table = [&](const std::string& name, uint32_t dim) {
    auto* table = spec.add_tables();
    table->set_name(name);
    table->set_dim(dim);
  };
  if (shape.linear) add_table("linear", 1);
  add_table("embedding", shape.dim);
  if (shape.precision == worker::Precision::kBfloat16) {
    spec.mutable_train()->set_precision(v1::TrainSpec::BFLOAT16);
  }
  return spec;
}

void FillNormal(uint64_t seed, absl::Span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.5f * RandomNormal(seed, i);
}

// A model with all that a step needs.
class Step {
 public:
  Step(const Shape& shape, TaskPool* pool)
      : model_(Model::New(JobOf(shape), shape.dense).value()),
        executor_(*model_, pool),
        trained_(model_->trained_floats()),
        statistics_(model_->statistics_floats()),
        trained_gradient_(trained_.size()),
        statistics_gradient_(statistics_.size()),
        labels_(shape.batch) {
    model_->InitialParameters(absl::MakeSpan(trained_), absl::MakeSpan(statistics_));
    executor_.Resize(shape.batch);
    FillNormal(1, executor_.dense());
    for (size_t i = 0; i < model_->inputs().size(); ++i) FillNormal(2 + i, executor_.pooled(i));
    for (size_t i = 0; i < labels_.size(); ++i) labels_[i] = i % 3 == 0 ? 1 : 0;
  }

  double Run() {
    return executor_
        .ForwardBackward(trained_, statistics_, labels_, 1.0f / static_cast<float>(labels_.size()),
                         ++step_, 0, absl::MakeSpan(trained_gradient_),
                         absl::MakeSpan(statistics_gradient_))
        .loss_sum;
  }

 private:
  const std::unique_ptr<Model> model_;
  Executor executor_;
  std::vector<float> trained_, statistics_, trained_gradient_, statistics_gradient_, labels_;
  uint64_t step_ = 0;
};

// The products of a step, one after another: forward, weights' gradients, inputs' gradients but
// those of layers that read data alone.
class Products {
 public:
  Products(const Shape& shape, TaskPool* pool)
      : batch_(shape.batch), precision_(shape.precision), pool_(pool) {
    std::vector<int64_t> top = {shape.fields * shape.dim + shape.dense};
    if (!shape.bottom.empty()) {
      std::vector<int64_t> bottom = {shape.dense};
      bottom.insert(bottom.end(), shape.bottom.begin(), shape.bottom.end());
      bottom.push_back(shape.dim);
      AddLayers(bottom, false);
      const int64_t vectors = shape.fields + 1;
      top = {shape.dim + vectors * (vectors - 1) / 2};
    }
    top.insert(top.end(), shape.hidden.begin(), shape.hidden.end());
    top.push_back(1);
    AddLayers(top, true);
  }

  void Run() {
    for (Layer& layer : layers_) {
      worker::Gemm(pool_, precision_, batch_, layer.out, layer.in, {layer.x.data()},
                   {layer.w.data(), true}, layer.y.data(), false);
    }
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      worker::Gemm(pool_, precision_, layer->out, layer->in, batch_, {layer->y.data(), true},
                   {layer->x.data()}, layer->dw.data(), false);
      if (!layer->input_gradient) continue;
      worker::Gemm(pool_, precision_, batch_, layer->in, layer->out, {layer->y.data()},
                   {layer->w.data()}, layer->dx.data(), false);
    }
  }

 private:
  struct Layer {
    int64_t in, out;
    bool input_gradient;
    std::vector<float> x, y, dx, w, dw;
  };

  void AddLayers(const std::vector<int64_t>& widths, bool first_input_gradient) {
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      Layer layer = {widths[i], widths[i + 1], i > 0 || first_input_gradient, {}, {}, {}, {}, {}};
      const auto at_batch = [&](int64_t width) { return static_cast<size_t>(batch_ * width); };
      layer.x.resize(at_batch(layer.in));
      layer.dx.resize(at_batch(layer.in));
      layer.y.resize(at_batch(layer.out));
      layer.w.resize(static_cast<size_t>(layer.in * layer.out));
      layer.dw.resize(layer.w.size());
      FillNormal(i, absl::MakeSpan(layer.x));
      FillNormal(i + 50, absl::MakeSpan(layer.w));
      layers_.push_back(std::move(layer));
    }
  }

  const int64_t batch_;
  const worker::Precision precision_;
  TaskPool* const pool_;
  std::vector<Layer> layers_;
};

void Measure(benchmark::State& state, Shape shape, int threads, bool short_run) {
  if (shape.precision == worker::Precision::kBfloat16 && !worker::HasBfloat16Products()) {
    std::fprintf(stderr, "dense: this processor has no bfloat16 products\n");
    return state.SetLabel("this processor has no bfloat16 products");
  }
  if (short_run) shape.batch = 64;
  TaskPool pool(threads - 1);
  Step step(shape, &pool);
  Products products(shape, &pool);
  const int repeats = short_run ? 1 : 4;
  const auto rate = [&](absl::FunctionRef<void()> once) {
    const double seconds = Seconds([&] {
      for (int i = 0; i < repeats; ++i) once();
    });
    return repeats * shape.batch / seconds;
  };
  double loss = 0;
  const Medians medians = Interleave(
      short_run ? 2 : 10, [&] { return rate([&] { loss += step.Run(); }); },
      [&] { return rate([&] { products.Run(); }); });
  if (!std::isfinite(loss)) return state.SkipWithError("the loss is not a number");
  Report(state, {.metric = "step",
                 .value = medians.value,
                 .unit = "samples/s",
                 .limit_name = "its products alone",
                 .limit = medians.limit});
}

}  // namespace

void RegisterBenchmarks(const Options& options) {
  const bool short_run = options.short_run;
  const Shape deepfm = {.model = "deepfm",
                        .fields = 10,
                        .dim = 10,
                        .batch = 4096,
                        .linear = true,
                        .bottom = {},
                        .hidden = {400, 400, 400}};
  Shape frappe = deepfm;
  frappe.regularised = true;
  const Shape dlrm = {.model = "dlrm",
                      .fields = 26,
                      .dim = 16,
                      .dense = 13,
                      .batch = 2048,
                      .bottom = {512, 256},
                      .hidden = {512, 256}};
  Shape deepfm_bfloat16 = deepfm, dlrm_bfloat16 = dlrm;
  for (Shape* shape : {&deepfm_bfloat16, &dlrm_bfloat16}) {
    shape->precision = worker::Precision::kBfloat16;
  }
  for (const auto& [name, shape] :
       {std::pair("deepfm", deepfm), std::pair("deepfm-batch_norm-dropout", frappe),
        std::pair("deepfm-bfloat16", deepfm_bfloat16), std::pair("dlrm", dlrm),
        std::pair("dlrm-bfloat16", dlrm_bfloat16)}) {
    for (const int threads : {1, 2}) {
      Register(absl::StrCat("dense/", name, "/threads-", threads),
               [shape = shape, threads, short_run](benchmark::State& state) {
                 Measure(state, shape, threads, short_run);
               });
    }
  }
}

}  // namespace tessera::bench
