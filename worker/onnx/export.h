#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/v1/job.pb.h"
#include "worker/dense/model.h"
#include "worker/onnx/onnx_proto.h"

namespace tessera::worker {

// The rows of a table that go into the file.
struct InlineTable {
  std::vector<uint64_t> keys;
  std::vector<float> rows;  // [keys, dim]
};

// Writes the model with these parameters as an ONNX file for prediction: running statistics, no
// dropout.
//
// Inputs that the model reads, in the order of the spec:
//   a dense column      COLUMN, float [batch, width], as the data has it
//   a sparse column     COLUMN, int64 [batch, ids], ids -1 is no id; ids is 1 where a field holds
//                       one id. LIBSVM: besides COLUMN.weights, float [batch, ids]
//   a table that is not in `tables`: for each of its columns COLUMN.TABLE, float [batch, dim], its
//                       pooled rows
//   a sequence          COLUMN, int64 [batch, max_length], its last max_length ids and then -1;
//                       where its table is not in `tables` COLUMN.TABLE, float [batch, max_length,
//                       dim], rows and then zeros, and COLUMN.length, float [batch, 1]
// A key is the id itself, or a string's 64-bit hash, as a signed number. A key without a row gets
// the mean of the table's initializer (exact if the initializer is a constant).
//
// Outputs: "prediction" [batch, 1]; if labels are 0 and 1 also "logit" [batch, 1]; for a loss of
// classes also "probability" and "logit" [batch, classes], and the prediction is the class. Several
// tasks: "prediction/TASK" and so on. If a column has that name, a number follows it.
//
// UNIMPLEMENTED names what ONNX cannot express; RESOURCE_EXHAUSTED: above 2 GB, protobuf's limit.
absl::StatusOr<onnx::ModelProto> ExportModel(
    const v1::JobSpec& spec, const Model& model, absl::Span<const float> trained,
    absl::Span<const float> statistics,
    const std::map<std::string, InlineTable>& tables);  // by name

// A number of a row as workers see it: rounded if row_type or wire_type round it.
float ServedValue(const v1::TableSpec& table, float value);

// The value of a key without a row in the exported file: the mean of the table's initializer, as
// workers see it.
float UnseenValue(const v1::TableSpec& table);

}  // namespace tessera::worker
