#include "common/job/device.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tessera {

bool IsDevice(absl::string_view word) {
  if (word == "auto" || word == "cpu" || word == "cuda") return true;
  constexpr uint32_t kMostCards = 64;
  uint32_t number = 0;
  // SimpleAtoi also accepts a sign and spaces.
  return absl::ConsumePrefix(&word, "cuda:") &&
         std::all_of(word.begin(), word.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(word, &number) && number < kMostCards;
}

std::string WrongDeviceFlag(const std::string& word) {
  if (IsDevice(word) || word == "emulated") return "";
  return absl::StrCat("found '", word,
                      "'; expected auto, cpu, cuda, cuda:N with the number of a card, or emulated");
}

}  // namespace tessera
