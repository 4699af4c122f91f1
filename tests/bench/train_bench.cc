// Whole jobs beside PyTorch: the same model, batch and samples on the same cores, or on a card.
#include <cstdio>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "cuda/devices.h"
#include "tests/bench/bench.h"
#include "tests/bench/training.h"
#include "worker/dense/prepared_product.h"

namespace tessera::bench {
namespace {

// Of Criteo's shape; see CriteoJob.
constexpr char kCriteoJob[] = R"(name: criteo
seed: 1
data:
  format: csv
  header: true
  columns:
    - {name: label, role: label}
    - {name: [DENSE], role: dense}
    - {name: [SPARSE], role: sparse, table: embedding}
  train: {files: "train-*.csv"}
  shuffle_window_records: WINDOW
tables:
  - name: embedding
    dim: DIM
    initializer: {normal: {stddev: 0.01}}
    optimizer: {learning_rate: 0.01, adagrad: {}}
model:
  name: MODEL
  options: {OPTIONS}
  optimizer: {learning_rate: 0.01, adagrad: {}}
train: {batch_size: BATCH, epochs: EPOCHS, device: DEVICE}
consistency: {sparse: async, dense: async}
)";

std::string CriteoJob(const std::string& model, const std::string& options) {
  return absl::StrReplaceAll(kCriteoJob, {{"MODEL", model}, {"OPTIONS", options}});
}
std::string DlrmJob() { return CriteoJob("dlrm", "bottom: [BOTTOM], hidden: [HIDDEN]"); }
std::string DcnV2Job() { return CriteoJob("dcn_v2", "hidden: [HIDDEN]"); }

constexpr char kDeepFmJob[] = R"(name: deepfm
seed: 1
data:
  format: csv
  header: true
  columns:
    - {name: label, role: label}
    - {name: [SPARSE], role: sparse, table: [linear, embedding]}
  train: {files: "train-*.csv"}
  shuffle_window_records: WINDOW
tables:
  - name: linear
    dim: 1
    initializer: {normal: {stddev: 0.01}}
    optimizer: {learning_rate: 0.001, adam: {}}
  - name: embedding
    dim: DIM
    initializer: {normal: {stddev: 0.01}}
    optimizer: {learning_rate: 0.001, adam: {}}
model:
  name: deepfm
  options: {hidden: [HIDDEN]}
  optimizer: {learning_rate: 0.001, adam: {}}
train: {batch_size: BATCH, epochs: EPOCHS, device: DEVICE}
consistency: {sparse: async, dense: async}
)";

void Shorten(Workload& w) {
  w.data.samples = 8192;
  w.data.rows = 20'000;
  w.batch = 512;
  w.window = 2048;
  w.epochs = 2;
  w.torch_steps = 4;
  w.rounds = 1;
}

// Several jobs over the same samples, which take longer to write than to train.
absl::Status MeasureOnCard(Workload workload, TrainBench& bench, benchmark::State& state) {
  const bool short_run = workload.batch < 1024;
  for (const auto& [model, job] : {std::pair("dlrm", DlrmJob()), std::pair("dcn_v2", DcnV2Job())}) {
    workload.model = model;
    workload.job = job;
    for (const uint32_t batch : {16384u, 65536u}) {
      if (!short_run) workload.batch = batch;
      bench.Use(workload);
      TESSERA_RETURN_IF_ERROR(bench.OnACard(absl::StrCat(model, ", batches of ", batch), state));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterBenchmarks(const Options& options) {
  Workload dlrm = {.model = "dlrm",
                   .job = DlrmJob(),
                   .data = {.samples = 262'144, .dense = 13, .fields = 26, .rows = 10'000'000},
                   .dim = 16,
                   .bottom = {512, 256},
                   .hidden = {512, 256},
                   .batch = 2048,
                   .window = 32'768,
                   .epochs = 4,
                   .torch_steps = 80,
                   .bars = {">= 2.2", ">= 1.7"}};
  Workload deepfm = {.model = "deepfm",
                     .job = kDeepFmJob,
                     .data = {.samples = 262'144, .dense = 0, .fields = 10, .rows = 5382},
                     .dim = 10,
                     .bottom = {},
                     .hidden = {400, 400, 400},
                     .batch = 4096,
                     .window = 32'768,
                     .epochs = 5,
                     .torch_steps = 80,
                     .bars = {">= 1.4", ">= 1.2"}};
  if (options.short_run) {
    Shorten(dlrm);
    Shorten(deepfm);
  }
  Workload on_card = dlrm;
  on_card.device = "cuda";
  on_card.data.samples = options.short_run ? 8192 : 524'288;
  on_card.copies = options.short_run ? 2 : 8;
  // Rows that the card trains are written back with each window.
  on_card.window = on_card.copies * static_cast<uint32_t>(on_card.data.samples);
  on_card.workers = 1;
  on_card.threads = 0;
  on_card.ps = options.short_run ? 2 : 8;
  on_card.rounds = 1;
  on_card.epochs = options.short_run ? 2 : 3;
  const auto add = [&options](const std::string& name, const Workload& workload,
                              std::function<absl::Status(TrainBench&, benchmark::State&)> measure) {
    const std::string folder = absl::StrCat(options.work_folder, "/", name);
    Register(absl::StrCat("train/", name), [=, python = options.python](benchmark::State& state) {
      spdlog::set_level(spdlog::level::err);
      TrainBench bench(workload, python, folder);
      absl::Status status = bench.Prepare();
      if (status.ok()) status = measure(bench, state);
      if (!status.ok()) state.SkipWithError(status.ToString().c_str());
    });
  };
  add("dlrm", dlrm, &TrainBench::BesidePyTorch);
  add("deepfm", deepfm, &TrainBench::BesidePyTorch);
  Workload from_disk = dlrm;  // a tenth as fast: one epoch is measured
  from_disk.epochs = 2;
  add("dlrm-tenth-of-memory", from_disk, &TrainBench::ATenthOfMemory);
  if (const absl::Status card = cuda::ListDevices().status(); card.ok()) {
    const auto measure = [on_card](TrainBench& bench, benchmark::State& state) {
      return MeasureOnCard(on_card, bench, state);
    };
    add("card", on_card, measure);
  } else {
    std::fprintf(stderr, "train: no jobs on a card: %s\n", std::string(card.message()).c_str());
  }
  if (worker::HasBfloat16Products()) {
    add("dlrm-bfloat16", dlrm, &TrainBench::Bfloat16BesideFloat32);
  } else {
    std::fprintf(stderr, "train: this processor has no bfloat16 products\n");
  }
}

}  // namespace tessera::bench
