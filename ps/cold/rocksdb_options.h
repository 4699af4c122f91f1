#pragma once

#include <memory>
#include <string>

#include "rocksdb/env.h"
#include "rocksdb/options.h"

namespace tessera::ps {

// RocksDB set up for the tier: point reads of records of 64 to 16,384 bytes whose keys are known to
// be there, and writes that come as sorted files. `page_cache`: ColdStore::Options has it. What was
// measured is in README.md.
rocksdb::Options ColdOptions(rocksdb::Env* env, bool page_cache);

}  // namespace tessera::ps
