#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/yaml_job.h"
#include "tessera/v1/work.pb.h"
#include "worker/dense/graph.h"
#include "worker/dense/options.h"

namespace tessera::local {

struct CheckOptions {
  // Set: the data files must exist, and their first records are read for the estimates. A model in
  // a file needs it.
  std::optional<std::string> data_root;
  // False: only the model's file is read below data_root.
  bool read_data = true;
  // Checks whether so many may train the job, and estimates memory for them.
  uint32_t ps = 1;
  uint32_t workers = 1;
  uint64_t keys = 1000000;  // different ids in every table
};

struct MemoryEstimate {
  uint64_t ps_bytes = 0;      // of each ps
  uint64_t worker_bytes = 0;  // of each worker, of the machine's memory
  uint64_t card_bytes = 0;  // of its card, without what CUDA itself takes; 0: no card is asked for
  struct Table {
    std::string name;
    uint32_t dim = 0;
    uint32_t slot_floats = 0;
    uint64_t row_bytes = 0;
  };
  std::vector<Table> tables;
  uint64_t dense_floats = 0;
  uint64_t batch_message_bytes = 0;  // rows of a worker's batch, to or from all ps
  uint64_t window_bytes = 0;         // of worker_bytes: records of two shuffle windows
};

struct CheckReport {
  std::string model;  // the graph, for people
  std::vector<worker::Graph::Layer> layers;
  // Of a model of the zoo: those that it has, with the values that are set or the defaults.
  std::vector<worker::OptionValue> options;
  MemoryEstimate memory;
  // With data_root: the files that each split's patterns match.
  struct Split {
    std::string name;
    std::vector<std::string> files;
  };
  std::vector<Split> splits;
  // Settings that are allowed but hardly meant.
  std::vector<std::string> warnings;
};

// Checks all of a job that can be checked without running it: its fields, graph and files, and the
// memory that it will need. An error of a field names file and line.
absl::StatusOr<CheckReport> CheckJob(const LoadedJob& job, const CheckOptions& options);

// Checks the graph of a job that ValidateSubmit accepts, whatever its task and however many run it.
// Returns the warnings that need no data. Not for models in files.
absl::StatusOr<std::vector<std::string>> CheckModel(const LoadedJob& job);

}  // namespace tessera::local
