#include "common/config/yaml_scalar.h"

#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/suggest.h"

namespace tessera::yaml {
namespace {

std::string Shown(const Scalar& scalar) {
  constexpr size_t kShown = 60;
  std::string text = scalar.text.substr(0, kShown);
  if (scalar.text.size() > kShown) text += "...";
  return absl::StrCat(scalar.quoted ? "the text '" : "'", text, "'");
}

absl::Status Expected(absl::string_view what, const Scalar& scalar, absl::string_view hint) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", what, ", found ", Shown(scalar),
                                                 scalar.quoted ? "; leave out the quotes" : hint));
}

// A hint for numbers such as "1e6" and "3.0", which are whole but not written so.
std::string WholeNumberHint(const Scalar& scalar, double smallest, double largest) {
  double value = 0;
  if (!absl::SimpleAtod(scalar.text, &value) || std::abs(value) > 1e15) return "";
  if (value != std::floor(value) || value < smallest || value > largest) return "";
  return absl::StrCat("; write ", absl::StrCat(static_cast<int64_t>(value)));
}

// absl accepts leading spaces, which YAML numbers do not have.
bool IsPlain(const Scalar& scalar) {
  return !scalar.quoted && !scalar.text.empty() &&
         !absl::ascii_isspace(static_cast<unsigned char>(scalar.text[0]));
}

}  // namespace

absl::StatusOr<uint64_t> ToUnsigned(const Scalar& scalar, uint64_t largest) {
  uint64_t value = 0;
  if (IsPlain(scalar) && absl::SimpleAtoi(scalar.text, &value) && value <= largest) return value;
  return Expected(absl::StrCat("a whole number, 0 .. ", largest), scalar,
                  WholeNumberHint(scalar, 0, static_cast<double>(largest)));
}

absl::StatusOr<int64_t> ToSigned(const Scalar& scalar, int64_t smallest, int64_t largest) {
  int64_t value = 0;
  if (IsPlain(scalar) && absl::SimpleAtoi(scalar.text, &value) && value >= smallest &&
      value <= largest) {
    return value;
  }
  return Expected(
      absl::StrCat("a whole number, ", smallest, " .. ", largest), scalar,
      WholeNumberHint(scalar, static_cast<double>(smallest), static_cast<double>(largest)));
}

absl::StatusOr<double> ToReal(const Scalar& scalar, bool single) {
  double value = 0;
  if (IsPlain(scalar) && absl::SimpleAtod(scalar.text, &value) && std::isfinite(value) &&
      (!single || std::abs(value) <= std::numeric_limits<float>::max())) {
    return value;
  }
  return Expected("a finite number", scalar, "");
}

absl::StatusOr<bool> ToBool(const Scalar& scalar) {
  if (!scalar.quoted && scalar.text == "true") return true;
  if (!scalar.quoted && scalar.text == "false") return false;
  return Expected("true or false", scalar, "");
}

std::vector<std::string> EnumNames(const google::protobuf::EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) names.push_back(absl::AsciiStrToLower(type.value(i)->name()));
  }
  return names;
}

absl::StatusOr<int> ToEnum(const Scalar& scalar, const google::protobuf::EnumDescriptor& type) {
  for (int i = 0; i < type.value_count(); ++i) {
    const auto& value = *type.value(i);
    if (value.number() != 0 && absl::AsciiStrToLower(value.name()) == scalar.text) {
      return value.number();
    }
  }
  const std::vector<std::string> names = EnumNames(type);
  std::string known;
  for (const std::string& name : names) absl::StrAppend(&known, known.empty() ? "" : ", ", name);
  const std::string nearest = NearestName(scalar.text, names);
  return absl::InvalidArgumentError(
      absl::StrCat("expected one of ", known, ", found '", scalar.text.substr(0, 60), "'",
                   nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?")));
}

google::protobuf::Value ToValue(const Scalar& scalar) {
  google::protobuf::Value value;
  double number = 0;
  if (scalar.quoted) {
    value.set_string_value(scalar.text);
  } else if (scalar.text == "true" || scalar.text == "false") {
    value.set_bool_value(scalar.text == "true");
  } else if (scalar.text.empty() || scalar.text == "~" || scalar.text == "null") {
    value.set_null_value(google::protobuf::NULL_VALUE);
  } else if (IsPlain(scalar) && absl::SimpleAtod(scalar.text, &number) && std::isfinite(number)) {
    value.set_number_value(number);
  } else {
    value.set_string_value(scalar.text);
  }
  return value;
}

}  // namespace tessera::yaml
