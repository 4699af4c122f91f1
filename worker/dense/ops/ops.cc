#include "worker/dense/ops/ops.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "worker/dense/ops/op_files.h"

namespace tessera::worker {

#define TESSERA_DECLARE(Name, file) std::vector<OpEntry> OpsOf##Name();  // in file.cc
TESSERA_OP_FILES(TESSERA_DECLARE)
#undef TESSERA_DECLARE

absl::Span<const OpEntry> AllOps() {
  static const auto* const ops = [] {
    auto* all = new std::vector<OpEntry>;
#define TESSERA_ADD(Name, file) \
  for (const OpEntry& entry : OpsOf##Name()) all->push_back(entry);
    TESSERA_OP_FILES(TESSERA_ADD)
#undef TESSERA_ADD
    std::sort(all->begin(), all->end(), [](const OpEntry& a, const OpEntry& b) {
      return absl::AsciiStrToLower(a.name) < absl::AsciiStrToLower(b.name);
    });
    return all;
  }();
  return *ops;
}

const OpEntry* FindOp(absl::string_view name) {
  for (const OpEntry& entry : AllOps()) {
    if (name == entry.name || name == entry.alias) return &entry;
  }
  return nullptr;
}

std::vector<std::string> ActivationOps() {
  std::vector<std::string> names;
  for (const OpEntry& entry : AllOps()) {
    if (entry.activation) names.push_back(entry.alias);
  }
  return names;
}

std::string KnownOps(absl::string_view wanted) {
  std::vector<std::string> names;
  for (const OpEntry& entry : AllOps()) names.push_back(entry.alias);
  return KnownNames(wanted, names);
}

}  // namespace tessera::worker
