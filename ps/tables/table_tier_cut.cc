#include <algorithm>
#include <cstring>
#include <utility>

#include "common/status_macros.h"
#include "ps/tables/cold_rows.h"
#include "ps/tables/table_tier.h"

// Part of TableTier: the rows of one moment, in memory and on disk.
namespace tessera::ps {

std::optional<uint64_t> TableTier::BeginCut(bool all) {
  Cut cut;
  cut.all = all;
  // No row leaves between the moment in memory and that on disk.
  absl::MutexLock lock(&evict_mu_);
  if (!all && !store_.keeps_left()) return std::nullopt;
  if (expiry_.active()) store_.NoteReplaced(true);
  const uint64_t rows = store_.BeginCut(all);
  for (const PartitionId partition : partitions_.owned()) {
    // A row may be gone and have come again, and have left.
    cut.gone.push_back(store_.TakeGone(partition));
    cut.left.push_back(store_.TakeLeft(partition).value_or(std::vector<uint64_t>()));
  }
  cut.disk = cold_.TakeSnapshot();
  if (all || expiry_.active()) cut.scan = cold_.Scan(options_.cold_table, cut.disk.get());
  cut_ = std::move(cut);
  cut_open_ = true;
  return rows;
}

absl::Status TableTier::VisitCutBelow(PartitionId partition, VisitBelow visit) {
  std::vector<uint64_t>& left = cut_->left[partitions_.IndexOf(partition)];
  std::vector<uint64_t>& gone = cut_->gone[partitions_.IndexOf(partition)];
  std::vector<const Row*> rows;
  if (cut_->scan == nullptr) {
    std::vector<ColdKey> places;
    for (const uint64_t key : left) places.push_back({.partition = partition.value(), .key = key});
    TESSERA_ASSIGN_OR_RETURN(const ColdRows read,
                             ReadColdRows(cold_, options_.cold_table, record_bytes_,
                                          std::move(places), cut_->disk.get()));
    for (size_t i = 0; i < read.keys.size(); ++i) {
      if (!read.found[i]) return LeftNowhere(read.keys[i]);
      rows.push_back(read.blocks->row(i));
    }
    return visit({}, rows);  // without expiry no row goes
  }
  std::sort(left.begin(), left.end());
  auto next_left = left.begin();
  std::vector<char> bytes;  // allocated by operator new: aligned to 16 bytes, as records are
  std::vector<uint64_t> expired;
  std::vector<uint64_t> others;  // used if rows expire
  TESSERA_RETURN_IF_ERROR(
      cut_->scan->Visit(partition.value(), [&](uint64_t key, const char* record) {
        next_left = std::lower_bound(next_left, left.end(), key);
        const bool wanted = cut_->all || (next_left != left.end() && *next_left == key);
        if (!wanted && !expiry_.active()) return absl::OkStatus();
        const size_t at = bytes.size();
        bytes.insert(bytes.end(), record, record + record_bytes_);
        const bool has_expired = HasExpired(*reinterpret_cast<const Row*>(bytes.data() + at));
        (has_expired ? expired : others).push_back(key);
        if (has_expired || !wanted) bytes.resize(at);
        return absl::OkStatus();
      }));
  for (size_t at = 0; at < bytes.size(); at += record_bytes_) {
    rows.push_back(reinterpret_cast<const Row*>(bytes.data() + at));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<uint64_t> erased, EraseExpired(partition, expired));
  KeepKnown(partition, others);
  cut_->gone_from_disk += erased.size();
  if (cut_->all) return visit({}, rows);
  gone.insert(gone.end(), erased.begin(), erased.end());
  std::sort(gone.begin(), gone.end());
  gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
  return visit(gone, rows);
}

void TableTier::DropCut() {
  store_.DropCut();
  store_.NoteReplaced(false);
  cut_.reset();
  cut_open_ = false;
}

}  // namespace tessera::ps
