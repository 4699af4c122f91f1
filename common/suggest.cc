#include "common/suggest.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera {
namespace {

// The number of letters to insert, delete, substitute or swap with their neighbour (optimal string
// alignment), in O(|a| * |b|).
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  const auto same = [&](size_t i, size_t j) {
    return absl::ascii_tolower(a[i]) == absl::ascii_tolower(b[j]);
  };
  for (size_t i = 0; i < a.size(); ++i) {
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({last[j] + (same(i, j) ? 0 : 1), row[j] + 1, last[j + 1] + 1});
      if (i > 0 && j > 0 && same(i, j - 1) && same(i - 1, j)) {
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last.back();
}

}  // namespace

std::string NearestName(absl::string_view wanted, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 256;  // a longer name is no misspelling
  if (wanted.size() > kLongest) return "";
  const std::string* nearest = nullptr;
  size_t best = std::max<size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& name : names) {
    if (name.empty() || name.size() > kLongest) continue;
    const size_t distance = EditDistance(wanted, name);
    if (distance < best && distance < name.size()) {
      best = distance;
      nearest = &name;
    }
  }
  return nearest == nullptr ? "" : *nearest;
}

std::string SuggestName(absl::string_view wanted, const std::vector<std::string>& names) {
  if (names.empty()) return "there are none";
  if (const std::string nearest = NearestName(wanted, names); !nearest.empty()) {
    return absl::StrCat("did you mean \"", nearest, "\"?");
  }
  constexpr size_t kShown = 10;
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size()));
  return absl::StrCat("known are ", absl::StrJoin(names.begin(), end, ", "),
                      names.size() > kShown ? ", ..." : "");
}

}  // namespace tessera
