#include "ps/table_tier.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/partition.h"
#include "common/status_macros.h"
#include "ps/evictor.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {
namespace {

// A row's entry in its map.
constexpr uint64_t kEntryBytes = 12;
// Rounds in which a batch's rows may come and go while they are read, before eviction waits for it.
constexpr int kFreeRounds = 2;
// Rows of a partition on disk that are handed out together.
constexpr size_t kReadPiece = 4096;

// Row blocks one after another, aligned as in memory.
class Blocks {
 public:
  Blocks(size_t count, size_t block_bytes)
      : block_bytes_(block_bytes),
        bytes_(static_cast<char*>(
            std::aligned_alloc(RowLayout::kAlignment, std::max<size_t>(count, 1) * block_bytes))) {
    if (bytes_ == nullptr) throw std::bad_alloc();
  }
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
struct Found {
  std::vector<ColdKey> keys;  // ascending, no key twice
  std::vector<uint8_t> found;
  std::unique_ptr<Blocks> blocks;

  size_t PlaceOf(const ColdKey& key) const {
    return std::lower_bound(keys.begin(), keys.end(), key) - keys.begin();
  }
};

absl::StatusOr<Found> ReadRows(ColdStore& cold, uint32_t table, size_t record_bytes,
                               std::vector<ColdKey> keys, const ColdSnapshot* at = nullptr) {
  Found out;
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  out.keys = std::move(keys);
  out.found.resize(out.keys.size());
  out.blocks = std::make_unique<Blocks>(out.keys.size(), record_bytes);
  TESSERA_RETURN_IF_ERROR(cold.Read(table, out.keys, out.blocks->data(), out.found.data(), at));
  return out;
}

absl::Status LeftNowhere(const ColdKey& key) {
  return absl::InternalError(absl::StrCat("key ", key.key, " of partition ", key.partition,
                                          " left memory, but not to disk"));
}

}  // namespace

// One call's answers about keys that are not in memory.
class TableTier::Misses final : public AbsentRows {
 public:
  // See Rounds.
  Misses(const TableTier& tier, std::vector<uint32_t>* absent) : tier_(tier), absent_(absent) {}

  Answer Ask(const Question& question, const Row** row) override {
    // A key of the first round has no answer yet; a later round's places are those in `left_`.
    const bool first = asked_.empty();
    if (first) {
      uint8_t may = 0;
      tier_.cold_.MayContain(tier_.options_.cold_table, {&question.key, 1}, &may);
      if (may == 0) return New(question.position);
      left_.push_back(question);
      return Answer::kSkip;
    }
    if (question.erased_at > asked_[question.position].erases) {
      Question again = question;
      again.position = asked_[question.position].position;
      left_.push_back(again);
      ++repeated_;
      return Answer::kSkip;
    }
    const size_t place = places_[question.position];
    if (!read_.found[place]) return New(asked_[question.position].position);
    ++brought_;
    *row = read_.blocks->row(place);
    return Answer::kBring;
  }

  bool done() const { return left_.empty(); }
  // Reads what was left out; then `keys` and `positions` are those of the next round.
  absl::Status Read(std::vector<uint64_t>& keys, std::vector<uint32_t>& positions) {
    asked_ = std::exchange(left_, {});
    std::sort(asked_.begin(), asked_.end(),
              [](const Question& a, const Question& b) { return a.position < b.position; });
    keys.clear();
    positions.clear();
    std::vector<ColdKey> places;
    for (const Question& question : asked_) {
      keys.push_back(question.key);
      positions.push_back(question.position);
      places.push_back(tier_.PlaceOf(question.key));
    }
    TESSERA_ASSIGN_OR_RETURN(read_, ReadRows(tier_.cold_, tier_.options_.cold_table,
                                             tier_.record_bytes_, std::move(places)));
    tier_.cold_reads_.fetch_add(read_.keys.size(), std::memory_order_relaxed);
    places_.clear();
    for (const uint64_t key : keys) places_.push_back(read_.PlaceOf(tier_.PlaceOf(key)));
    return absl::OkStatus();
  }

  // Since the last call of it.
  void TakeCounts(uint64_t& created, uint64_t& brought, uint64_t& repeated) {
    created = std::exchange(created_, 0);
    brought = std::exchange(brought_, 0);
    repeated = std::exchange(repeated_, 0);
  }

 private:
  // `position`: in the call's batch.
  Answer New(uint32_t position) {
    if (absent_ != nullptr) {
      absent_->push_back(position);
      return Answer::kSkip;
    }
    ++created_;
    return Answer::kNew;
  }

