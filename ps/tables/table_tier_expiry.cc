#include <algorithm>
#include <cstring>
#include <iterator>

#include "absl/container/flat_hash_set.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "ps/tables/cold_rows.h"
#include "ps/tables/table_tier.h"

// Part of TableTier: rows that expire. Rows in memory go at once. Rows on disk count for nothing
// from the same moment on (HasExpired); the reader of the cut erases them in its own time. A row
// that looks expired on disk either was there when it expired or was never updated: other rows that
// would look so do not leave memory.
namespace tessera::ps {
namespace {

// How many keys' records are erased together, while no row is brought: some milliseconds.
constexpr size_t kErasedAtOnce = 1024;
// How long the look through rows in memory keeps rows from being brought: records to erase are
// written together.
constexpr absl::Duration kLooked = absl::Milliseconds(10);

}  // namespace

absl::Status TableTier::EraseBelow(absl::Span<const uint64_t> keys) {
  std::vector<uint8_t> may(keys.size());
  if (cold_.MayContain(options_.cold_table, keys, may.data()) == 0) return absl::OkStatus();
  std::vector<ColdKey> places;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (may[i]) places.push_back(PlaceOf(keys[i]));
  }
  std::sort(places.begin(), places.end());
  return cold_.Erase(options_.cold_table, places);
}

void TableTier::RenewKnown() {
  KnownFilter& known = cold_.Known(options_.cold_table);
  const auto rows = static_cast<uint64_t>(std::max<int64_t>(0, rows_));
  if (cut_.has_value() || left_to_renew_ > 0) return;
  if (known.keys() < 2 * rows + KnownFilter::kFirstCapacity) return;
  known.BeginRenewal();
  left_to_renew_ = partitions_.owned().size();
  to_renew_.assign(left_to_renew_, true);
}

void TableTier::KeepKnown(PartitionId partition, absl::Span<const uint64_t> keys) {
  const uint32_t index = partitions_.IndexOf(partition);
  if (left_to_renew_ == 0 || !to_renew_[index]) return;
  to_renew_[index] = false;
  KnownFilter& known = cold_.Known(options_.cold_table);
  known.Keep(keys);
  if (--left_to_renew_ == 0) known.EndRenewal();
}

absl::StatusOr<uint64_t> TableTier::Expire(uint64_t applied_steps) {
  // Held so that no row is on its way to disk.
  absl::MutexLock none_leaves(&leaving_mu_);
  RenewKnown();
  {
    absl::MutexLock none_comes(&erase_mu_);
    expired_at_ = std::max<uint64_t>(expired_at_, applied_steps);
  }
  uint64_t expired = 0;
  std::vector<uint64_t> keys;
  std::vector<PartitionId> of_keys;
  for (auto partition = partitions_.owned().begin(); partition != partitions_.owned().end();) {
    absl::MutexLock none_comes(&erase_mu_);
    const absl::Duration begin = SystemClock().Monotonic();
    keys.clear();
    of_keys.clear();
    do {
      const size_t before = keys.size();
      store_.EraseIf(*partition, [&](const Row& row) {
        if (HasExpired(row)) keys.push_back(row.key);
        return false;  // not yet
      });
      if (keys.size() > before) of_keys.push_back(*partition);
    } while (++partition != partitions_.owned().end() &&
             SystemClock().Monotonic() - begin < kLooked);
    // The records of these rows on disk are older, and may look as if they had not expired: they go
    // first. If the disk has no room for erasing them, the rows stay in memory until a later cut,
    // and records below that have expired count for nothing.
    const absl::Status below = EraseBelow(keys);
    const bool full = absl::IsResourceExhausted(below);
    if (!full) TESSERA_RETURN_IF_ERROR(below);
    // Other rows may have expired since, by a push of a rank that is far behind.
    const absl::flat_hash_set<uint64_t> looked(keys.begin(), keys.end());
    const auto goes = [&](const Row& row) {
      erase_mu_.AssertHeld();
      return HasExpired(row) && looked.contains(row.key);
    };
    for (const PartitionId of : of_keys) {
      if (full) {
        store_.MarkIf(of, goes);
        continue;
      }
      const uint64_t erased = store_.EraseIf(of, goes);
      Gone(erased);
      expired += erased;
    }
  }
  return expired;
}

