#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rocksdb {
class FileSystem;
}

namespace tessera::master {

// The master's durable state: a small ordered map of byte strings. A batch is applied as a whole or
// not at all, and is durable when Apply returns. Thread-safe. The contract suite
// (tests/master/state_log_test.cc) runs on every implementation; master/etcd/etcd_state_log.h opens
// the one in etcd.
class StateLog {
 public:
  struct Write {
    std::string key;
    std::optional<std::string> value;  // none: removes the key
  };
  virtual ~StateLog() = default;
  // UNAVAILABLE, RESOURCE_EXHAUSTED: the batch may not be durable. The master must not act on it,
  // and writes it again, with what came since.
  virtual absl::Status Apply(const std::vector<Write>& batch) = 0;
  // NOT_FOUND: no such key.
  virtual absl::StatusOr<std::string> Get(const std::string& key) = 0;
  // All keys that start with `prefix`, in the order of their bytes.
  virtual absl::StatusOr<std::map<std::string, std::string>> Scan(const std::string& prefix) = 0;
};

// RocksDB in `folder` (created if missing), every batch synced. After an error of the disk the
// folder is opened again for a later call. FAILED_PRECONDITION: another process uses the folder.
// DATA_LOSS: the folder's content is damaged. `disk`: null for the machine's; a test's.
absl::StatusOr<std::unique_ptr<StateLog>> OpenRocksDbStateLog(
    const std::string& folder, std::shared_ptr<rocksdb::FileSystem> disk = nullptr);

// For tests and for clusters that live within one process. The content ends with the object.
std::unique_ptr<StateLog> NewMemoryStateLog();

}  // namespace tessera::master
