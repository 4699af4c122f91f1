#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/file_system.h"

namespace tessera::local {

// What truth.json of `tessera data generate` says: the best that any model could reach, by split.
struct BestPossible {
  double auc = 0;
  double logloss = 0;
};
// NOT_FOUND: no such file; INVALID_ARGUMENT: it is not a truth.json.
absl::StatusOr<std::map<std::string, BestPossible>> ReadTruth(FileSystem& fs,
                                                              const std::string& file);

}  // namespace tessera::local
