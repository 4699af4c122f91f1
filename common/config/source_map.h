#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera {

// The origins of a message's fields: maps a field path ("tables[1].dim") to origin ("job.yaml:31"
// or "--set tables.emb.dim=0"). A value type.
class SourceMap {
 public:
  // Replaces an earlier origin of the path.
  void Add(absl::string_view path, absl::string_view origin);
  // Removes the path and everything below it.
  void Remove(absl::string_view path);
  // The origin of the path, or of its nearest ancestor that has one ("tables[1].dim" may only be
  // known as "tables[1]"); empty if there is none.
  std::string Find(absl::string_view path) const;
  // Puts the origin before a message that starts with a field's path: "tables[1].dim: found 0"
  // becomes "job.yaml:31: tables[1].dim: found 0". Other messages stay as they are.
  absl::Status Locate(const absl::Status& status) const;

 private:
  std::map<std::string, std::string, std::less<>> origins_;
};

}  // namespace tessera
