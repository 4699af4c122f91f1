#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/string_key.h"
#include "common/status_macros.h"
#include "worker/data/field.h"
#include "worker/data/record_parser.h"

namespace tessera::worker {
namespace {

// Walks the fields of one record. CSV follows RFC 4180; TSV knows no quotes.
class FieldCursor {
 public:
  FieldCursor(v1::DataFormat format, absl::string_view text, std::string* scratch)
      : separator_(format == v1::TSV ? '\t' : ','),
        position_(text.data()),
        end_(text.data() + text.size()),
        quotes_(format == v1::CSV && text.find('"') != absl::string_view::npos),
        scratch_(scratch) {}

  // Goes to the next field; false after the last. Sets `wrong` if the field's quoting is wrong.
  bool Next(absl::string_view* field, const char** wrong) {
    if (done_) return false;
    if (quotes_ && position_ < end_ && *position_ == '"') {
      *field = TakeQuoted(wrong);
    } else {
      const char* begin = position_;
      while (position_ < end_ && *position_ != separator_) ++position_;
      *field = absl::string_view(begin, static_cast<size_t>(position_ - begin));
    }
    done_ = position_ == end_;
    ++position_;
    return true;
  }

 private:
  const char* FindQuote(const char* from) const {
    return static_cast<const char*>(std::memchr(from, '"', static_cast<size_t>(end_ - from)));
  }

  absl::string_view TakeQuoted(const char** wrong) {
    const char* begin = position_ + 1;
    const char* quote = FindQuote(begin);
    bool doubled = false;
    while (quote != nullptr && quote + 1 < end_ && quote[1] == '"') {
      doubled = true;
      quote = FindQuote(quote + 2);
    }
    if (quote == nullptr) {
      *wrong = "its quote is never closed";
      position_ = end_;
      return {};
    }
    position_ = quote + 1;
    if (position_ < end_ && *position_ != separator_) {
      *wrong = "text follows its closing quote; expected a separator";
      while (position_ < end_ && *position_ != separator_) ++position_;
    }
    const absl::string_view raw(begin, static_cast<size_t>(quote - begin));
    if (!doubled) return raw;
    scratch_->clear();
    for (size_t i = 0; i < raw.size(); ++i) {
      scratch_->push_back(raw[i]);
      if (raw[i] == '"') ++i;
    }
    return *scratch_;
  }

  const char separator_;
  const char* position_;
  const char* const end_;
  const bool quotes_;
  std::string* const scratch_;
  bool done_ = false;
};

absl::Status WrongValue(const Column& column, absl::string_view value, absl::string_view wrong) {
  return absl::InvalidArgumentError(
      absl::StrCat("column \"", column.name, "\": ", Quoted(value), " ", wrong));
}

class DelimitedParser final : public RecordParser {
 public:
  DelimitedParser(const Schema& schema, std::vector<int> fields)
      : schema_(schema), fields_(std::move(fields)) {}

  // Parses the default values now: else a wrong one is found only at the first empty field.
  absl::Status CheckDefaults() {
    Batch batch;
    for (const Column& column : schema_.columns) {
      if (!column.default_text.has_value()) continue;
      ClearBatch(schema_.sparse.size(), &batch);
      AddRow(&batch);
      TESSERA_RETURN_IF_ERROR(
          WithContext(Take(column, *column.default_text, &batch), "default_value"));
    }
    return absl::OkStatus();
  }

  absl::Status Parse(absl::string_view text, Batch* out) override {
    AddRow(out);
    if (absl::Status status = TakeFields(text, out); !status.ok()) {
      out->labels.resize(out->size * schema_.label_width);
      if (schema_.has_weight) out->weights.resize(out->size);
      out->dense.resize(out->size * schema_.dense_width);
      for (SparseColumn& column : out->sparse) column.keys.resize(column.offsets.back());
      return status;
    }
    EndRow(schema_, out);
    ++out->size;
    return absl::OkStatus();
  }

 private:
  // Adds a row of zeros that does not count yet. With labels_optional its labels are NaN and its
  // weight is 1.
  void AddRow(Batch* out) const {
    const bool optional = schema_.labels_optional;
    const float no_label = optional ? std::numeric_limits<float>::quiet_NaN() : 0;
    out->labels.resize((out->size + 1) * schema_.label_width, no_label);
    if (schema_.has_weight) out->weights.resize(out->size + 1, optional ? 1 : 0);
    out->dense.resize((out->size + 1) * schema_.dense_width);
  }

