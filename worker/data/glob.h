#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_system.h"

namespace tessera::worker {

// The files below `root` that match a pattern, as paths relative to it, sorted. '*', '?' and '[..]'
// match within one part of the path; a leading dot must be written out.
//   NOT_FOUND         no file matches; the message names what is there instead
//   INVALID_ARGUMENT  the pattern leaves the root
absl::StatusOr<std::vector<std::string>> ExpandPattern(FileSystem& fs, const std::string& root,
                                                       const std::string& pattern);

// INVALID_ARGUMENT: `paths`, which are relative to `root`, have two forms of a file (plain, .gz,
// .zst). They look like one file, which would be read twice.
absl::Status RefusePackedTwins(const std::string& root, const std::set<std::string>& paths);

}  // namespace tessera::worker
