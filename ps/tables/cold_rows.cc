#include "ps/tables/cold_rows.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::ps {

RowBlocks::RowBlocks(size_t count, size_t block_bytes)
    : block_bytes_(block_bytes),
      bytes_(static_cast<char*>(
          std::aligned_alloc(RowLayout::kAlignment, std::max<size_t>(count, 1) * block_bytes))) {
  if (bytes_ == nullptr) throw std::bad_alloc();
}

absl::StatusOr<ColdRows> ReadColdRows(ColdStore& cold, uint32_t table, size_t record_bytes,
                                      std::vector<ColdKey> keys, const ColdSnapshot* at) {
  ColdRows out;
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  out.keys = std::move(keys);
  out.found.resize(out.keys.size());
  out.blocks = std::make_unique<RowBlocks>(out.keys.size(), record_bytes);
  TESSERA_RETURN_IF_ERROR(cold.Read(table, out.keys, out.blocks->data(), out.found.data(), at));
  return out;
}

absl::Status LeftNowhere(const ColdKey& key) {
  return absl::InternalError(absl::StrCat("key ", key.key, " of partition ", key.partition,
                                          " left memory, but not to disk"));
}

}  // namespace tessera::ps
