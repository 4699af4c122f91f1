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
#include "tests/bench/dense_models.h"
#include "worker/dense/buffer.h"
#include "worker/dense/gemm.h"
#include "worker/dense/prepared_product.h"

namespace tessera::bench {
namespace {

void FillNormal(uint64_t seed, worker::Buffer* values) {
  for (size_t i = 0; i < values->size(); ++i) values->data()[i] = 0.5f * RandomNormal(seed, i);
}

// The products of a step, one after another: forward, weights' gradients, inputs' gradients but
// those of layers that read data alone. In memory like an executor's.
class Products {
 public:
  Products(const DenseShape& shape, TaskPool* pool)
      : batch_(shape.batch), precision_(shape.precision), pool_(pool) {
    for (const DenseLayer& size : DenseLayers(shape)) {
      Layer& layer = layers_.emplace_back(Layer{size, {}, {}, {}, {}, {}});
      const auto at_batch = [&](int64_t width) {
        return worker::Buffer(static_cast<size_t>(batch_ * width));
      };
      layer.x = at_batch(layer.in);
      layer.dx = at_batch(layer.in);
      layer.y = at_batch(layer.out);
      layer.w = worker::Buffer(static_cast<size_t>(layer.in * layer.out));
      layer.dw = worker::Buffer(layer.w.size());
      FillNormal(layers_.size(), &layer.x);
      FillNormal(layers_.size() + 50, &layer.w);
    }
  }

  void Run() {
    for (Layer& layer : layers_) {
      worker::Gemm(pool_, precision_, batch_, layer.out, layer.in, {layer.x.data()},
                   {layer.w.data(), true}, layer.y.data());
    }
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      worker::Gemm(pool_, precision_, layer->out, layer->in, batch_, {layer->y.data(), true},
                   {layer->x.data()}, layer->dw.data());
      if (!layer->input_gradient) continue;
      worker::Gemm(pool_, precision_, batch_, layer->in, layer->out, {layer->y.data()},
                   {layer->w.data()}, layer->dx.data());
    }
  }

 private:
  struct Layer : DenseLayer {
    worker::Buffer x, y, dx, w, dw;
  };

  const int64_t batch_;
  const worker::Precision precision_;
  TaskPool* const pool_;
  std::vector<Layer> layers_;
};

void Measure(benchmark::State& state, DenseShape shape, int threads, bool short_run) {
  if (shape.precision == worker::Precision::kBfloat16 && !worker::HasBfloat16Products()) {
    std::fprintf(stderr, "dense: this processor has no bfloat16 products\n");
    return state.SetLabel("this processor has no bfloat16 products");
  }
  if (short_run) shape.batch = 64;
  TaskPool pool(threads - 1);
  DenseStep step(shape, &pool);
  Products products(shape, &pool);
  const auto rate = [&](absl::FunctionRef<void()> once) {
    return Rate(short_run ? 1 : 4, shape.batch, once);
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
  const DenseShape deepfm = DeepFmShape(), dlrm = DlrmShape();
  DenseShape frappe = deepfm;
  frappe.regularised = true;
  DenseShape deepfm_bfloat16 = deepfm, dlrm_bfloat16 = dlrm;
  for (DenseShape* shape : {&deepfm_bfloat16, &dlrm_bfloat16}) {
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
