// Forward and backward of the models of deploy/jobs, beside the matrix products in them alone.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/yaml_job.h"
#include "common/random.h"
#include "common/task_pool.h"
#include "tests/bench/bench.h"
#include "tests/paths.h"
#include "tests/worker/dense_step.h"
#include "worker/data/schema.h"
#include "worker/dense/executor.h"
#include "worker/dense/gemm.h"
#include "worker/dense/model.h"
#include "worker/new_model.h"

namespace tessera::bench {
namespace {

using worker::Graph;
using worker::GraphNode;
using worker::Model;
using worker::Shape;

void FillNormal(uint64_t seed, absl::Span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.5f * RandomNormal(seed, i);
}

// x [rows, k] times w [k, n]; a step has its two gradients besides.
struct Product {
  int64_t rows, n, k;
};

// What layers, cells, CIN and attention multiply, of one sample. Many small products of a sample
// count as one with as many multiplications, which is faster than they can be.
std::vector<Product> ProductsOf(const Graph& graph) {
  std::vector<Product> products;
  for (const GraphNode& node : graph.nodes()) {
    const auto shape = [&](size_t input) -> const Shape& {
      return graph.tensors()[node.inputs[input]].shape;
    };
    const Shape& out = graph.tensors()[node.outputs[0]].shape;
    const int64_t n = out.last(), rows = static_cast<int64_t>(out.floats()) / n;
    if (node.op_name == "Gemm" || node.op_name == "MatMul") {
      products.push_back({rows, n, static_cast<int64_t>(shape(0).floats()) / rows});
    } else if (node.op_name == "Bilinear") {
      products.push_back({rows, n, shape(0).last() * shape(1).last()});
    } else if (node.op_name == "Attention") {
      const int64_t keys = shape(1).dim(0);
      products.push_back({rows, keys, shape(0).last()});
      products.push_back({rows, n, keys});
    } else if (node.op_name == "GRU" || node.op_name == "AUGRU" || node.op_name == "LSTM") {
      const int64_t places = shape(0).dim(0), gates = node.op_name == "LSTM" ? 4 : 3;
      products.push_back({places, gates * n, shape(0).last()});
      products.push_back({places, gates * n, n});
    }
  }
  return products;
}

// The products of a step, one after another, on memory of their own.
class Products {
 public:
  Products(std::vector<Product> products, int64_t batch, TaskPool* pool)
      : products_(std::move(products)), pool_(pool) {
    int64_t wide = 0, weights = 0;
    for (Product& product : products_) {
      product.rows *= batch;
      wide = std::max(wide, product.rows * std::max(product.n, product.k));
      weights = std::max(weights, product.n * product.k);
    }
    for (std::vector<float>* values : {&x_, &y_, &dx_}) values->resize(static_cast<size_t>(wide));
    for (std::vector<float>* values : {&w_, &dw_}) values->resize(static_cast<size_t>(weights));
    FillNormal(1, absl::MakeSpan(x_));
    FillNormal(2, absl::MakeSpan(w_));
  }

  void Run() {
    constexpr worker::Precision kFloat32 = worker::Precision::kFloat32;
    for (const Product& p : products_) {
      worker::Gemm(pool_, kFloat32, p.rows, p.n, p.k, {x_.data()}, {w_.data(), true}, y_.data());
      worker::Gemm(pool_, kFloat32, p.n, p.k, p.rows, {y_.data(), true}, {x_.data()}, dw_.data());
      worker::Gemm(pool_, kFloat32, p.rows, p.k, p.n, {y_.data()}, {w_.data()}, dx_.data());
    }
  }

