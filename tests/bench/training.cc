#include "tests/bench/training.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/config/yaml_job.h"
#include "common/job/optimizer.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "local/child_process.h"
#include "local/local_run.h"
#include "nlohmann/json.hpp"
#include "ps/rows/row_layout.h"
#include "tests/bench/card_watch.h"
#include "tests/paths.h"

namespace tessera::bench {
namespace {

namespace fs = std::filesystem;

std::string Names(char letter, uint32_t count) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < count; ++i) names.push_back(absl::StrCat(std::string(1, letter), i));
  return absl::StrJoin(names, ", ");
}

// As job files and train_torch.py have it.
std::string PrecisionName(v1::TrainSpec::Precision precision) {
  return absl::AsciiStrToLower(v1::TrainSpec::Precision_Name(precision));
}

// Samples a second of a job from the end of its first epoch on: that one parses the text, which
// later ones find in the workers' caches, and creates the rows. Master's own clock, at two reports.
class SteadyRate {
 public:
  explicit SteadyRate(uint64_t first_epoch) : first_epoch_(first_epoch) {}

  void See(const v1::JobStatus& status) {
    if (status.mean_samples_per_second() <= 0) return;
    const Point now = {static_cast<double>(status.samples()),
                       static_cast<double>(status.samples()) / status.mean_samples_per_second()};
    if (begin_.seconds == 0 && status.samples() >= first_epoch_) begin_ = now;
    end_ = now;
  }
  // In a short run the first report may be the last: then all of it counts.
  double rate() const {
    const Point begin = end_.samples > begin_.samples ? begin_ : Point();
    return end_.seconds > 0 ? (end_.samples - begin.samples) / (end_.seconds - begin.seconds) : 0;
  }

 private:
  struct Point {
    double samples = 0;
    double seconds = 0;
  };
  const uint64_t first_epoch_;
  Point begin_, end_;
};

}  // namespace

std::string FillJob(const Workload& w) {
  return absl::StrReplaceAll(w.job, {{"DENSE", Names('d', w.data.dense)},
                                     {"SPARSE", Names('c', w.data.fields)},
                                     {"WINDOW", absl::StrCat(w.window)},
                                     {"DIM", absl::StrCat(w.dim)},
                                     {"BOTTOM", absl::StrJoin(w.bottom, ", ")},
                                     {"HIDDEN", absl::StrJoin(w.hidden, ", ")},
                                     {"BATCH", absl::StrCat(w.batch)},
                                     {"EPOCHS", absl::StrCat(w.epochs)},
                                     {"DEVICE", w.device}});
}

TrainBench::~TrainBench() { fs::remove_all(folder_); }

absl::Status TrainBench::Prepare() {
  fs::create_directories(folder_);
  const std::string csv = folder_ + "/train-0.csv";
  TESSERA_ASSIGN_OR_RETURN(rows_, WriteTrainData(workload_.data, csv, folder_ + "/train.raw"));
  for (uint32_t copy = 1; copy < workload_.copies; ++copy) {
    fs::create_hard_link(csv, absl::StrCat(folder_, "/train-", copy, ".csv"));
  }
  return absl::OkStatus();
}

absl::Status TrainBench::BesidePyTorch(benchmark::State& state) {
  std::vector<double> in_process, service;
  TorchRates torch;
  for (int round = 0; round < workload_.rounds; ++round) {
    TESSERA_RETURN_IF_ERROR(Train({.in_process = true}, &in_process));
    TESSERA_RETURN_IF_ERROR(Train({}, &service));
    TESSERA_RETURN_IF_ERROR(Torch(v1::TrainSpec::FLOAT32, &torch));
  }
  const Limit limit = BestOf(torch, state);
  const auto report = [&](const std::string& metric, const std::vector<double>& rates,
                          const std::string& bar) {
    Report(state, {metric, Median(rates), "samples/s", limit.name, limit.rate, bar});
  };
  report("in-process", in_process, workload_.bars.in_process);
  report("service", service, workload_.bars.service);
  return absl::OkStatus();
}

