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

// Keys are at most this: the number itself for INT64 columns. (STRING columns take all 64 bits.)
inline constexpr uint64_t kMaxIntegerKey = (uint64_t{1} << 63) - 1;

// The values that a label may have.
struct LabelForm {
  LabelKind kind = LabelKind::kBinary;
  uint32_t classes = 0;  // kClass: how many there are
};

// A column of the spec, resolved.
struct Column {
  std::string name;
  v1::ColumnRole role = v1::COLUMN_ROLE_UNSPECIFIED;
  // DENSE: its first element in a row of Batch::dense, and how many it has (LIBSVM: one per index).
  uint32_t dense_offset = 0;
  uint32_t dense_width = 0;
  // LABEL: its place in a row of Batch::labels, and what its values may be.
  uint32_t label_index = 0;
  LabelForm label;
  // SPARSE: its place in Batch::sparse.
  uint32_t sparse_index = 0;
  bool string_keys = false;
  uint64_t key_space_hash = 0;  // STRING
  char separator = 0;           // 0: one id a field
  uint32_t max_ids = 0;         // the last so many of a record's count; 0: all
  bool log1p = false;
  // What stands for an empty field; nothing: see ColumnSpec::default_value.
  std::optional<std::string> default_text;
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
  LabelForm first_label;        // of LIBSVM, where the spec need not name the column
  bool has_weight = false;      // Batch::weights is filled
  // LABEL and WEIGHT columns may lack in a header, and their fields be empty: NaN, and a weight
  // of 1.
  bool labels_optional = false;
  uint32_t dense_width = 0;      // floats in a row of Batch::dense
  std::vector<uint32_t> dense;   // indices in columns, in the order of Batch::dense
  std::vector<uint32_t> sparse;  // indices in columns, in the order of Batch::sparse

  // INVALID_ARGUMENT names the column and what is wrong. `labels`: of the LABEL columns in order;
  // those that it leaves out are 0 or 1.
  static absl::StatusOr<Schema> Resolve(const v1::DataSpec& spec,
                                        absl::Span<const LabelForm> labels = {});

  bool MayLack(const Column& column) const {
    const bool is_label = column.role == v1::LABEL || column.role == v1::WEIGHT;
    return column.role == v1::IGNORED || (labels_optional && is_label);
  }

  // For each field of a header line the index in `columns`, or -1 for fields that the spec does not
  // name. INVALID_ARGUMENT: a column is missing (with the nearest name that is there) or doubled.
  absl::StatusOr<std::vector<int>> MatchHeader(const std::vector<std::string>& names) const;
};

}  // namespace tessera::worker