  const TableTier& tier_;
  std::vector<uint32_t>* const absent_;
  std::vector<Question> left_;   // of this round; positions in the call's batch
  std::vector<Question> asked_;  // what this round is about, by position in it
  Found read_;
  std::vector<size_t> places_;  // in read_, of asked_
  uint64_t created_ = 0;
  uint64_t brought_ = 0;
  uint64_t repeated_ = 0;
};

// Changed rows on their way out, copied.
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

TableTier::TableTier(const Options& options, const PartitionSet* partitions, RowStore* store)
    : options_(options),
      partitions_(*partitions),
      store_(*store),
      cold_(*options.cold),
      record_bytes_(RecordBytes(store->layout())),
      row_bytes_(record_bytes_ + kEntryBytes),
      counts_cold_(!options.shares_cold) {
  // Small against a stripe's share, so that all stripes get theirs.
  store_.PrepareToEvict(options.budget->bytes() / KeyBatch::kStripes / 32);
  options_.evictor->Add(this);
}

TableTier::~TableTier() {
  options_.evictor->Remove(this);
  options_.budget->Charge(-static_cast<int64_t>(row_bytes()));
}

ColdKey TableTier::PlaceOf(uint64_t key) const {
  return {.partition = PartitionOf(key, partitions_.partition_count()).value(), .key = key};
}

void TableTier::Added(uint64_t rows, uint64_t brought) {
  rows_.fetch_add(static_cast<int64_t>(rows), std::memory_order_relaxed);
  cold_rows_.fetch_sub(static_cast<int64_t>(brought), std::memory_order_relaxed);
  options_.budget->Charge(static_cast<int64_t>(rows * row_bytes_));
}

void TableTier::Erased(uint64_t rows) {
  rows_.fetch_sub(static_cast<int64_t>(rows), std::memory_order_relaxed);
  cold_rows_.fetch_add(static_cast<int64_t>(rows), std::memory_order_relaxed);
  evicted_.fetch_add(rows, std::memory_order_relaxed);
  options_.budget->Charge(-static_cast<int64_t>(rows * row_bytes_));
}

absl::Status TableTier::WaitForRoom() const {
  // A disk that takes no rows makes no room: the threads of the ps do not wait for it.
  const bool stuck = !options_.evictor->last_error().ok();
  if (options_.budget->WaitForRoom(stuck ? absl::ZeroDuration() : options_.room_limit)) {
    return absl::OkStatus();
  }
  const absl::Status why = options_.evictor->last_error();
  if (absl::IsDataLoss(why)) return why;  // waiting does not mend a disk
  return absl::ResourceExhaustedError(absl::StrCat(
      "the memory for rows is full: ", options_.budget->used(), " of ", options_.budget->bytes(),
      " bytes (--memory), and no row could leave it",
      why.ok()
          ? absl::StrCat(" for ", absl::FormatDuration(options_.room_limit), "; try again later")
          : absl::StrCat(": ", why.message())));
}

absl::Status TableTier::Rounds(
    absl::Span<const uint64_t> keys,
    absl::FunctionRef<void(absl::Span<const uint64_t>, absl::Span<const uint32_t>, AbsentRows*)>
        pass,
    std::vector<uint32_t>* absent) {
  Misses misses(*this, absent);
  std::vector<uint64_t> left_keys;
  std::vector<uint32_t> left_positions;
  const auto run = [&](absl::Span<const uint64_t> of_round) {
    pass(of_round, left_positions, &misses);
    uint64_t created = 0, brought = 0, repeated = 0;
    misses.TakeCounts(created, brought, repeated);
    repeated_.fetch_add(repeated, std::memory_order_relaxed);
    if (created + brought > 0) Added(created + brought, brought);
  };
  run(keys);
  for (int round = 1; !misses.done() && round <= kFreeRounds; ++round) {
    TESSERA_RETURN_IF_ERROR(misses.Read(left_keys, left_positions));
    run(left_keys);
  }
  if (misses.done()) return absl::OkStatus();
  // What was asked before the lock may be stale once more, and what is asked under it is not.
  absl::ReaderMutexLock lock(&evict_mu_);
  while (!misses.done()) {
    TESSERA_RETURN_IF_ERROR(misses.Read(left_keys, left_positions));
    run(left_keys);
  }
  return absl::OkStatus();
}

absl::StatusOr<RowCounts> TableTier::FindOrCreate(absl::Span<const uint64_t> keys, float* values,
                                                  uint8_t* statuses) {
  TESSERA_RETURN_IF_ERROR(WaitForRoom());
  return FindInMemory(keys, values, statuses, nullptr);
}

absl::StatusOr<RowCounts> TableTier::FindOrBring(absl::Span<const uint64_t> keys, float* values,
                                                 uint8_t* statuses) {
  std::vector<uint32_t> absent;
  TESSERA_ASSIGN_OR_RETURN(RowCounts counts, FindInMemory(keys, values, statuses, &absent));
  const uint32_t dim = store_.layout().dim();
  for (const uint32_t p : absent) {
    store_.FillInitial(keys[p], {values + size_t{p} * dim, dim});
    statuses[p] = v1::ROW_ABSENT;
  }
  counts.absent = absent.size();
  counts.hits -= absent.size();
  return counts;
}

absl::StatusOr<RowCounts> TableTier::FindInMemory(absl::Span<const uint64_t> keys, float* values,
                                                  uint8_t* statuses,
                                                  std::vector<uint32_t>* absent) {
  const uint32_t dim = store_.layout().dim();
  RowCounts sum;
  std::vector<float> some_values;
  std::vector<uint8_t> some_statuses;
  const auto pass = [&](absl::Span<const uint64_t> of_round, absl::Span<const uint32_t> positions,
                        AbsentRows* misses) {
    const bool first = positions.empty();
    if (!first) {
      some_values.resize(of_round.size() * dim);
      // Places that are left out once more are written again by a later round.
      some_statuses.assign(of_round.size(), 0);
    }
    const RowCounts counts = store_.FindOrCreate(of_round, first ? values : some_values.data(),
                                                 first ? statuses : some_statuses.data(), misses);
    sum.hits += counts.hits;
    sum.created += counts.created;
    for (size_t i = 0; i < positions.size(); ++i) {
      std::copy_n(some_values.data() + i * dim, dim, values + size_t{positions[i]} * dim);
      statuses[positions[i]] = some_statuses[i];
    }
  };
  TESSERA_RETURN_IF_ERROR(Rounds(keys, pass, absent));
  // A key that had to be read was a hit of this table, though not of its memory.
  sum.hits = keys.size() - sum.created;
  return sum;
}

absl::StatusOr<RowCounts> TableTier::Find(absl::Span<const uint64_t> keys, float* values,
                                          uint8_t* statuses) const {
  RowCounts counts = store_.Find(keys, values, statuses);
  if (counts.absent == 0) return counts;
  // What was in no memory a moment ago was on disk then, or nowhere; what is there now is at least
  // as new.
  std::vector<uint32_t> positions;
  std::vector<uint64_t> absent;
  for (uint32_t i = 0; i < keys.size(); ++i) {
    if (statuses[i] != v1::ROW_ABSENT) continue;
    positions.push_back(i);
    absent.push_back(keys[i]);
  }
  std::vector<uint8_t> may(absent.size());
  if (cold_.MayContain(options_.cold_table, absent, may.data()) == 0) return counts;
  std::vector<ColdKey> places;
  for (size_t i = 0; i < absent.size(); ++i) {
    if (may[i]) places.push_back(PlaceOf(absent[i]));
  }
  TESSERA_ASSIGN_OR_RETURN(const Found read,
                           ReadRows(cold_, options_.cold_table, record_bytes_, std::move(places)));
  cold_reads_.fetch_add(read.keys.size(), std::memory_order_relaxed);
  const uint32_t dim = store_.layout().dim();
  for (size_t i = 0; i < absent.size(); ++i) {
    if (!may[i]) continue;
    const size_t place = read.PlaceOf(PlaceOf(absent[i]));
    if (!read.found[place]) continue;
    store_.layout().ReadEmbedding(read.blocks->row(place), values + size_t{positions[i]} * dim);
    statuses[positions[i]] = v1::ROW_HIT;
    --counts.absent;
    ++counts.hits;
  }
  return counts;
}

absl::Status TableTier::Bring(absl::Span<const uint64_t> keys, std::vector<uint64_t>& absent) {
  std::vector<uint64_t> cold;
  store_.AppendAbsent(keys, cold);
  if (cold.empty()) return absl::OkStatus();
  std::vector<float> values(cold.size() * store_.layout().dim());
  std::vector<uint8_t> statuses(cold.size());
  std::vector<uint32_t> nowhere;
  TESSERA_RETURN_IF_ERROR(FindInMemory(cold, values.data(), statuses.data(), &nowhere).status());
  for (const uint32_t p : nowhere) absent.push_back(cold[p]);
  return absl::OkStatus();
}

absl::Status TableTier::Update(
    absl::Span<const uint64_t> keys,
    absl::FunctionRef<void(absl::Span<Row* const>, absl::Span<const uint32_t>)> change) {
  std::vector<uint32_t> mapped;
  return Rounds(keys, [&](absl::Span<const uint64_t> of_round, absl::Span<const uint32_t> of_call,
                          AbsentRows* misses) {
    if (of_call.empty()) return store_.Update(of_round, change, misses);
    store_.Update(
        of_round,
        [&](absl::Span<Row* const> rows, absl::Span<const uint32_t> positions) {
          mapped.resize(positions.size());
          for (size_t i = 0; i < positions.size(); ++i) mapped[i] = of_call[positions[i]];
          change(rows, mapped);
        },
        misses);
  });
}

absl::StatusOr<RowCounts> TableTier::InsertIfAbsent(absl::Span<const uint64_t> keys,
                                                    const float* values) {
  TESSERA_RETURN_IF_ERROR(WaitForRoom());
  const uint32_t dim = store_.layout().dim();
  RowCounts sum;
  std::vector<float> some;
  TESSERA_RETURN_IF_ERROR(Rounds(keys, [&](absl::Span<const uint64_t> of_round,
                                           absl::Span<const uint32_t> positions,
                                           AbsentRows* misses) {
    some.clear();
    for (const uint32_t p : positions) {
      some.insert(some.end(), values + size_t{p} * dim, values + (size_t{p} + 1) * dim);
    }
    sum.created +=
        store_.InsertIfAbsent(of_round, positions.empty() ? values : some.data(), misses).created;
  }));
  sum.hits = keys.size() - sum.created;
  return sum;
}

absl::Status TableTier::Insert(absl::Span<const RowRecord> records) {
  TESSERA_RETURN_IF_ERROR(WaitForRoom());
  std::vector<uint64_t> keys;
  for (const RowRecord& record : records) keys.push_back(record.key);
  return Update(keys, [&](absl::Span<Row* const> rows, absl::Span<const uint32_t> positions) {
    for (size_t i = 0; i < rows.size(); ++i) store_.Assign(records[positions[i]], rows[i]);
  });
}

uint64_t TableTier::BeginCut(bool all) {
  Cut cut;
  cut.all = all;
  // No row leaves between the moment in memory and that on disk.
  absl::MutexLock lock(&evict_mu_);
  const uint64_t rows = store_.BeginCut(all);
  for (const PartitionId partition : partitions_.owned()) {
    cut.left.push_back(store_.TakeLeft(partition).value_or(std::vector<uint64_t>()));
  }
  cut.disk = cold_.TakeSnapshot();
  if (all) cut.scan = cold_.Scan(options_.cold_table, cut.disk.get());
  cut_ = std::move(cut);
  return rows;
}

absl::Status TableTier::VisitCutBelow(
    PartitionId partition, absl::FunctionRef<absl::Status(absl::Span<const Row* const>)> visit) {
  std::vector<const Row*> rows;
  if (cut_->all) {
    std::vector<char> bytes;
    TESSERA_RETURN_IF_ERROR(cut_->scan->Visit(partition.value(), [&](uint64_t, const char* record) {
      bytes.insert(bytes.end(), record, record + record_bytes_);
      return absl::OkStatus();
    }));
    // Allocated by operator new: aligned to 16 bytes, as records are.
    for (size_t at = 0; at < bytes.size(); at += record_bytes_) {
      rows.push_back(reinterpret_cast<const Row*>(bytes.data() + at));
    }
    return visit(rows);
  }
  std::vector<ColdKey> places;
  for (const uint64_t key : cut_->left[partitions_.IndexOf(partition)]) {
    places.push_back({.partition = partition.value(), .key = key});
  }
  TESSERA_ASSIGN_OR_RETURN(const Found read, ReadRows(cold_, options_.cold_table, record_bytes_,
                                                      std::move(places), cut_->disk.get()));
  for (size_t i = 0; i < read.keys.size(); ++i) {
    if (!read.found[i]) return LeftNowhere(read.keys[i]);
    rows.push_back(read.blocks->row(i));
  }
  return visit(rows);
}

void TableTier::DropCut() {
  store_.DropCut();
  cut_.reset();
}

TableTier::Taken TableTier::TakeRows(PartitionId partition, bool changed,
                                     absl::FunctionRef<void(absl::Span<const Row* const>)> take) {
  std::vector<uint64_t> handed_out;
  std::optional<std::vector<uint64_t>> left;
  {
    // No row leaves between the two.
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
  // What has left may be back, and newer.
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
    TESSERA_ASSIGN_OR_RETURN(
        const Found read, ReadRows(cold_, options_.cold_table, record_bytes_, std::move(places)));
    for (size_t i = 0; i < read.keys.size(); ++i) {
      if (!read.found[i]) return LeftNowhere(read.keys[i]);
      rows.push_back(read.blocks->row(i));
    }
    if (!rows.empty()) take(rows);
    return absl::OkStatus();
  }
  Blocks blocks(kReadPiece, record_bytes_);
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
        rows.push_back(blocks.row(rows.size()));
        if (rows.size() == kReadPiece) hand_out();
        return absl::OkStatus();
      }));
  hand_out();
  return absl::OkStatus();
}

