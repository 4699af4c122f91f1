// TableTier: rows leave memory.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "ps/memory/or_exhausted.h"
#include "ps/tables/table_tier.h"

namespace tessera::ps {

// Copies of changed rows that are leaving.
struct TableTier::Leaving {
  explicit Leaving(size_t record_bytes) : record_bytes(record_bytes) {}
  struct Partition {
    PartitionId partition;
    std::vector<uint64_t> keys;
  };
  const size_t record_bytes;
  std::vector<Partition> partitions;
  std::vector<char> bytes;
  size_t rows = 0;

  void Add(const Row& row) {
    partitions.back().keys.push_back(row.key);
    const size_t at = bytes.size();
    bytes.resize(at + record_bytes);
    std::memcpy(bytes.data() + at, &row, record_bytes);
    Row head;
    std::memcpy(&head, &row, sizeof(head));
    head.flags = 0;
    std::memcpy(bytes.data() + at, &head, sizeof(head));
    ++rows;
  }
  void Clear() {
    partitions.clear();
    bytes.clear();
    rows = 0;
  }
};

absl::Status TableTier::eviction_error() const {
  absl::MutexLock lock(&error_mu_);
  // Shares nothing with it: libabsl counts who shares a status, and ThreadSanitizer does not see
  // into that library.
  return absl::Status(eviction_error_.code(), eviction_error_.message());
}

absl::StatusOr<uint64_t> TableTier::Evict(uint64_t bytes) {
  absl::StatusOr<uint64_t> freed = EvictRows(bytes);
  absl::MutexLock lock(&error_mu_);
  eviction_error_ = freed.status();
  return freed;
}

absl::StatusOr<uint64_t> TableTier::EvictRows(uint64_t bytes) {
  const absl::Span<const PartitionId> owned = partitions_.owned();
  Leaving leaving(record_bytes_);
  leaving.bytes.reserve(options_.eviction_bytes + record_bytes_);
  uint64_t freed = 0;
  const uint64_t batch_rows = options_.eviction_bytes / record_bytes_ + 1;
  for (size_t visited = 0; visited < owned.size() && freed < bytes && !stopped_;) {
    absl::StatusOr<uint64_t> written;
    {
      absl::MutexLock batch(&leaving_mu_);
      written = OrExhausted("rows that leave", [&]() -> absl::StatusOr<uint64_t> {
        leaving_mu_.AssertHeld();
        // A partition is visited once in a batch: none of its rows is in it twice.
        do {
          const PartitionId partition = owned[hand_];
          hand_ = hand_ + 1 == owned.size() ? 0 : hand_ + 1;
          ++visited;
          const uint64_t expected = freed + leaving.rows * row_bytes_;
          const uint64_t most = std::min((bytes - expected) / row_bytes_ + 1, batch_rows);
          leaving.partitions.push_back({.partition = partition, .keys = {}});
          absl::MutexLock lock(&evict_mu_);
          const uint64_t left = store_.Sweep(partition, most, clock_, [&](const Row& row) {
            // On disk this row would be taken for one that was there when it expired. A row that
            // was never updated loses nothing by that, unless a cut has it: it is new, or has
            // expired since a warm start and was kept for lack of room to erase it (Expire).
            if (HasExpired(row) && (row.frequency > 0 || cut_open_)) return false;
            leaving.Add(row);
            return true;
          });
          Left(left);
          freed += left * row_bytes_;
          // Memory of rows that are being written counts as freed.
        } while (freed + leaving.rows * row_bytes_ < bytes && visited < owned.size() &&
                 hand_ != 0 && leaving.bytes.size() < options_.eviction_bytes && !stopped_);
        return WriteLeaving(leaving);
      });
      if (!written.ok()) {
        Keep(leaving);
        return written.status();
      }
    }
    freed += *written;
    // Without the lock, which a cut with expiry takes, too.
    if (*written > 0) cold_.AwaitCompactionOfWrites(options_.cold_table, stopped_);
  }
  return freed;
}

void TableTier::GiveBack(uint64_t bytes) {
  const absl::StatusOr<uint64_t> given = OrExhausted(
      "rows that move", [&]() -> absl::StatusOr<uint64_t> { return store_.GiveBack(bytes); });
  const uint64_t rows = given.value_or(0) / row_bytes_;
  LowerPages(rows > 0 ? static_cast<int64_t>(rows) : most_rows_.load(std::memory_order_relaxed));
}

void TableTier::Keep(Leaving& leaving) {
  absl::MutexLock lock(&evict_mu_);
  for (const Leaving::Partition& partition : leaving.partitions) {
    store_.EndLeaving(partition.partition, partition.keys, /*keep=*/true);
  }
  leaving.Clear();
}

absl::StatusOr<uint64_t> TableTier::WriteLeaving(Leaving& leaving) {
  if (leaving.rows == 0) {
    leaving.Clear();
    return 0;
  }
  std::vector<ColdRecord> records;
  records.reserve(leaving.rows);
  for (const Leaving::Partition& partition : leaving.partitions) {
    for (const uint64_t key : partition.keys) {
      records.push_back({.key = {.partition = partition.partition.value(), .key = key},
                         .bytes = leaving.bytes.data() + records.size() * record_bytes_});
    }
  }
  std::sort(records.begin(), records.end(),
            [](const ColdRecord& a, const ColdRecord& b) { return a.key < b.key; });
  const absl::Status status = cold_.Write(options_.cold_table, records);
  uint64_t erased = 0;
  {
    absl::MutexLock lock(&evict_mu_);
    const char* row = leaving.bytes.data();
    for (Leaving::Partition& partition : leaving.partitions) {
      if (partition.keys.empty()) continue;
      // A cut that has begun since counts these rows as in memory: nobody may find them on disk.
      std::vector<uint64_t> stay;
      for (const uint64_t key : partition.keys) {
        if (cut_open_ && HasExpired(*reinterpret_cast<const Row*>(row))) stay.push_back(key);
        row += record_bytes_;
      }
      store_.EndLeaving(partition.partition, stay, /*keep=*/true);
      erased += store_.EndLeaving(partition.partition, partition.keys, !status.ok());
    }
  }
  Left(erased);
  if (status.ok()) spilled_.fetch_add(erased, std::memory_order_relaxed);
  leaving.Clear();
  TESSERA_RETURN_IF_ERROR(status);
  return erased * row_bytes_;
}

}  // namespace tessera::ps
