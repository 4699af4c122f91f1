#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "worker/data/field.h"
#include "worker/data/record_parser.h"

namespace tessera::worker {
namespace {

absl::Status Wrong(absl::string_view token, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(Quoted(token), " ", what));
}

constexpr char kQid[] = "qid:";

// "label qid:N index:value index:value ... # comment"; indices in any order, qid:N only if a column
// has it.
class LibsvmParser final : public RecordParser {
 public:
  explicit LibsvmParser(const Schema& schema) : schema_(schema), seen_(schema.dense_width, 0) {
    for (const Column& column : schema.columns) {
      if (column.index_end > 0) columns_.push_back(&column);
      if (column.qid) qid_ = &column;
      if (column.role == v1::LABEL) missing_value_ = column.missing_value;
    }
    std::sort(columns_.begin(), columns_.end(),
              [](const Column* a, const Column* b) { return a->index_begin < b->index_begin; });
  }

  absl::Status SetAbsentValues() {
    absent_.assign(schema_.dense_width, 0.0f);
    for (const uint32_t c : schema_.dense) {
      const Column& column = schema_.columns[c];
      if (!column.default_text.has_value() || column.default_text->empty()) continue;
      float value = 0;
      if (const char* wrong = ParseNumber(*column.default_text, &value)) {
        return absl::InvalidArgumentError(absl::StrCat("default_value: column \"", column.name,
                                                       "\": ", Quoted(*column.default_text), " ",
                                                       wrong));
      }
      if (column.log1p) value = SignedLog1p(value);
      std::fill_n(absent_.begin() + column.dense_offset, column.dense_width, value);
    }
    return absl::OkStatus();
  }

  absl::Status Parse(absl::string_view text, Batch* out) override {
    const size_t row = out->dense.size();
    out->dense.insert(out->dense.end(), absent_.begin(), absent_.end());
    float label = 0;
    if (absl::Status status = TakeTokens(text, out, &label); !status.ok()) {
      out->dense.resize(row);
      for (SparseColumn& column : out->sparse) {
        column.keys.resize(column.offsets.back());
        column.weights.resize(column.offsets.back());
      }
      return status;
    }
    out->labels.push_back(label);
    EndRow(schema_, out);
    ++out->size;
    return absl::OkStatus();
  }

 private:
  absl::Status TakeTokens(absl::string_view text, Batch* out, float* label) {
    if (std::memchr(text.data(), 0, text.size()) != nullptr) {
      return absl::InvalidArgumentError("found a zero byte, expected text");
    }
    text = text.substr(0, text.find('#'));
    absl::string_view token = NextToken(&text);
    const LabelForm& form = schema_.first_label;
    if (missing_value_.has_value() && IsMissingLabel(token, *missing_value_)) {
      *label = std::numeric_limits<float>::quiet_NaN();
    } else if (const char* wrong = ParseLabelOf(form, token, /*minus_one=*/true, label)) {
      return absl::InvalidArgumentError(
          absl::StrCat("label: ", Quoted(token), " ", wrong, ClassRange(form),
                       form.kind == LabelKind::kBinary ? " (-1 also stands for 0)" : ""));
    }
    if (++record_ == 0) {  // the number has wrapped: clear what older records left in seen_
      std::fill(seen_.begin(), seen_.end(), 0);
      record_ = 1;
    }
    token = NextToken(&text);
    if (qid_ != nullptr) {
      TESSERA_RETURN_IF_ERROR(TakeQid(token, out));
      token = NextToken(&text);
    }
    for (; !token.empty(); token = NextToken(&text)) {
      TESSERA_RETURN_IF_ERROR(TakePair(token, out));
    }
    return absl::OkStatus();
  }

  static absl::string_view NextToken(absl::string_view* text) {
    const size_t begin = text->find_first_not_of(" \t");
    if (begin == absl::string_view::npos) return {};
    text->remove_prefix(begin);
    const size_t length = std::min(text->find_first_of(" \t"), text->size());
    const absl::string_view token = text->substr(0, length);
    text->remove_prefix(length);
    return token;
  }

  absl::Status TakeQid(absl::string_view token, Batch* out) {
    if (!absl::ConsumePrefix(&token, kQid)) {
      return absl::InvalidArgumentError(
          absl::StrCat("column \"", qid_->name, "\": ", token.empty() ? "nothing" : Quoted(token),
                       " stands behind the label; expected qid:N, as the column has qid"));
    }
    uint64_t id = 0;
    if (const char* wrong = ParseIntegerKey(token, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("column \"", qid_->name, "\": ", Quoted(token), " behind qid: ", wrong));
    }
    if (qid_->role == v1::SPARSE) AddId(*qid_, id, 1, out);
    return absl::OkStatus();
  }

  static void AddId(const Column& column, uint64_t id, float weight, Batch* out) {
    if (column.padding_key == id) return;
    out->sparse[column.sparse_index].keys.push_back(id);
    out->sparse[column.sparse_index].weights.push_back(weight);
  }

  absl::Status TakePair(absl::string_view token, Batch* out) {
    if (absl::StartsWith(token, kQid)) {
      return Wrong(token, qid_ != nullptr
                              ? "is not right behind the label; expected one qid:N, there"
                              : "is an id of no column; expected index:value (to take it, add a "
                                "column of role sparse with qid: true, and with role ignored to "
                                "leave it out)");
    }
    const size_t colon = token.find(':');
    if (colon == absl::string_view::npos) return Wrong(token, "has no ':'; expected index:value");
    uint64_t index = 0;
    if (const char* wrong = ParseIntegerKey(token.substr(0, colon), &index)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(token), ": index ", Quoted(token.substr(0, colon)), " ", wrong));
    }
    float value = 0;
    const char* wrong = ParseNumber(token.substr(colon + 1), &value);
    const Column* column = Find(index);
    if (column == nullptr) {
      return Wrong(token,
                   "has an index of no column; expected one in some [index_begin, index_end) (an "
                   "IGNORED column leaves indices out)");
    }
    if (wrong != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("column \"", column->name, "\": ", Quoted(token), ": the value ", wrong));
    }
    if (column->role == v1::SPARSE) {
      AddId(*column, index, value, out);
    } else if (column->role == v1::DENSE) {
      const size_t at = column->dense_offset + static_cast<size_t>(index - column->index_begin);
      if (seen_[at] == record_) return Wrong(token, "gives this index a second value");
      seen_[at] = record_;
      out->dense[out->dense.size() - schema_.dense_width + at] =
          column->log1p ? SignedLog1p(value) : value;
    }
    return absl::OkStatus();
  }

  const Column* Find(uint64_t index) const {
    auto it = std::upper_bound(
        columns_.begin(), columns_.end(), index,
        [](uint64_t wanted, const Column* column) { return wanted < column->index_begin; });
    if (it == columns_.begin() || index >= (*--it)->index_end) return nullptr;
    return *it;
  }

  const Schema& schema_;
  std::vector<const Column*> columns_;        // by index_begin
  const Column* qid_ = nullptr;               // null: no column has qid
  std::optional<std::string> missing_value_;  // of the label
  std::vector<float> absent_;                 // [dense_width]
  std::vector<uint32_t> seen_;  // [dense_width] the last record_ that set this element
  uint32_t record_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RecordParser>> NewLibsvmParser(const Schema& schema) {
  auto parser = std::make_unique<LibsvmParser>(schema);
  TESSERA_RETURN_IF_ERROR(parser->SetAbsentValues());
  return parser;
}

}  // namespace tessera::worker
