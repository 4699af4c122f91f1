#include "worker/data/field.h"

#include <charconv>
#include <cmath>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "worker/data/schema.h"

namespace tessera::worker {
namespace {

absl::string_view Trimmed(absl::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

constexpr char kNotNumber[] = "is not a number";

const char* ParseDouble(absl::string_view text, double* value) {
  text = Trimmed(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  if (stop != end) return kNotNumber;
  if (error == std::errc::result_out_of_range) return "is too large or too small for a number";
  return error == std::errc() ? nullptr : kNotNumber;
}

}  // namespace

const char* ParseNumber(absl::string_view text, float* value) {
  double number = 0;
  if (const char* wrong = ParseDouble(text, &number)) return wrong;
  *value = static_cast<float>(number);
  return std::isfinite(*value) ? nullptr : "is not finite; expected a finite number";
}

const char* ParseLabel(absl::string_view text, bool minus_one, float* label) {
  if (text.size() == 1 && (text[0] == '0' || text[0] == '1')) {
    *label = static_cast<float>(text[0] - '0');
    return nullptr;
  }
  double number = 0;
  if (ParseDouble(text, &number) != nullptr) return "is not a number; expected a label, 0 or 1";
  if (minus_one && number == -1) number = 0;
  if (number != 0 && number != 1) return "is not a label; expected 0 or 1";
  *label = static_cast<float>(number);
  return nullptr;
}

const char* ParseLabelOf(const LabelForm& form, absl::string_view text, bool minus_one,
                         float* label) {
  if (form.kind == LabelKind::kBinary) return ParseLabel(text, minus_one, label);
  if (const char* wrong = ParseNumber(text, label)) return wrong;
  if (form.kind == LabelKind::kGrade && *label < 0) return "is negative; expected 0 or more";
  if (form.kind != LabelKind::kClass) return nullptr;
  const bool known =
      *label >= 0 && *label == std::floor(*label) && *label < static_cast<float>(form.classes);
  return known ? nullptr : "is not the number of a class";
}

bool IsMissingLabel(absl::string_view text, absl::string_view missing) {
  if (text.empty() || IsSameText(text, missing)) return true;
  double label = 0, marker = 0;
  if (ParseDouble(missing, &marker) != nullptr) return false;
  if (ParseDouble(text, &label) != nullptr) return false;
  return label == marker || (std::isnan(label) && std::isnan(marker));
}

std::string ClassRange(const LabelForm& form) {
  if (form.kind != LabelKind::kClass) return "";
  return absl::StrCat("; expected 0 .. ", static_cast<int64_t>(form.classes) - 1);
}

const char* ParseWeight(absl::string_view text, float* weight) {
  if (const char* wrong = ParseNumber(text, weight)) return wrong;
  return *weight < 0 ? "is negative; expected a weight of 0 or more" : nullptr;
}

const char* ParseIntegerKey(absl::string_view text, uint64_t* key) {
  text = Trimmed(text);
  const char* begin = text.data();
  const char* end = begin + text.size();
  const bool minus = !text.empty() && text[0] == '-';
  const auto [stop, error] = std::from_chars(begin + (minus ? 1 : 0), end, *key);
  if (stop != end || (error != std::errc() && error != std::errc::result_out_of_range)) {
    return "is not an integer; expected an id in 0 .. 2^63-1";
  }
  if (minus) return "is negative; expected an id in 0 .. 2^63-1";
  if (error == std::errc::result_out_of_range || *key > kMaxIntegerKey) {
    return "is above 2^63-1; expected an id in 0 .. 2^63-1";
  }
  return nullptr;
}

bool IsSameText(absl::string_view a, absl::string_view b) { return Trimmed(a) == Trimmed(b); }

float SignedLog1p(float x) { return std::copysign(std::log1p(std::fabs(x)), x); }

std::string Quoted(absl::string_view text) {
  constexpr size_t kShown = 40;
  // Escapes everything but ASCII: messages must be UTF-8, which a cut text or a wrong file is not.
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kShown)),
                      text.size() > kShown ? "...\"" : "\"");
}

}  // namespace tessera::worker
