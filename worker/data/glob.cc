#include "worker/data/glob.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "common/suggest.h"
#include "worker/data/unpack.h"

namespace tessera::worker {
namespace {

bool HasWildcard(const std::string& part) { return part.find_first_of("*?[") != std::string::npos; }

std::string Join(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : absl::StrCat(folder, "/", name);
}

class Expander {
 public:
  Expander(FileSystem& fs, const std::string& root) : fs_(fs), root_(root) {}

  // The paths that match `part` in one of `folders`, all below the root.
  absl::StatusOr<std::vector<std::string>> Step(const std::vector<std::string>& folders,
                                                const std::string& part, bool last) {
    std::vector<std::string> found;
    for (const std::string& folder : folders) {
      auto names = fs_.List(Full(folder));
      // Not a folder, or one that went away: nothing in it matches.
      if (!names.ok() && !folder.empty() && !absl::IsPermissionDenied(names.status())) continue;
      if (!names.ok()) return names.status();
      for (const std::string& name : *names) {
        const bool matches = HasWildcard(part)
                                 ? ::fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) == 0
                                 : name == part;
        const std::string path = Join(folder, name);
        // A folder among the files that '*' matches is not meant.
        if (matches && !(last && HasWildcard(part) && fs_.List(Full(path)).ok())) {
          found.push_back(path);
        }
      }
      seen_ = *std::move(names);
      seen_in_ = Full(folder);
    }
    return found;
  }

  // What the last folder holds that was looked into.
  std::string WhatIsThere(const std::string& part) const {
    return absl::StrCat("in ", seen_in_, " ", SuggestName(part, seen_));
  }

 private:
  std::string Full(const std::string& path) const { return Join(root_, path); }

  FileSystem& fs_;
  const std::string root_;
  std::vector<std::string> seen_;
  std::string seen_in_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandPattern(FileSystem& fs, const std::string& root,
                                                       const std::string& pattern) {
  TESSERA_ASSIGN_OR_RETURN(const std::string full, PathBelow(root, pattern));
  const std::string relative =
      std::filesystem::path(full)
          .lexically_relative(std::filesystem::path(root).lexically_normal())
          .string();
  Expander expander(fs, root);
  std::vector<std::string> paths = {""};
  const std::vector<std::string> parts = absl::StrSplit(relative, '/', absl::SkipEmpty());
  for (size_t i = 0; i < parts.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(paths, expander.Step(paths, parts[i], i + 1 == parts.size()));
    if (paths.empty()) {
      return absl::NotFoundError(absl::StrCat("no file \"", pattern, "\" below the data root ",
                                              root, "; ", expander.WhatIsThere(parts[i])));
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::Status RefusePackedTwins(const std::string& root, const std::set<std::string>& paths) {
  std::map<absl::string_view, absl::string_view> known;  // by their names without .gz or .zst
  for (const std::string& path : paths) {
    const auto [twin, alone] = known.emplace(UnpackedName(path), path);
    if (alone) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        twin->second, " and ", path, " below the data root ", root, " look like one file, ",
        IsPacked(twin->second) ? "packed in two ways" : "plain and packed",
        ", and would be read twice; move one away, or name the other alone in data.*.files"));
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
