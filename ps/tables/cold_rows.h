#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "ps/cold/cold_store.h"
#include "ps/rows/row_layout.h"

namespace tessera::ps {

// Row blocks one after another, aligned as in memory. Throws std::bad_alloc.
class RowBlocks {
 public:
  RowBlocks(size_t count, size_t block_bytes);
  char* data() { return bytes_.get(); }
  char* at(size_t i) { return bytes_.get() + i * block_bytes_; }
  const Row* row(size_t i) const {
    return reinterpret_cast<const Row*>(bytes_.get() + i * block_bytes_);
  }

 private:
  struct Free {
    void operator()(char* bytes) const { std::free(bytes); }
  };
  const size_t block_bytes_;
  const std::unique_ptr<char, Free> bytes_;
};

// Rows read from disk.
struct ColdRows {
  std::vector<ColdKey> keys;  // ascending, no key twice
  std::vector<uint8_t> found;
  std::unique_ptr<RowBlocks> blocks;

  size_t PlaceOf(const ColdKey& key) const {
    return std::lower_bound(keys.begin(), keys.end(), key) - keys.begin();
  }
};

// Reads rows as of `at`, or of now if that is null. `keys` come in any order and may repeat. The
// errors are ColdStore::Read's.
absl::StatusOr<ColdRows> ReadColdRows(ColdStore& cold, uint32_t table, size_t record_bytes,
                                      std::vector<ColdKey> keys, const ColdSnapshot* at = nullptr);

// INTERNAL: `key` has left memory but is not on disk.
absl::Status LeftNowhere(const ColdKey& key);

}  // namespace tessera::ps
