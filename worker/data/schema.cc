#include "worker/data/schema.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/job/defaults.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/suggest.h"
#include "worker/data/field.h"

namespace tessera::worker {
namespace {

constexpr uint64_t kMaxDenseWidth = 1 << 16;

absl::Status Wrong(const v1::ColumnSpec& column, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("column \"", column.name(), "\": ", what));
}

absl::Status CheckType(const v1::ColumnSpec& spec) {
  const v1::ValueType type = spec.type();
  const bool number = type == v1::VALUE_TYPE_UNSPECIFIED || type == v1::FLOAT;
  if (spec.role() == v1::SPARSE && type == v1::FLOAT) {
    return Wrong(spec, "type is FLOAT, expected INT64 or STRING for a SPARSE column");
  }
  const bool numeric =
      spec.role() == v1::LABEL || spec.role() == v1::DENSE || spec.role() == v1::WEIGHT;
  if (numeric && !number && type != v1::INT64) {
    return Wrong(spec, absl::StrCat("type is ", v1::ValueType_Name(type), ", expected FLOAT for a ",
                                    v1::ColumnRole_Name(spec.role()), " column"));
  }
  return absl::OkStatus();
}

// Of a LIBSVM column.
absl::Status CheckWords(const v1::ColumnSpec& spec) {
  if (spec.type() == v1::STRING || !spec.separator().empty() ||
      (spec.role() == v1::SPARSE && spec.has_default_value())) {
    return Wrong(spec,
                 "STRING, separator and default_value of SPARSE columns mean nothing in LIBSVM");
  }
  return absl::OkStatus();
}

absl::Status ResolveIndices(const v1::ColumnSpec& spec, Column* column) {
  column->qid = spec.qid();
  if (spec.qid() && spec.index_end() > 0) {
    return Wrong(spec, "has a range of indices and qid; expected one of them");
  }
  if (spec.qid() && spec.role() == v1::DENSE) {
    return Wrong(spec, "is DENSE and has qid; expected SPARSE or IGNORED");
  }
  if (spec.qid()) return CheckWords(spec);
  if (spec.role() == v1::IGNORED && spec.index_end() == 0) return absl::OkStatus();
  if (spec.index_end() <= spec.index_begin()) {
    return Wrong(spec, absl::StrCat("indices [", spec.index_begin(), ", ", spec.index_end(),
                                    ") are empty; LIBSVM columns need index_begin < index_end"));
  }
  if (spec.index_end() - 1 > kMaxIntegerKey) {
    return Wrong(spec, absl::StrCat("index_end ", spec.index_end(), " is above 2^63"));
  }
  column->index_begin = spec.index_begin();
  column->index_end = spec.index_end();
  return CheckWords(spec);
}

absl::Status CheckIndicesApart(const std::vector<Column>& columns) {
  std::vector<const Column*> sorted;
  for (const Column& column : columns) {
    if (column.index_end > 0) sorted.push_back(&column);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Column* a, const Column* b) { return a->index_begin < b->index_begin; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i]->index_begin < sorted[i - 1]->index_end) {
      return absl::InvalidArgumentError(absl::StrCat("columns \"", sorted[i - 1]->name, "\" and \"",
                                                     sorted[i]->name, "\" both take index ",
                                                     sorted[i]->index_begin));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOneQid(const std::vector<Column>& columns) {
  const Column* first = nullptr;
  for (const Column& column : columns) {
    if (!column.qid) continue;
    if (first != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("columns \"", first->name, "\" and \"", column.name, "\" both have qid"));
    }
    first = &column;
  }
  return absl::OkStatus();
}

absl::Status ResolveSeparator(v1::DataFormat format, const v1::ColumnSpec& spec, Column* column) {
  if (spec.separator().empty()) return absl::OkStatus();
  if (spec.role() != v1::SPARSE) return Wrong(spec, "separator is only for SPARSE columns");
  const char c = spec.separator()[0];
  if (spec.separator().size() != 1 || c == '\n' || c == '\r' || c == '"' || c == '\0') {
    return Wrong(spec, absl::StrCat("separator \"", spec.separator(),
                                    "\" must be one character, not a quote or line break"));
  }
  if (format == v1::TSV && c == '\t') {
    return Wrong(spec, "separator is the tab that parts the fields of a TSV file");
  }
  column->separator = c;
  return absl::OkStatus();
}

absl::Status ResolveMarkers(v1::DataFormat format, const v1::ColumnSpec& spec, Column* column) {
  if (spec.has_missing_value()) {
    if (spec.role() != v1::LABEL) return Wrong(spec, "missing_value is only for LABEL columns");
    if (spec.has_default_value()) {
      return Wrong(spec, "has a default_value and a missing_value; expected one of them");
    }
    if (format == v1::LIBSVM && spec.missing_value().empty()) {
      return Wrong(spec, "missing_value is empty, and LIBSVM has no empty labels");
    }
    column->missing_value = spec.missing_value();
  }
  if (spec.has_padding_id()) {
    if (spec.role() != v1::SPARSE) return Wrong(spec, "padding_id is only for SPARSE columns");
    column->padding_text = spec.padding_id();
    uint64_t key = 0;
    const bool number = ParseIntegerKey(spec.padding_id(), &key) == nullptr;
    if (number && spec.type() != v1::STRING) column->padding_key = key;
  }
  if (spec.qid() && format != v1::LIBSVM) return Wrong(spec, "qid is only for LIBSVM");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Schema> Schema::Resolve(const v1::DataSpec& spec,
                                       absl::Span<const LabelForm> labels) {
  Schema schema;
  if (!labels.empty()) schema.first_label = labels[0];
  uint32_t label_columns = 0;
  schema.format = spec.format();
  schema.header = spec.header();
  const bool libsvm = spec.format() == v1::LIBSVM;
  if (spec.format() != v1::CSV && spec.format() != v1::TSV && !libsvm) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.format is ", v1::DataFormat_Name(spec.format()), ", expected CSV, TSV or LIBSVM"));
  }
  if (libsvm && spec.header()) {
    return absl::InvalidArgumentError("data.header is set, but LIBSVM files have none");
  }
  absl::flat_hash_set<std::string> names;
  for (const v1::ColumnSpec& in : spec.columns()) {
    Column out;
    out.name = in.name();
    out.role = in.role();
    if (in.name().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.columns[", schema.columns.size(), "] has no name"));
    }
    if (!names.insert(in.name()).second) return Wrong(in, "stands twice in data.columns");
    if (in.role() == v1::COLUMN_ROLE_UNSPECIFIED || !v1::ColumnRole_IsValid(in.role())) {
      return Wrong(in, "has no role; expected LABEL, DENSE, SPARSE, WEIGHT or IGNORED");
    }
    TESSERA_RETURN_IF_ERROR(CheckType(in));
    if (in.transform() == v1::LOG1P && in.role() != v1::DENSE) {
      return Wrong(in, "transform LOG1P is only for DENSE columns");
    }
    if (libsvm && in.role() != v1::LABEL) TESSERA_RETURN_IF_ERROR(ResolveIndices(in, &out));
    TESSERA_RETURN_IF_ERROR(ResolveSeparator(spec.format(), in, &out));
    TESSERA_RETURN_IF_ERROR(ResolveMarkers(spec.format(), in, &out));
    out.log1p = in.transform() == v1::LOG1P;
    if (in.has_default_value()) out.default_text = in.default_value();
    const uint32_t index = static_cast<uint32_t>(schema.columns.size());
    if (in.role() == v1::LABEL) {
      if (libsvm && label_columns > 0) {
        return Wrong(in, "is a second LABEL; LIBSVM files have one");
      }
      out.label_index = label_columns++;
      if (out.label_index < labels.size()) out.label = labels[out.label_index];
    } else if (in.role() == v1::WEIGHT) {
      if (libsvm || schema.has_weight) {
        return Wrong(in, libsvm ? "is a WEIGHT, for which LIBSVM has no place"
                                : "is a second WEIGHT; expected one");
      }
      schema.has_weight = true;
    } else if (in.role() == v1::DENSE) {
      const uint64_t width = libsvm ? out.index_end - out.index_begin : 1;
      if (width > kMaxDenseWidth || schema.dense_width + width > kMaxDenseWidth) {
        return Wrong(in, absl::StrCat("makes a record wider than ", kMaxDenseWidth,
                                      " dense values; use a SPARSE column for many indices"));
      }
      out.dense_offset = schema.dense_width;
      out.dense_width = static_cast<uint32_t>(width);
      schema.dense_width += out.dense_width;
      schema.dense.push_back(index);
    } else if (in.role() == v1::SPARSE) {
      out.sparse_index = static_cast<uint32_t>(schema.sparse.size());
      out.string_keys = in.type() == v1::STRING;
      if (in.pooling() == v1::SEQUENCE) out.max_ids = in.max_length();
      out.key_space_hash = NameHash(KeySpaceOf(in));
      schema.sparse.push_back(index);
    }
    schema.columns.push_back(std::move(out));
  }
  if (label_columns == 0 && !libsvm) {
    return absl::InvalidArgumentError("data.columns has no column of role LABEL; expected one");
  }
  schema.label_width = std::max(label_columns, 1u);
  TESSERA_RETURN_IF_ERROR(CheckIndicesApart(schema.columns));
  TESSERA_RETURN_IF_ERROR(CheckOneQid(schema.columns));
  return schema;
}

absl::StatusOr<std::vector<int>> Schema::MatchHeader(const std::vector<std::string>& names) const {
  std::vector<int> fields(names.size(), -1);
  for (size_t c = 0; c < columns.size(); ++c) {
    const auto it = std::find(names.begin(), names.end(), columns[c].name);
    if (it == names.end()) {
      if (MayLack(columns[c])) continue;
      std::vector<std::string> shown;  // quoted: messages must be UTF-8, and the file may not be
      for (const std::string& name : names) shown.push_back(absl::CHexEscape(name.substr(0, 64)));
      return absl::InvalidArgumentError(absl::StrCat("the header has no column \"", columns[c].name,
                                                     "\"; ", SuggestName(columns[c].name, shown)));
    }
    if (std::find(it + 1, names.end(), columns[c].name) != names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the header names column \"", columns[c].name, "\" twice"));
    }
    fields[static_cast<size_t>(it - names.begin())] = static_cast<int>(c);
  }
  return fields;
}

}  // namespace tessera::worker