void TableTier::TakeOver(TableTier& from) {
  // A batch that is on its way to disk would come behind what this one writes there.
  from.StopEvicting();
  const uint64_t rows_there = from.row_bytes();
  from.rows_ = 0;
  from.cold_rows_ = 0;
  options_.budget->Charge(-static_cast<int64_t>(rows_there));
  const RowStore::TakenOver taken = store_.TakeOver(from.store_);
  Added(taken.rows, 0);
  cold_rows_.fetch_add(static_cast<int64_t>(taken.rows_made - taken.rows),
                       std::memory_order_relaxed);
  if (from.counts_cold_.exchange(false)) counts_cold_ = true;
}

void TableTier::StopEvicting() {
  stopped_ = true;
  options_.evictor->Remove(this);
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

absl::StatusOr<uint64_t> TableTier::Evict(uint64_t bytes) {
  const absl::Span<const PartitionId> owned = partitions_.owned();
  Leaving leaving(record_bytes_);
  leaving.bytes.reserve(options_.eviction_bytes + record_bytes_);
  uint64_t freed = 0;
  const uint64_t batch_rows = options_.eviction_bytes / record_bytes_ + 1;
  for (size_t visited = 0; visited < owned.size() && freed < bytes && !stopped_;) {
    // Rows that are being written will be free.
    const uint64_t expected = freed + leaving.rows * row_bytes_;
    if (expected < bytes) {
      const PartitionId partition = owned[hand_];
      hand_ = hand_ + 1 == owned.size() ? 0 : hand_ + 1;
      ++visited;
      const uint64_t most = std::min((bytes - expected) / row_bytes_ + 1, batch_rows);
      leaving.partitions.push_back({.partition = partition, .keys = {}});
      absl::MutexLock lock(&evict_mu_);
      const uint64_t erased =
          store_.Sweep(partition, most, clock_, [&](const Row& row) { leaving.Add(row); });
      Erased(erased);
      freed += erased * row_bytes_;
    }
    // A partition is visited once in a batch: none of its rows is in it twice.
    const bool last = visited == owned.size() || hand_ == 0;
    if (expected >= bytes || last || leaving.bytes.size() >= options_.eviction_bytes) {
      TESSERA_ASSIGN_OR_RETURN(const uint64_t written, WriteLeaving(leaving));
      freed += written;
    }
  }
  TESSERA_ASSIGN_OR_RETURN(const uint64_t written, WriteLeaving(leaving));
  return freed + written;
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
    for (const Leaving::Partition& partition : leaving.partitions) {
      if (partition.keys.empty()) continue;
      erased += store_.EndLeaving(partition.partition, partition.keys, !status.ok());
    }
  }
  spilled_.fetch_add(leaving.rows, std::memory_order_relaxed);
  Erased(erased);
  leaving.Clear();
  TESSERA_RETURN_IF_ERROR(status);
  return erased * row_bytes_;
}

TableTier::Stats TableTier::stats() const {
  return {.cold_rows = static_cast<uint64_t>(
              std::max<int64_t>(0, cold_rows_.load(std::memory_order_relaxed))),
          .cold_reads = cold_reads_.load(std::memory_order_relaxed),
          .evicted_rows = evicted_.load(std::memory_order_relaxed),
          .spilled_rows = spilled_.load(std::memory_order_relaxed),
          .repeated_reads = repeated_.load(std::memory_order_relaxed)};
}

}  // namespace tessera::ps
