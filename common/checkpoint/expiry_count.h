#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file_system.h"
#include "common/keep_going.h"
#include "tessera/v1/job.pb.h"

namespace tessera {

// What a table would lose if rules were in force at the checkpoint's cut.
struct ExpiryCount {
  std::string table;
  uint64_t rows = 0;
  // Rows that each rule names, and those that any does. A row may be named by several.
  uint64_t by_age = 0;
  uint64_t by_frequency = 0;
  uint64_t by_norm = 0;
  uint64_t expired = 0;
};

// Counts for those tables of the checkpoint that have a rule of expiry in `tables`, by name, in the
// checkpoint's order; changes nothing. The age of a row is counted as at the cut: from the pushes
// before it. One partition is in memory at a time; checksums of whole files are for
// VerifyCheckpoint. Calls `keep_going` before every partition. DATA_LOSS: a file is missing or
// damaged. NOT_FOUND: a table of `tables` that has rules is not in the checkpoint.
absl::StatusOr<std::vector<ExpiryCount>> CountExpiring(
    FileSystem& fs, const std::string& folder, absl::Span<const v1::TableSpec* const> tables,
    KeepGoing keep_going = absl::OkStatus);

}  // namespace tessera