absl::Status TrainBench::Bfloat16BesideFloat32(benchmark::State& state) {
  std::vector<double> bfloat16, in_process, float32;
  TorchRates torch;
  for (int round = 0; round < workload_.rounds; ++round) {
    TESSERA_RETURN_IF_ERROR(Train({.precision = v1::TrainSpec::BFLOAT16}, &bfloat16));
    TESSERA_RETURN_IF_ERROR(Train({}, &float32));
    TESSERA_RETURN_IF_ERROR(
        Train({.in_process = true, .precision = v1::TrainSpec::BFLOAT16}, &in_process));
    TESSERA_RETURN_IF_ERROR(Torch(v1::TrainSpec::BFLOAT16, &torch));
  }
  Report(state, {"service", Median(bfloat16), "samples/s", "float32, through the service",
                 Median(float32), ">= 2"});
  const Limit limit = BestOf(torch, state);
  Report(state, {"in-process", Median(in_process), "samples/s", limit.name, limit.rate, ""});
  return absl::OkStatus();
}

absl::Status TrainBench::OnACard(const std::string& metric, benchmark::State& state) {
  std::vector<double> trained, pushed, busy;
  TorchRates torch;
  for (int round = 0; round < workload_.rounds; ++round) {
    TESSERA_RETURN_IF_ERROR(
        Train({.precision = v1::TrainSpec::TF32, .write_back = true}, &trained, &busy));
    TESSERA_RETURN_IF_ERROR(Train({.precision = v1::TrainSpec::TF32}, &pushed));
    TESSERA_RETURN_IF_ERROR(Torch(v1::TrainSpec::TF32, &torch));
  }
  const Limit limit = BestOf(torch, state);
  Report(state, {metric, Median(trained), "samples/s", limit.name, limit.rate, ">= 1.5"});
  Report(state, {metric + ", gradients pushed in each step", Median(pushed), "samples/s",
                 limit.name, limit.rate, ""});
  if (busy.empty()) return absl::OkStatus();
  Report(state, {metric + ", card busy", Median(busy), "", "all the time", 1, ">= 0.8"});
  return absl::OkStatus();
}

absl::Status TrainBench::ATenthOfMemory(benchmark::State& state) {
  TESSERA_ASSIGN_OR_RETURN(const LoadedJob job, ParseJobYaml(FillJob(workload_), "train_bench"));
  const v1::TableSpec& table = job.spec.tables(0);
  const OptimizerSlots slots = SlotsOf(table.optimizer());
  const ps::RowLayout layout(table.dim(), slots.per_float, slots.per_row);
  const uint64_t of_rows = rows_ * layout.block_bytes() / 10;
  const uint64_t of_ids = workload_.data.rows * layout.block_bytes() / 10;
  std::vector<double> direct, cached, ids, whole;
  for (int round = 0; round < workload_.rounds; ++round) {
    TESSERA_RETURN_IF_ERROR(Train({.in_process = true, .ps_memory_bytes = of_rows}, &direct));
    TESSERA_RETURN_IF_ERROR(Train({.in_process = true}, &whole));
    TESSERA_RETURN_IF_ERROR(
        Train({.in_process = true, .ps_memory_bytes = of_rows, .ps_page_cache = true}, &cached));
    TESSERA_RETURN_IF_ERROR(Train({.in_process = true, .ps_memory_bytes = of_ids}, &ids));
  }
  const auto report = [&](const std::string& metric, const std::vector<double>& rates) {
    Report(state,
           {metric, Median(rates), "samples/s", "all rows in memory", Median(whole), ">= 0.8"});
  };
  report("in-process", direct);
  // The machine has room for the files: the disk itself is hardly read.
  report("in-process through the page cache", cached);
  report(absl::StrFormat("in-process, of all ids (%.0f%% of the rows)",
                         10.0 * static_cast<double>(workload_.data.rows) /
                             static_cast<double>(std::max<uint64_t>(1, rows_))),
         ids);
  return absl::OkStatus();
}

