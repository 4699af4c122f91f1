#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/keep_going.h"

namespace tessera {

// 32 hex digits over what a checkpoint holds: every table's name, dim and slots, every row's key,
// embedding and optimizer slots, dense parameters included. The same model gives the same digest
// whatever number of ps wrote it and in whatever order; frequencies, last steps, the job's name,
// times and positions do not take part. Verifies the whole checkpoint on the way (VerifyCheckpoint,
// then every block); DATA_LOSS also where rows are missing or there twice.
//
// Per row XXH3-128 of (table name, key, floats), summed modulo 2^64 in each half: good against
// accidents, not against somebody who looks for two models of one digest. `keep_going` is asked
// before every block.
absl::StatusOr<std::string> DigestCheckpoint(FileSystem& fs, const std::string& folder,
                                             KeepGoing keep_going = absl::OkStatus);

}  // namespace tessera
