#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "common/status_macros.h"
#include "ps/tables/cold_rows.h"
#include "ps/tables/table_tier.h"

// Part of TableTier: partitions that change their owner.
namespace tessera::ps {
namespace {

// How many rows of a partition on disk are handed out together.
constexpr size_t kReadPiece = 4096;

}  // namespace

TableTier::Taken TableTier::TakeRows(PartitionId partition, bool changed,
                                     absl::FunctionRef<void(absl::Span<const Row* const>)> take) {
  std::vector<uint64_t> handed_out;
  std::optional<std::vector<uint64_t>> left;
  {
    // Held so that no row leaves between the two calls.
    absl::ReaderMutexLock lock(&evict_mu_);
    left = store_.TakeLeft(partition);
    store_.TakeRows(partition, changed && left.has_value(), [&](absl::Span<const Row* const> rows) {
      take(rows);
      for (const Row* row : rows) handed_out.push_back(row->key);
    });
  }
  std::sort(handed_out.begin(), handed_out.end());
  if (!changed || !left.has_value()) {
    return {.partition = partition, .all = true, .keys = std::move(handed_out)};
  }
  // Rows that have left may be back in memory, and newer.
  std::sort(left->begin(), left->end());
  left->erase(std::unique(left->begin(), left->end()), left->end());
  Taken taken = {.partition = partition, .all = false, .keys = {}};
  std::set_difference(left->begin(), left->end(), handed_out.begin(), handed_out.end(),
                      std::back_inserter(taken.keys));
  return taken;
}

absl::Status TableTier::ReadTaken(const Taken& taken,
                                  absl::FunctionRef<void(absl::Span<const Row* const>)> take) {
  std::vector<const Row*> rows;
  if (!taken.all) {
    std::vector<ColdKey> places;
    for (const uint64_t key : taken.keys) {
      places.push_back({.partition = taken.partition.value(), .key = key});
    }
    TESSERA_ASSIGN_OR_RETURN(const ColdRows read, ReadColdRows(cold_, options_.cold_table,
                                                               record_bytes_, std::move(places)));
    for (size_t i = 0; i < read.keys.size(); ++i) {
      if (!read.found[i] && !expiry_.active()) return LeftNowhere(read.keys[i]);
      const Row* const row = read.blocks->row(i);
      if (read.found[i] && !HasExpired(*row)) rows.push_back(row);
    }
    if (!rows.empty()) take(rows);
    return absl::OkStatus();
  }
  RowBlocks blocks(kReadPiece, record_bytes_);
  const auto hand_out = [&] {
    if (!rows.empty()) take(rows);
    rows.clear();
  };
  size_t next = 0;
  TESSERA_RETURN_IF_ERROR(cold_.VisitPartition(
      options_.cold_table, taken.partition.value(), [&](uint64_t key, const char* record) {
        while (next < taken.keys.size() && taken.keys[next] < key) ++next;
        if (next < taken.keys.size() && taken.keys[next] == key) return absl::OkStatus();
        std::memcpy(blocks.at(rows.size()), record, record_bytes_);
        if (HasExpired(*blocks.row(rows.size()))) return absl::OkStatus();
        rows.push_back(blocks.row(rows.size()));
        if (rows.size() == kReadPiece) hand_out();
        return absl::OkStatus();
      }));
  hand_out();
  return absl::OkStatus();
}

void TableTier::TakeOver(TableTier& from) {
  // A batch of `from` still on its way to disk would be written after what this one writes there.
  from.StopEvicting();
  const uint64_t rows_there = from.row_bytes();
  from.rows_ = 0;
  from.memory_rows_ = 0;
  from.LowerPages(from.most_rows_);
  options_.budget->Charge(-static_cast<int64_t>(rows_there));
  const RowStore::TakenOver taken = store_.TakeOver(from.store_);
  Added(taken.rows, 0);
  rows_.fetch_add(static_cast<int64_t>(taken.rows_made - taken.rows), std::memory_order_relaxed);
  if (from.counts_cold_.exchange(false)) counts_cold_ = true;
  GoOnFrom(from);
}

absl::Status TableTier::EraseOthersBelow() {
  std::vector<PartitionRange> others;
  for (uint32_t p = 0; p < partitions_.partition_count(); ++p) {
    if (partitions_.IndexOf(PartitionId(p)) != PartitionSet::kNotOwned) continue;
    if (!others.empty() && others.back().last + 1 == p) {
      others.back().last = p;
    } else {
      others.push_back({.first = p, .last = p});
    }
  }
  return cold_.ErasePartitions(options_.cold_table, others);
}

}  // namespace tessera::ps
