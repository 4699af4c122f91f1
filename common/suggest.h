#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tessera {

// The name nearest to `wanted` by edit distance without regard to case; empty if none is near. A
// near name differs in at most a third of the letters of `wanted`.
std::string NearestName(absl::string_view wanted, const std::vector<std::string>& names);

// The end of a message about an unknown name: `did you mean "x"?`, or else `known are a, b, c` (the
// first ten), or `there are none`.
std::string SuggestName(absl::string_view wanted, const std::vector<std::string>& names);

}  // namespace tessera
