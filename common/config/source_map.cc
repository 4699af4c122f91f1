#include "common/config/source_map.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

bool IsPath(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.' || c == '[' || c == ']';
  });
}

}  // namespace

void SourceMap::Add(absl::string_view path, absl::string_view origin) {
  origins_[std::string(path)] = std::string(origin);
}

void SourceMap::Remove(absl::string_view path) {
  for (auto it = origins_.lower_bound(std::string(path)); it != origins_.end();) {
    if (!absl::StartsWith(it->first, path)) break;
    const char next = it->first.size() == path.size() ? '.' : it->first[path.size()];
    it = next == '.' || next == '[' ? origins_.erase(it) : std::next(it);
  }
}

std::string SourceMap::Find(absl::string_view path) const {
  while (true) {
    const auto found = origins_.find(std::string(path));
    if (found != origins_.end()) return found->second;
    const size_t cut = path.find_last_of(".[");
    if (cut == absl::string_view::npos) break;
    path = path.substr(0, cut);
  }
  const auto whole = origins_.find("");
  return whole == origins_.end() ? "" : whole->second;
}

absl::Status SourceMap::Locate(const absl::Status& status) const {
  if (status.ok()) return status;
  const absl::string_view message = status.message();
  const size_t colon = message.find(": ");
  if (colon == absl::string_view::npos || !IsPath(message.substr(0, colon))) return status;
  const std::string origin = Find(message.substr(0, colon));
  return origin.empty() ? status : WithContext(status, origin);
}

}  // namespace tessera