absl::Status TrainBench::Train(const Form& form, std::vector<double>* rates,
                               std::vector<double>* busy) const {
  TESSERA_ASSIGN_OR_RETURN(const LoadedJob job, ParseJobYaml(FillJob(workload_), "train_bench"));
  const std::string run_folder = folder_ + "/run";
  fs::create_directories(run_folder);
  const uint64_t epoch_samples = workload_.data.samples * workload_.copies;
  SteadyRate rate(epoch_samples);
  local::LocalRun::Options options;
  options.in_process = form.in_process;
  options.cluster.ps_memory_bytes = form.ps_memory_bytes;
  options.cluster.ps_page_cache = form.ps_page_cache;
  options.cluster.work_folder = run_folder;
  options.cluster.data_root = folder_;
  options.cluster.checkpoint_root = run_folder + "/checkpoints";
  options.cluster.output_root = run_folder + "/output";
  options.cluster.ps = static_cast<int>(workload_.ps);
  options.cluster.workers = workload_.workers;
  options.cluster.compute_threads = workload_.threads;
  options.cluster.device = workload_.device;
  // All of the data.
  options.cluster.data_cache_bytes =
      epoch_samples * sizeof(double) * (1 + workload_.data.dense + 2 * workload_.data.fields);
  options.cluster.program_folder = ProgramFolder();
  options.cluster.say = [](const std::string& text) {
    std::fprintf(stderr, "train: %s\n", text.c_str());
  };
  absl::StatusOr<std::unique_ptr<CardWatch>> card = absl::UnavailableError("not asked for");
  if (busy != nullptr) {
    card = CardWatch::Start();
    if (!card.ok()) std::fprintf(stderr, "train: %s\n", card.status().ToString().c_str());
  }
  bool is_steady = false;
  options.on_status = [&](const v1::JobStatus& status) {
    rate.See(status);
    if (std::exchange(is_steady, status.samples() >= epoch_samples) || !is_steady) return;
    if (card.ok()) (*card)->BusyShare();  // the first epoch is not counted
  };
  *options.request.mutable_spec() = job.spec;
  v1::TrainSpec& train = *options.request.mutable_spec()->mutable_train();
  train.set_precision(form.precision);
  if (workload_.device != "cpu") {
    // A card keeps the rows of a tenth of the ids.
    const uint64_t floats =
        form.write_back
            ? 2 * (workload_.dim + SlotsOf(job.spec.tables(0).optimizer()).Floats(workload_.dim))
            : workload_.dim;
    train.mutable_row_cache()->set_bytes(workload_.data.rows / 10 * floats * sizeof(float));
    train.mutable_row_cache()->set_write_back(form.write_back);
  }
  options.request.set_workers(static_cast<uint32_t>(workload_.workers));
  options.request.set_ps(workload_.ps);
  options.request.set_task(v1::TRAIN);
  const absl::StatusOr<v1::JobStatus> status = local::LocalRun(std::move(options)).Run();
  if (card.ok()) busy->push_back((*card)->BusyShare());
  fs::remove_all(run_folder);
  TESSERA_RETURN_IF_ERROR(status.status());
  if (status->state() != v1::SUCCEEDED) {
    return absl::InternalError(absl::StrCat("the job failed: ", status->message()));
  }
  const uint64_t expected = workload_.epochs * epoch_samples;
  if (status->samples() != expected || !std::isfinite(status->loss()) || rate.rate() <= 0) {
    return absl::InternalError(absl::StrCat("the job trained ", status->samples(),
                                            " samples to the loss ", status->loss(), ", expected ",
                                            expected, " and a finite one"));
  }
  rates->push_back(rate.rate());
  std::fprintf(
      stderr, "train: %s%s %s%s: %.0f samples/s\n", workload_.model.c_str(),
      form.precision == v1::TrainSpec::FLOAT32 ? "" : (" " + PrecisionName(form.precision)).c_str(),
      form.in_process ? "in-process" : "service",
      form.write_back            ? ", rows trained on the card"
      : form.ps_page_cache       ? ", rows on disk and in the page cache"
      : form.ps_memory_bytes > 0 ? ", rows on disk"
                                 : "",
      rates->back());
  return absl::OkStatus();
}

