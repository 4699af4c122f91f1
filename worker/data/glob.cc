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

  // The paths that match `part` in one of `folders`, all below the root. One that has a name is
  // asked for, not looked for: who lists 10,000 files by their names does not have a folder read so
  // often.
  absl::StatusOr<std::vector<std::string>> Step(const std::vector<std::string>& folders,
                                                const std::string& part, bool last) {
    std::vector<std::string> found;
    for (const std::string& folder : folders) {
      if (!HasWildcard(part)) {
        if (std::string path = Join(folder, part); IsThere(path)) found.push_back(std::move(path));
        continue;
      }
      TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(folder));
      for (const std::string& name : names) {
        if (::fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) != 0) continue;
        // A folder among the files that '*' matches is not meant.
        if (std::string path = Join(folder, name); !last || !fs_.List(Full(path)).ok()) {
          found.push_back(std::move(path));
        }
      }
    }
    return found;
  }

  // What the last of `folders` holds, in which `part` was looked for.
  absl::StatusOr<std::string> WhatIsThere(const std::vector<std::string>& folders,
                                          const std::string& part) const {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(folders.back()));
    return absl::StrCat("in ", Full(folders.back()), " ", SuggestName(part, names));
  }

 private:
  // Of what is not a folder, or went away, nothing.
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) const {
    auto names = fs_.List(Full(folder));
    if (names.ok() || folder.empty() || absl::IsPermissionDenied(names.status())) return names;
    return std::vector<std::string>();
  }
  // Also what cannot be opened, such as a folder: whoever reads it says why.
  bool IsThere(const std::string& path) const {
    return !absl::IsNotFound(fs_.Open(Full(path)).status());
  }
  std::string Full(const std::string& path) const { return Join(root_, path); }

  FileSystem& fs_;
  const std::string root_;
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
    TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> found,
                             expander.Step(paths, parts[i], i + 1 == parts.size()));
    if (found.empty()) {
      TESSERA_ASSIGN_OR_RETURN(const std::string there, expander.WhatIsThere(paths, parts[i]));
      return absl::NotFoundError(
          absl::StrCat("no file \"", pattern, "\" below the data root ", root, "; ", there));
    }
    paths = std::move(found);
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
