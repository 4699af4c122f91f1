#pragma once

// Whole jobs beside PyTorch: the same model, batch and samples on the same machine.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tessera/v1/job.pb.h"
#include "tests/bench/bench.h"
#include "tests/bench/train_data.h"

namespace tessera::bench {

struct Bars {
  std::string in_process, service;
};

struct Workload {
  std::string model;
  std::string job;  // YAML; see FillJob
  TrainData data;
  uint32_t dim = 0;
  std::vector<int> bottom, hidden;
  uint32_t batch = 0;
  uint32_t window = 0;       // records
  uint32_t epochs = 0;       // the first is not counted
  uint32_t torch_steps = 0;  // counted ones, of each thread count
  Bars bars;
  int rounds = 3;
  // Of ours: the two cores as so many workers of so many threads each.
  int workers = 2;
  int threads = 1;
  uint32_t ps = 1;
  std::string device = "cpu";
  // Files with the same samples: an epoch has those of all.
  uint32_t copies = 1;
};

// The job as YAML: words in capitals are the workload's numbers and columns.
std::string FillJob(const Workload& workload);

class TrainBench {
 public:
  // `folder` is removed in the end.
  TrainBench(Workload workload, std::string python, std::string folder)
      : workload_(std::move(workload)), python_(std::move(python)), folder_(std::move(folder)) {}
  ~TrainBench();

  // Writes the samples.
  absl::Status Prepare();
  // Another job over the same samples.
  void Use(const Workload& workload) { workload_ = workload; }
  // Each measures and reports.
  absl::Status BesidePyTorch(benchmark::State& state);
  absl::Status Bfloat16BesideFloat32(benchmark::State& state);
  // Of the memory that the rows take; the tier's own filters and indices count against it, too. And
  // of what the rows of all ids would take, of which the samples name a part.
  absl::Status ATenthOfMemory(benchmark::State& state);
  // With TF32, through the service; PyTorch has its tables in the card's memory.
  absl::Status OnACard(const std::string& metric, benchmark::State& state);

 private:
  struct Form {
    bool in_process = false;
    v1::TrainSpec::Precision precision = v1::TrainSpec::FLOAT32;
    uint64_t ps_memory_bytes = 0;  // for rows; 0: as much as they take
    bool ps_page_cache = false;
    bool write_back = false;  // a card trains the rows that it keeps
  };
  struct TorchRates {
    bool installed = true;
    std::string version;
    std::map<std::string, std::vector<double>> by_threads;
  };
  struct Limit {
    double rate = 0;  // 0: there is none
    std::string name;
  };

  // Adds the rate, and how much of the time behind the first epoch a card was busy, if `busy` wants
  // to know and the card's driver says so.
  absl::Status Train(const Form& form, std::vector<double>* rates,
                     std::vector<double>* busy = nullptr) const;
  // Of the thread counts, or of the card.
  Limit BestOf(const TorchRates& torch, benchmark::State& state) const;
  // Adds a rate for each thread count, or for the card, unless PyTorch is not installed.
  absl::Status Torch(v1::TrainSpec::Precision precision, TorchRates* rates) const;

  Workload workload_;
  const std::string python_;
  const std::string folder_;  // of this benchmark alone
  uint64_t rows_ = 0;         // ids that the samples name
};

}  // namespace tessera::bench
