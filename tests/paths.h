#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// Where what is `below` in the checkout lies: SourcePath("tests/golden/zoo.txt").
std::string SourcePath(absl::string_view below);

// Where the programs of this build lie.
std::string ProgramFolder();

}  // namespace tessera