  absl::Status TakeFields(absl::string_view text, Batch* out) {
    if (std::memchr(text.data(), 0, text.size()) != nullptr) {
      return absl::InvalidArgumentError("found a zero byte, expected text");
    }
    FieldCursor cursor(schema_.format, text, &scratch_);
    absl::Status first_wrong;
    absl::string_view value;
    const char* wrong_quotes = nullptr;
    size_t found = 0;
    for (; cursor.Next(&value, &wrong_quotes); ++found) {
      if (!first_wrong.ok() || found >= fields_.size()) continue;
      if (wrong_quotes != nullptr) {
        first_wrong =
            absl::InvalidArgumentError(absl::StrCat("field ", found + 1, ": ", wrong_quotes));
      } else if (fields_[found] >= 0) {
        const Column& column = schema_.columns[static_cast<size_t>(fields_[found])];
        if (absl::Status status = TakeField(column, value, out); !status.ok()) {
          first_wrong = std::move(status);
        }
      }
    }
    // A wrong number of fields explains other errors of the record: say only that.
    // Wrong quotes in a field that counts explain that number, too; in one too many they do not.
    if (found != fields_.size() && (wrong_quotes == nullptr || first_wrong.ok())) {
      return absl::InvalidArgumentError(
          absl::StrCat("found ", found, " columns, expected ", fields_.size()));
    }
    return first_wrong;
  }

  absl::Status TakeField(const Column& column, absl::string_view value, Batch* out) {
    if (column.missing_value.has_value() && IsMissingLabel(value, *column.missing_value)) {
      *LabelOf(column, out) = std::numeric_limits<float>::quiet_NaN();
      return absl::OkStatus();
    }
    if (!value.empty()) return Take(column, value, out);
    if (schema_.MayLack(column)) return absl::OkStatus();
    if (column.default_text.has_value()) return Take(column, *column.default_text, out);
    if (column.role == v1::SPARSE) return absl::OkStatus();
    const bool binary = column.role == v1::LABEL && column.label.kind == LabelKind::kBinary;
    return absl::InvalidArgumentError(absl::StrCat(
        "column \"", column.name, "\": is empty; expected a number", binary ? ", 0 or 1" : "",
        column.role == v1::LABEL
            ? " (where a record may have no label, give the column missing_value: \"\")"
            : " (or give it a default_value)"));
  }

  // In the row that does not count yet.
  float* LabelOf(const Column& column, Batch* out) const {
    return &out->labels[out->size * schema_.label_width + column.label_index];
  }

  absl::Status Take(const Column& column, absl::string_view value, Batch* out) {
    switch (column.role) {
      case v1::LABEL: {
        const char* wrong =
            ParseLabelOf(column.label, value, /*minus_one=*/false, LabelOf(column, out));
        if (wrong == nullptr) return absl::OkStatus();
        return WrongValue(column, value, absl::StrCat(wrong, ClassRange(column.label)));
      }
      case v1::WEIGHT: {
        const char* wrong = ParseWeight(value, &out->weights[out->size]);
        return wrong == nullptr ? absl::OkStatus() : WrongValue(column, value, wrong);
      }
      case v1::DENSE: {
        float number = 0;
        if (const char* wrong = ParseNumber(value, &number)) {
          return WrongValue(column, value, wrong);
        }
        out->dense[out->size * schema_.dense_width + column.dense_offset] =
            column.log1p ? SignedLog1p(number) : number;
        return absl::OkStatus();
      }
      case v1::SPARSE:
        return TakeIds(column, value, &out->sparse[column.sparse_index].keys);
      default:
        return absl::OkStatus();
    }
  }

  absl::Status TakeIds(const Column& column, absl::string_view value, std::vector<uint64_t>* keys) {
    if (column.separator == 0) return TakeId(column, value, keys);
    while (!value.empty()) {
      const size_t length = std::min(value.find(column.separator), value.size());
      if (length > 0) TESSERA_RETURN_IF_ERROR(TakeId(column, value.substr(0, length), keys));
      value.remove_prefix(std::min(length + 1, value.size()));
    }
    return absl::OkStatus();
  }

  absl::Status TakeId(const Column& column, absl::string_view value, std::vector<uint64_t>* keys) {
    if (column.string_keys) {
      if (column.padding_text != value) keys->push_back(StringKey(column.key_space_hash, value));
      return absl::OkStatus();
    }
    uint64_t key = 0;
    if (const char* wrong = ParseIntegerKey(value, &key)) {
      // Padding need not be an id: -1 is none.
      if (column.padding_text.has_value() && IsSameText(value, *column.padding_text)) {
        return absl::OkStatus();
      }
      return WrongValue(column, value, absl::StrCat(wrong, " (or give the column type: string)"));
    }
    if (column.padding_key != key) keys->push_back(key);
    return absl::OkStatus();
  }

  const Schema& schema_;
  const std::vector<int> fields_;
  std::string scratch_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RecordParser>> NewDelimitedParser(const Schema& schema,
                                                                 std::vector<int> fields) {
  auto parser = std::make_unique<DelimitedParser>(schema, std::move(fields));
  TESSERA_RETURN_IF_ERROR(parser->CheckDefaults());
  return parser;
}

absl::StatusOr<std::vector<std::string>> SplitHeader(v1::DataFormat format,
                                                     absl::string_view text) {
  std::vector<std::string> names;
  std::string scratch;
  FieldCursor cursor(format, text, &scratch);
  absl::string_view name;
  const char* wrong = nullptr;
  while (cursor.Next(&name, &wrong)) {
    names.emplace_back(name.data(), name.size());
    if (wrong != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("header field ", names.size(), ": ", wrong));
    }
  }
  return names;
}

}  // namespace tessera::worker
