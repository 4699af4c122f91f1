#pragma once

#include <memory>

#include "rocksdb/file_system.h"

namespace tessera::ps {

// `disk`, with files opened for direct reads that have all reads of a MultiRead in flight at once,
// by io_uring. Debian's RocksDB reads them one after another in the calling thread, which sleeps
// and wakes once for each. A thread that reads has a ring of its own until it ends. If the kernel
// has no io_uring, or a container forbids it, this behaves as `disk`. Thread-safe.
std::shared_ptr<rocksdb::FileSystem> UringReads(std::shared_ptr<rocksdb::FileSystem> disk);

}  // namespace tessera::ps
