#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/job/tasks.h"
#include "tessera/v1/job.pb.h"

namespace tessera::worker {

// The largest key of an INT64 column, whose keys are the numbers themselves. (STRING columns use
// all 64 bits.)
inline constexpr uint64_t kMaxIntegerKey = (uint64_t{1} << 63) - 1;

// The values that a label may have.
struct LabelForm {
  LabelKind kind = LabelKind::kBinary;
  uint32_t classes = 0;  // kClass: the number of classes
};

// A column of the spec, resolved.
struct Column {
  std::string name;
  v1::ColumnRole role = v1::COLUMN_ROLE_UNSPECIFIED;
  // DENSE: its first element in a row of Batch::dense, and how many it has (LIBSVM: one per index).
  uint32_t dense_offset = 0;
  uint32_t dense_width = 0;
  // LABEL: its place in a row of Batch::labels, and what its values may be. If set, an empty field
  // and one of this text or number have no label, which is NaN.
  uint32_t label_index = 0;
  LabelForm label;
  std::optional<std::string> missing_value;
  // SPARSE: its place in Batch::sparse.
  uint32_t sparse_index = 0;
  bool string_keys = false;
  uint64_t key_space_hash = 0;              // STRING
  char separator = 0;                       // between the ids of a field; 0: a field has one id
  uint32_t max_ids = 0;                     // only the last so many ids of a record count; 0: all
  std::optional<std::string> padding_text;  // ids of this text are left out,
  std::optional<uint64_t> padding_key;      // and of numbers those with this key
  bool log1p = false;
  // The text that stands for an empty field; if not set, see ColumnSpec::default_value.
  std::optional<std::string> default_text;
  bool qid = false;  // LIBSVM: the id is that of qid:N
  // LIBSVM: indices [index_begin, index_end).
  uint64_t index_begin = 0;
  uint64_t index_end = 0;
};

// What a v1::DataSpec says about a record, checked and ready for parsers. Immutable.
struct Schema {
  v1::DataFormat format = v1::DATA_FORMAT_UNSPECIFIED;
  bool header = false;
  std::vector<Column> columns;  // all, in the spec's order
  uint32_t label_width = 1;     // floats in a row of Batch::labels
  LabelForm first_label;        // for LIBSVM, where the spec need not name the LABEL column
  bool has_weight = false;      // Batch::weights is filled
  // LABEL and WEIGHT columns may be missing in a header, and their fields may be empty: labels are
  // NaN then, and weights 1.
  bool labels_optional = false;
  uint32_t dense_width = 0;      // floats in a row of Batch::dense
  std::vector<uint32_t> dense;   // indices in columns, in the order of Batch::dense
  std::vector<uint32_t> sparse;  // indices in columns, in the order of Batch::sparse

  // `labels`: allowed values of the LABEL columns, in order; columns that are left out take 0 or 1.
  // INVALID_ARGUMENT names the column and what is wrong.
  static absl::StatusOr<Schema> Resolve(const v1::DataSpec& spec,
                                        absl::Span<const LabelForm> labels = {});

  bool MayLack(const Column& column) const {
    const bool is_label = column.role == v1::LABEL || column.role == v1::WEIGHT;
    return column.role == v1::IGNORED || (labels_optional && is_label);
  }

  // For each field of a header line the index in `columns`, or -1 if the spec does not name it.
  // INVALID_ARGUMENT: a column is missing (the message has the nearest name there is), or is there
  // twice.
  absl::StatusOr<std::vector<int>> MatchHeader(const std::vector<std::string>& names) const;
};

}  // namespace tessera::worker
