#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera::master {

// Checks what a write-ahead log of RocksDB has, since RocksDB takes some damage for the log's end:
// a bit of a record's type that makes it one of a recycled log, a length beyond the end. DATA_LOSS:
// after a record that is not sound there is a later write. Its writer made each write durable
// before the next one, so this is not a write that was torn at the end. `name` is the log's, for
// messages.
absl::Status CheckWal(absl::string_view name, absl::string_view bytes);

}  // namespace tessera::master
