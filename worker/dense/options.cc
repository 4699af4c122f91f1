#include "worker/dense/options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/suggest.h"

namespace tessera::worker {
namespace {

using google::protobuf::Value;

std::string Describe(const Value& value) {
  switch (value.kind_case()) {
    case Value::kNumberValue:
      return absl::StrCat(value.number_value());
    case Value::kBoolValue:
      return value.bool_value() ? "true" : "false";
    case Value::kStringValue:
      return absl::StrCat("the text \"", value.string_value(), "\"");
    case Value::kListValue: {
      std::vector<std::string> parts;
      for (const Value& v : value.list_value().values()) parts.push_back(Describe(v));
      return absl::StrCat("the list [", absl::StrJoin(parts, ", "), "]");
    }
    case Value::kStructValue:
      return "a group of fields";
    default:
      return "nothing";
  }
}

bool IsWhole(const Value& value, int64_t min, int64_t max) {
  if (value.kind_case() != Value::kNumberValue) return false;
  const double number = value.number_value();
  return number == std::floor(number) && number >= static_cast<double>(min) &&
         number <= static_cast<double>(max);
}

Value NumberValue(double number) {
  Value value;
  value.set_number_value(number);
  return value;
}

Value TextValue(const std::string& text) {
  Value value;
  value.set_string_value(text);
  return value;
}

template <typename Number>
Value ListValue(const std::vector<Number>& numbers) {
  Value value;
  value.mutable_list_value();
  for (const Number number : numbers) {
    *value.mutable_list_value()->add_values() = NumberValue(static_cast<double>(number));
  }
  return value;
}

std::string WholeNumber(int64_t min, int64_t max) {
  return absl::StrCat("a whole number from ", min, " to ", max);
}

}  // namespace

Options&& Options::Set(const std::string& name, double value) && {
  (*fields_.mutable_fields())[name].set_number_value(value);
  return std::move(*this);
}
Options&& Options::Set(const std::string& name, bool value) && {
  (*fields_.mutable_fields())[name].set_bool_value(value);
  return std::move(*this);
}
Options&& Options::Set(const std::string& name, const std::string& value) && {
  (*fields_.mutable_fields())[name].set_string_value(value);
  return std::move(*this);
}
Options&& Options::Set(const std::string& name, const std::vector<int64_t>& values) && {
  auto* list = (*fields_.mutable_fields())[name].mutable_list_value();
  for (const int64_t value : values) {
    list->add_values()->set_number_value(static_cast<double>(value));
  }
  return std::move(*this);
}

bool OptionReader::Has(absl::string_view name) const {
  return fields_.fields().count(std::string(name)) > 0;
}

const Value* OptionReader::Find(const std::string& name, Value by_default) {
  const auto it = fields_.fields().find(name);
  const Value* const found = it == fields_.fields().end() ? nullptr : &it->second;
  const bool is_known = std::any_of(read_.begin(), read_.end(),
                                    [&](const OptionValue& option) { return option.name == name; });
  if (!is_known) {
    read_.push_back({name, found == nullptr ? std::move(by_default) : *found, found != nullptr});
  }
  return found;
}

void OptionReader::Fail(const std::string& name, absl::string_view message) {
  if (!error_.ok()) return;
  error_ = absl::InvalidArgumentError(absl::StrCat(path_, ".", name, ": ", message));
}

void OptionReader::Expected(const std::string& name, absl::string_view expected,
                            const Value& found) {
  Fail(name, absl::StrCat("expected ", expected, ", found ", Describe(found)));
}

bool OptionReader::Bool(const std::string& name, bool by_default) {
  Value otherwise;
  otherwise.set_bool_value(by_default);
  const Value* value = Find(name, std::move(otherwise));
  if (value == nullptr) return by_default;
  if (value->kind_case() != Value::kBoolValue) Expected(name, "true or false", *value);
  return value->bool_value();
}

int64_t OptionReader::Int(const std::string& name, int64_t by_default, int64_t min, int64_t max) {
  const Value* value = Find(name, NumberValue(static_cast<double>(by_default)));
  if (value == nullptr) return by_default;
  if (!IsWhole(*value, min, max)) {
    Expected(name, WholeNumber(min, max), *value);
    return by_default;
  }
  return static_cast<int64_t>(value->number_value());
}

double OptionReader::Number(const std::string& name, double by_default, double min, double max,
                            bool below_max) {
  const Value* value = Find(name, NumberValue(by_default));
  if (value == nullptr) return by_default;
  const double number = value->number_value();
  if (value->kind_case() != Value::kNumberValue || !(number >= min) || !(number <= max) ||
      (below_max && number == max)) {
    Expected(name, absl::StrCat("a number from ", min, below_max ? " to below " : " to ", max),
             *value);
    return by_default;
  }
  return number;
}

std::string OptionReader::Text(const std::string& name, const std::string& by_default) {
  const Value* value = Find(name, TextValue(by_default));
  if (value == nullptr) return by_default;
  if (value->kind_case() != Value::kStringValue || value->string_value().empty()) {
    Expected(name, "a text", *value);
    return by_default;
  }
  return value->string_value();
}

std::string OptionReader::Choice(const std::string& name, const std::string& by_default,
                                 const std::vector<std::string>& allowed) {
  const std::string text = Text(name, by_default);
  if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return text;
  Fail(name, absl::StrCat("unknown value \"", text, "\"", KnownNames(text, allowed)));
  return by_default;
}

std::vector<int64_t> OptionReader::Ints(const std::string& name,
                                        const std::vector<int64_t>& by_default, int64_t min,
                                        int64_t max) {
  const Value* value = Find(name, ListValue(by_default));
  if (value == nullptr) return by_default;
  if (IsWhole(*value, min, max)) return {static_cast<int64_t>(value->number_value())};
  const std::string expected = absl::StrCat("a list, each element ", WholeNumber(min, max));
  if (value->kind_case() != Value::kListValue) {
    Expected(name, expected, *value);
    return by_default;
  }
  std::vector<int64_t> numbers;
  for (const Value& v : value->list_value().values()) {
    if (!IsWhole(v, min, max)) {
      Expected(name, expected, *value);
      return by_default;
    }
    numbers.push_back(static_cast<int64_t>(v.number_value()));
  }
  return numbers;
}

std::vector<double> OptionReader::Numbers(const std::string& name,
                                          const std::vector<double>& by_default) {
  const Value* value = Find(name, ListValue(by_default));
  if (value == nullptr) return by_default;
  const auto finite = [](const Value& v) {
    return v.kind_case() == Value::kNumberValue && std::isfinite(v.number_value());
  };
  if (finite(*value)) return {value->number_value()};
  std::vector<double> numbers;
  for (const Value& v : value->list_value().values()) {
    if (finite(v)) numbers.push_back(v.number_value());
  }
  if (value->kind_case() != Value::kListValue ||
      numbers.size() != static_cast<size_t>(value->list_value().values_size())) {
    Expected(name, "a list of numbers", *value);
    return by_default;
  }
  return numbers;
}

std::vector<std::string> OptionReader::Texts(const std::string& name) {
  const Value* value = Find(name, ListValue<double>({}));
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  if (value->kind_case() == Value::kStringValue) return {value->string_value()};
  for (const Value& element : value->list_value().values()) {
    if (element.kind_case() != Value::kStringValue) break;
    texts.push_back(element.string_value());
  }
  if (value->kind_case() != Value::kListValue || texts.empty() ||
      static_cast<int>(texts.size()) != value->list_value().values_size()) {
    Expected(name, "a text or a list of texts", *value);
  }
  return texts;
}

absl::Status OptionReader::Finish() {
  std::vector<std::string> known;
  for (const OptionValue& option : read_) known.push_back(option.name);
  for (const auto& [name, value] : fields_.fields()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    // An unknown name comes first: it may be the reason why another option is missing.
    error_ = absl::OkStatus();
    Fail(name, known.empty() ? "there are no options here"
                             : absl::StrCat("unknown option", KnownNames(name, known)));
    break;
  }
  return error_;
}

std::string KnownNames(absl::string_view wanted, const std::vector<std::string>& known) {
  if (known.empty()) return "; there are none";
  const std::string nearest = NearestName(wanted, known);
  std::string out = nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?");
  absl::StrAppend(&out, nearest.empty() ? "; known are " : " Known are ",
                  absl::StrJoin(known, ", "));
  return out;
}

}  // namespace tessera::worker
