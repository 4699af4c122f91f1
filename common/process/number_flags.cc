#include "common/process/number_flags.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// SimpleAtoi also accepts blanks and signs.
bool IsWholeNumber(const std::string& text, uint64_t* value) {
  for (const char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
  }
  return absl::SimpleAtoi(text, value);
}

}  // namespace

CLI::Validator WholeNumber(uint64_t most, uint64_t least) {
  return CLI::Validator(
      [most, least](std::string& text) {
        uint64_t value = 0;
        if (IsWholeNumber(text, &value) && least <= value && value <= most) {
          text = absl::StrCat(value);
          return std::string();
        }
        return absl::StrCat("is \"", text, "\", expected a whole number from ", least, " to ",
                            most);
      },
      most == UINT64_MAX ? "NUMBER" : absl::StrCat("NUMBER in [", least, " - ", most, "]"));
}

CLI::Validator RealNumber(double least, double most) {
  return CLI::Validator(
      [least, most](const std::string& text) {
        double value = 0;
        if (absl::SimpleAtod(text, &value) && least <= value && value <= most) {
          return std::string();
        }
        return absl::StrCat("is \"", text, "\", expected a number from ", least, " to ", most);
      },
      absl::StrCat("NUMBER in [", least, " - ", most, "]"));
}

CLI::Validator ByteSize(uint64_t least) {
  return CLI::Validator(
      [least](std::string& text) {
        const std::string given = text;
        const auto wrong = [&](const auto&... what) {
          return absl::StrCat("is \"", given, "\", expected ", what...,
                              ": digits, and a unit if it is not bytes, e.g. 8GiB");
        };
        uint64_t value = 0;
        const size_t digits = given.find_first_not_of("0123456789");
        if (!IsWholeNumber(given.substr(0, digits), &value)) return wrong("a size");
        text = absl::StrCat(value, digits == std::string::npos ? "" : given.substr(digits));
        if (digits != std::string::npos) {
          try {
            if (!CLI::AsSizeValue(false)(text).empty()) return wrong("a size");
          } catch (const CLI::ValidationError&) {  // an unknown unit, or an overflow
            return wrong("a size");
          }
          if (!IsWholeNumber(text, &value)) return wrong("a size");
        }
        return value < least ? wrong("at least ", least, " bytes") : std::string();
      },
      "SIZE");
}

}  // namespace tessera
