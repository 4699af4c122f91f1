#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/file_system.h"

namespace tessera::local {

// The best that any model could reach on a split, from truth.json of `tessera data generate`.
struct BestPossible {
  double auc = 0;
  double logloss = 0;
};
// By split. NOT_FOUND: no such file. INVALID_ARGUMENT: the file is not a truth.json.
absl::StatusOr<std::map<std::string, BestPossible>> ReadTruth(FileSystem& fs,
                                                              const std::string& file);

}  // namespace tessera::local
