#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/yaml_job.h"
#include "tessera/v1/work.pb.h"

namespace tessera::local {

struct CheckOptions {
  // Set: the data files must be there, and their first records are read; estimates are by what they
  // show. A model of a file needs it.
  std::optional<std::string> data_root;
  // False: of what lies there only the model's file is read.
  bool read_data = true;
  // Whether so many may train the job is checked, and the estimate of memory is for them.
  uint32_t ps = 1;
  uint32_t workers = 1;
  uint64_t keys = 1000000;  // different ids over all columns
};

struct MemoryEstimate {
  uint64_t ps_bytes = 0;      // each
  uint64_t worker_bytes = 0;  // each
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
  MemoryEstimate memory;
  // With data_root: what the patterns of each split match.
  struct Split {
    std::string name;
    std::vector<std::string> files;
  };
  std::vector<Split> splits;
  // What is allowed and hardly meant.
  std::vector<std::string> warnings;
};

// Everything about a job that can be known without running it: its fields, its graph, its files,
// the memory it will need. Errors name file and line where a field is at fault.
absl::StatusOr<CheckReport> CheckJob(const LoadedJob& job, const CheckOptions& options);

}  // namespace tessera::local
