#include "tests/paths.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace tessera {

std::string SourcePath(absl::string_view below) {
  // A program that was built elsewhere (tests/gpu/run).
  if (const char* const folder = std::getenv("TESSERA_SOURCE_FOLDER")) {
    return absl::StrCat(folder, "/", below);
  }
  return absl::StrCat(TESSERA_SOURCE_FOLDER "/", below);
}

std::string ProgramFolder() {
  // Likewise.
  if (const char* const folder = std::getenv("TESSERA_PROGRAM_FOLDER")) return folder;
  return TESSERA_PROGRAM_FOLDER;
}

}  // namespace tessera
