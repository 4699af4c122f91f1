#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/keep_going.h"

namespace tessera {

// 32 hex digits over a checkpoint's content: every table's name, dim and slots, every row's key,
// embedding and optimizer slots, dense parameters included. The digest of a model does not depend
// on the number of ps that wrote it, nor on their order; frequencies, last steps, the job's name,
// times and positions do not count. Verifies the whole checkpoint first (VerifyCheckpoint).
// DATA_LOSS: the checkpoint is damaged, or rows are missing or there twice.
//
// Per row XXH3-128 of (table name, key, floats), summed modulo 2^64 in each half: detects
// accidents, not somebody who looks for two models of one digest. Calls `keep_going` before every
// partition of a table, and as VerifyCheckpoint does.
absl::StatusOr<std::string> DigestCheckpoint(FileSystem& fs, const std::string& folder,
                                             KeepGoing keep_going = absl::OkStatus);

}  // namespace tessera