TrainBench::Limit TrainBench::BestOf(const TorchRates& torch, benchmark::State& state) const {
  if (!torch.installed) {
    std::fprintf(stderr,
                 "train: no PyTorch beside it: %s is missing or has no torch (see --python)\n",
                 python_.c_str());
    state.SetLabel("no PyTorch beside it");
    return {};
  }
  double limit = 0;
  std::string threads;
  for (const auto& [of, rates] : torch.by_threads) {
    const double median = Median(rates);
    if (median <= limit) continue;
    limit = median;
    threads = of;
  }
  const bool on_card = workload_.device != "cpu";
  return {limit, absl::StrCat("PyTorch ", torch.version, ", ",
                              on_card ? "on the card" : threads + " threads")};
}

absl::Status TrainBench::Torch(v1::TrainSpec::Precision precision, TorchRates* rates) const {
  if (!rates->installed) return absl::OkStatus();
  constexpr int kNotInstalled = 3;
  constexpr absl::Duration kLimit = absl::Minutes(5);
  const Workload& w = workload_;
  const std::string out = folder_ + "/torch.json", log = folder_ + "/torch.log";
  std::vector<std::string> command = {python_,       SourcePath("tests/bench/train_torch.py"),
                                      "--model",     w.model,
                                      "--precision", PrecisionName(precision),
                                      "--device",    w.device,
                                      "--raw",       folder_ + "/train.raw",
                                      "--bottom",    absl::StrJoin(w.bottom, ","),
                                      "--hidden",    absl::StrJoin(w.hidden, ","),
                                      "--out",       out};
  const std::pair<const char*, uint64_t> numbers[] = {{"--samples", w.data.samples},
                                                      {"--dense", w.data.dense},
                                                      {"--fields", w.data.fields},
                                                      {"--rows", w.data.rows},
                                                      {"--dim", w.dim},
                                                      {"--batch", w.batch},
                                                      {"--steps", w.torch_steps},
                                                      {"--warm", w.torch_steps / 4}};
  for (const auto& [name, number] : numbers) {
    command.insert(command.end(), {name, absl::StrCat(number)});
  }
  absl::StatusOr<local::ChildProcess> process = local::ChildProcess::Start(command, log);
  if (absl::IsNotFound(process.status())) {
    rates->installed = false;
    return absl::OkStatus();
  }
  TESSERA_RETURN_IF_ERROR(process.status());
  const absl::Time give_up = absl::Now() + kLimit;
  std::optional<local::Death> death;
  while (!(death = process->Poll()).has_value()) {
    if (absl::Now() > give_up) return absl::DeadlineExceededError("PyTorch does not end");
    absl::SleepFor(absl::Milliseconds(20));
  }
  if (death->signal == 0 && death->code == kNotInstalled) {
    rates->installed = false;
    return absl::OkStatus();
  }
  if (death->signal != 0 || death->code != 0) {
    return absl::InternalError(absl::StrCat("train_torch.py ", death->ToString(),
                                            "; it ends with: ", local::Tail(log, 0, 3)));
  }
  const auto json = nlohmann::json::parse(std::ifstream(out), nullptr, false);
  if (!json.is_object()) return absl::InternalError("train_torch.py wrote no JSON");
  rates->version = json.at("version").get<std::string>();
  for (const auto& [threads, rate] : json.at("rates").items()) {
    rates->by_threads[threads].push_back(rate.get<double>());
    std::fprintf(stderr, "train: %s PyTorch, %s: %.0f samples/s\n", w.model.c_str(),
                 threads.c_str(), rate.get<double>());
  }
  return absl::OkStatus();
}

}  // namespace tessera::bench
