#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/keep_going.h"

namespace tessera::local {

struct ExportOptions {
  std::string checkpoint;  // the checkpoint's folder
  std::string output;      // the ONNX file to write
  // Tables with more rows are written beside the file.
  uint64_t inline_rows = 100000;
  // The root of model.onnx_file, for a model that came from one.
  std::optional<std::string> data_root;
};

struct ExportReport {
  struct Table {
    std::string name;
    uint64_t rows = 0;
    uint32_t dim = 0;
    std::string file;          // empty: inlined
    float unseen_value = 0;    // the value for a key without a row
    std::string unseen_drawn;  // what the service draws in its place; empty: it gives the same
  };
  uint64_t step = 0;
  std::vector<Table> tables;  // the tables that the model reads, each once
  uint64_t trained_floats = 0;
  std::vector<std::string> inputs;  // "user int64 [batch, 1]"
  std::vector<std::string> outputs;
  std::string file;
};

// Writes the model of a checkpoint as an ONNX file (worker/onnx/export.h describes its inputs and
// outputs), and each table that is too large for it as NAME.TABLE.safetensors beside it. Such a
// file has the tensors "keys", uint64 [rows], and "rows", float32 [rows, dim]; row i is that of key
// i. Each file appears whole or not at all; an error before the first one gets its name leaves the
// files of an earlier export. Memory: the inlined rows, and one partition.
//
// NOT_FOUND: no such checkpoint. DATA_LOSS: the checkpoint is damaged. UNIMPLEMENTED,
// RESOURCE_EXHAUSTED: see ExportModel.
absl::StatusOr<ExportReport> ExportCheckpoint(const ExportOptions& options,
                                              KeepGoing keep_going = absl::OkStatus);

}  // namespace tessera::local