 private:
  std::vector<Product> products_;
  TaskPool* const pool_;
  std::vector<float> x_, y_, dx_, w_, dw_;
};

// A model with random inputs.
class Step {
 public:
  Step(const Model& model, uint32_t batch, TaskPool* pool)
      : executor_(model, pool),
        trained_(model.trained_floats()),
        statistics_(model.statistics_floats()),
        trained_gradient_(trained_.size()),
        statistics_gradient_(statistics_.size()),
        groups_(batch) {
    model.InitialParameters(absl::MakeSpan(trained_), absl::MakeSpan(statistics_));
    executor_.Resize(batch);
    FillNormal(1, executor_.dense());
    for (size_t i = 0; i < model.inputs().size(); ++i) FillNormal(2 + i, executor_.pooled(i));
    for (size_t i = 0; i < model.lengths().size(); ++i) {
      const absl::Span<float> lengths = executor_.length(i);
      std::fill(lengths.begin(), lengths.end(), 1e6f);  // all that there is room for
    }
    for (const worker::LossFunction& task : model.losses()) {
      label_width_ = std::max(label_width_, task.label + 1);
    }
    labels_.resize(batch * label_width_);
    for (size_t i = 0; i < labels_.size(); ++i) labels_[i] = i % 3 == 0 ? 1 : 0;
    for (size_t i = 0; i < groups_.size(); ++i) groups_[i] = i / 8;
  }

  // The sum of the losses.
  double Run() {
    return worker::testing::ForwardBackward(
               executor_, {.trained = trained_,
                           .statistics = statistics_,
                           .targets = {labels_, label_width_, {}, groups_},
                           .loss_scale = 1.0f / static_cast<float>(executor_.batch()),
                           .dropout_step = ++step_,
                           .trained_gradient = absl::MakeSpan(trained_gradient_),
                           .statistics_gradient = absl::MakeSpan(statistics_gradient_)})
        .loss_sum;
  }

 private:
  worker::Executor executor_;
  std::vector<float> trained_, statistics_, trained_gradient_, statistics_gradient_, labels_;
  uint32_t label_width_ = 1;
  std::vector<uint64_t> groups_;
  uint64_t step_ = 0;
};

void Measure(benchmark::State& state, const v1::JobSpec& spec, const Model& model, bool short_run) {
  constexpr int kThreads = 2;
  TaskPool pool(kThreads - 1);
  const uint32_t batch = short_run ? 64 : spec.train().batch_size();
  Step step(model, batch, &pool);
  Products products(ProductsOf(model.graph()), batch, &pool);
  // As many samples for small batches as for large ones.
  const int runs = short_run ? 1 : static_cast<int>(std::max(1u, 4096 / batch));
  const auto rate = [&](absl::FunctionRef<void()> once) { return Rate(runs, batch, once); };
  double loss = 0;
  const Medians medians = Interleave(
      short_run ? 2 : 8, [&] { return rate([&] { loss += step.Run(); }); },
      [&] { return rate([&] { products.Run(); }); });
  if (!std::isfinite(loss)) return state.SkipWithError("the loss is not a number");
  Report(state, {.metric = "step",
                 .value = medians.value,
                 .unit = "samples/s",
                 .limit_name = "its products alone",
                 .limit = medians.limit});
}

// What is not has nothing to be compared with.
bool HasHiddenLayers(const Graph& graph) {
  const std::vector<Product> products = ProductsOf(graph);
  return std::any_of(products.begin(), products.end(), [](const Product& p) { return p.n > 1; });
}

}  // namespace

void RegisterBenchmarks(const Options& options) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("deploy/jobs"))) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    const v1::JobSpec spec = LoadJobFile(file).value().spec;
    const uint32_t dense_width = worker::Schema::Resolve(spec.data()).value().dense_width;
    const std::shared_ptr<const Model> model = worker::NewModel(spec, dense_width).value();
    if (!HasHiddenLayers(model->graph())) continue;
    Register(absl::StrCat("zoo/", spec.name()),
             [spec, model, short_run = options.short_run](benchmark::State& state) {
               Measure(state, spec, *model, short_run);
             });
  }
}

}  // namespace tessera::bench
