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

// Turns the text of one record into a row. Keeps scratch memory, so each thread needs its own.
class RecordParser {
 public:
  virtual ~RecordParser() = default;
  // Appends a row to `out`, which was made by ClearBatch for the schema's columns. On an error
  // nothing is appended. The message then names the column, what was found and what was expected;
  // the caller adds file and line.
  virtual absl::Status Parse(absl::string_view text, Batch* out) = 0;
};

// For CSV and TSV. `fields`: for each field of a record its index in schema.columns, or -1.
// `schema` is borrowed and outlives the parser. INVALID_ARGUMENT: a default_value does not parse.
absl::StatusOr<std::unique_ptr<RecordParser>> NewDelimitedParser(const Schema& schema,
                                                                 std::vector<int> fields);

// For LIBSVM. An index that a record does not name is 0 (or its column's default_value) in a DENSE
// column, and no key in a SPARSE column.
absl::StatusOr<std::unique_ptr<RecordParser>> NewLibsvmParser(const Schema& schema);

// For parsers: ends a row. The keys that each sparse column has behind its last offset are the
// row's; a column with max_ids keeps the last so many of them. Does not change batch->size.
void EndRow(const Schema& schema, Batch* batch);

// The fields of a header line.
absl::StatusOr<std::vector<std::string>> SplitHeader(v1::DataFormat format, absl::string_view text);

}  // namespace tessera::worker