absl::StatusOr<uint64_t> TableTier::CountExpirable(uint64_t applied_steps) const {
  uint64_t rows = 0;
  std::vector<uint64_t> keys;
  std::vector<uint64_t> absent;
  RowBlocks block(1, record_bytes_);
  for (const PartitionId partition : partitions_.owned()) {
    keys.clear();
    absent.clear();
    TESSERA_RETURN_IF_ERROR(cold_.VisitPartition(
        options_.cold_table, partition.value(), [&](uint64_t key, const char* record) {
          std::memcpy(block.data(), record, record_bytes_);
          const Row& row = *block.row(0);
          if (!HasExpired(row) && ExpiryTakes(expiry_, row, store_.layout(), applied_steps)) {
            keys.push_back(key);
          }
          return absl::OkStatus();
        }));
    // Rows in memory are newer and counted already.
    store_.AppendAbsent(keys, absent);
    rows += absent.size();
  }
  return rows;
}

absl::StatusOr<std::vector<uint64_t>> TableTier::EraseExpired(PartitionId partition,
                                                              absl::Span<const uint64_t> expired) {
  std::vector<uint64_t> gone;
  size_t stay = 0;
  for (size_t begin = 0; begin < expired.size(); begin += kErasedAtOnce) {
    const absl::Span<const uint64_t> piece = expired.subspan(begin, kErasedAtOnce);
    std::vector<ColdKey> places;
    for (const uint64_t key : piece) places.push_back({partition.value(), key});
    cold_.AwaitCompactionToErase(options_.cold_table);
    // Keeps the disk as it is: a row that was made anew since may have left and replaced the
    // record.
    absl::MutexLock none_leaves(&leaving_mu_);
    TESSERA_ASSIGN_OR_RETURN(const ColdRows read,
                             ReadColdRows(cold_, options_.cold_table, record_bytes_, places));
    std::vector<ColdKey> still;
    std::vector<uint64_t> still_keys;
    for (size_t i = 0; i < read.keys.size(); ++i) {
      if (!read.found[i] || !HasExpired(*read.blocks->row(i))) continue;
      still.push_back(read.keys[i]);
      still_keys.push_back(read.keys[i].key);
    }
    absl::MutexLock none_comes(&erase_mu_);
    const size_t before = gone.size();
    if (const absl::Status erased = cold_.Erase(options_.cold_table, still); erased.ok()) {
      store_.ForgetBelow(partition, still_keys, gone);
      const size_t forgotten = gone.size() - before;
      rows_.fetch_sub(static_cast<int64_t>(forgotten), std::memory_order_relaxed);
    } else if (absl::IsResourceExhausted(erased)) {
      // Erasing takes room before it frees some, and nothing is freed before the cut ends. These
      // records may stay: nobody finds them, no checkpoint has them, and the next cut comes to them
      // again.
      cold_.Known(options_.cold_table).Keep(still_keys);
      store_.AppendAbsent(still_keys, gone);
      stay += gone.size() - before;
    } else {
      return erased;
    }
    // For the other keys memory had newer rows already at the cut, unless the rows were made since.
    const std::vector<uint64_t> replaced = store_.Replaced(partition);
    if (replaced.empty()) continue;
    const absl::flat_hash_set<uint64_t> since(replaced.begin(), replaced.end());
    std::copy_if(piece.begin(), piece.end(), std::back_inserter(gone),
                 [&](uint64_t key) { return since.contains(key); });
  }
  std::sort(gone.begin(), gone.end());
  gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
  expired_on_disk_.fetch_add(gone.size() - stay, std::memory_order_relaxed);
  return gone;
}

absl::Status TableTier::EraseExpiredBelow(PartitionId partition) {
  std::vector<uint64_t> expired;
  std::vector<uint64_t> others;
  RowBlocks block(1, record_bytes_);
  TESSERA_RETURN_IF_ERROR(cold_.VisitPartition(
      options_.cold_table, partition.value(), [&](uint64_t key, const char* record) {
        std::memcpy(block.data(), record, record_bytes_);
        (HasExpired(*block.row(0)) ? expired : others).push_back(key);
        return absl::OkStatus();
      }));
  TESSERA_RETURN_IF_ERROR(EraseExpired(partition, expired).status());
  KeepKnown(partition, others);
  return absl::OkStatus();
}

void TableTier::GoOnFrom(const TableTier& other) {
  expired_at_ = std::max<uint64_t>(expired_at_, other.expired_at_);
}

}  // namespace tessera::ps
