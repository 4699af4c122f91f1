#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/batch.h"
#include "worker/data/schema.h"

namespace tessera::worker {

// Turns the text of one record into a row. Keeps scratch memory: one per thread.
class RecordParser {
 public:
  virtual ~RecordParser() = default;
  // Appends a row to `out`, which was made by ClearBatch for the schema's columns. On an error
  // nothing is appended, and the message names the column, what was found and what was expected,
  // but not the file and line: the caller knows them.
  virtual absl::Status Parse(absl::string_view text, Batch* out) = 0;
};

// CSV and TSV. `fields` says for each field of a record its index in schema.columns, or -1.
// `schema` is borrowed and outlives the parser. INVALID_ARGUMENT: a default_value does not parse.
absl::StatusOr<std::unique_ptr<RecordParser>> NewDelimitedParser(const Schema& schema,
                                                                 std::vector<int> fields);

// LIBSVM. An index that a record does not name is 0 (or its column's default_value) in a DENSE
// column, and no key in a SPARSE one.
absl::StatusOr<std::unique_ptr<RecordParser>> NewLibsvmParser(const Schema& schema);

// For parsers: what every sparse column has behind its last offset is the row's; of columns with
// max_ids the last so many. Does not count the row.
void EndRow(const Schema& schema, Batch* batch);

// The fields of a header line.
absl::StatusOr<std::vector<std::string>> SplitHeader(v1::DataFormat format, absl::string_view text);

}  // namespace tessera::worker
