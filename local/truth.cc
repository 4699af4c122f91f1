#include "local/truth.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace tessera::local {

absl::StatusOr<std::map<std::string, BestPossible>> ReadTruth(FileSystem& fs,
                                                              const std::string& file) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(fs, file));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        file, ": ", what, "; expected the truth.json that `tessera data generate` has written"));
  };
  if (!json.is_object() || !json.contains("splits") || !json["splits"].is_object()) {
    return wrong("holds no splits");
  }
  std::map<std::string, BestPossible> best;
  for (const auto& [name, split] : json["splits"].items()) {
    if (!split.is_object() || !split.contains("best_auc") || !split["best_auc"].is_number() ||
        !split.contains("best_logloss") || !split["best_logloss"].is_number()) {
      return wrong(absl::StrCat("split '", name, "' has no numbers best_auc and best_logloss"));
    }
    best[name] = {split["best_auc"].get<double>(), split["best_logloss"].get<double>()};
  }
  return best;
}

}  // namespace tessera::local
