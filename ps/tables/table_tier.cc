#include "ps/tables/table_tier.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/partition.h"
#include "common/status_macros.h"
#include "ps/tables/cold_rows.h"
#include "ps/tables/evictor.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {
namespace {

// A row's entry in its map.
constexpr uint64_t kEntryBytes = 12;
// Rounds in which a batch's rows may come and go while they are read; after them eviction waits for
// the batch.
constexpr int kFreeRounds = 2;
// Floats of the rows brought at a time when no caller wants their values: 4 MiB.
constexpr size_t kBroughtFloats = 1 << 20;

}  // namespace

// One call's answers about keys that are not in memory.
class TableTier::Misses final : public AbsentRows {
 public:
  // See Rounds.
  Misses(const TableTier& tier, std::vector<uint32_t>* absent) : tier_(tier), absent_(absent) {}

  Answer Ask(const Question& question, const Row** row) override {
    // In the first round a key has no answer yet; in a later round positions are those in `left_`.
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
    const bool found = read_.found[place];
    const bool expired = found && tier_.HasExpired(*read_.blocks->row(place));
    // An expired row counts as none for a caller that wants no new rows.
    if (!found || (expired && absent_ != nullptr)) {
      return New(asked_[question.position].position);
    }
    ++from_disk_;
    if (expired) return Answer::kReplace;
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
    TESSERA_ASSIGN_OR_RETURN(read_, ReadColdRows(tier_.cold_, tier_.options_.cold_table,
                                                 tier_.record_bytes_, std::move(places)));
    tier_.cold_reads_.fetch_add(read_.keys.size(), std::memory_order_relaxed);
    places_.clear();
    for (const uint64_t key : keys) places_.push_back(read_.PlaceOf(tier_.PlaceOf(key)));
    return absl::OkStatus();
  }

  // Counts since the last call of this.
  void TakeCounts(uint64_t& created, uint64_t& from_disk, uint64_t& repeated) {
    created = std::exchange(created_, 0);
    from_disk = std::exchange(from_disk_, 0);
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
  std::vector<Question> left_;   // left out in this round; positions in the call's batch
  std::vector<Question> asked_;  // the keys of this round, by position in it
  ColdRows read_;
  std::vector<size_t> places_;  // where the answers to asked_ are in read_
  uint64_t created_ = 0;        // for keys that the disk does not have
  uint64_t from_disk_ = 0;      // brought, or made in place of one that has expired on disk
  uint64_t repeated_ = 0;
};

TableTier::TableTier(const Options& options, const PartitionSet* partitions, const Expiry& expiry,
                     RowStore* store)
    : options_(options),
      partitions_(*partitions),
      expiry_(expiry),
      store_(*store),
      cold_(*options.cold),
      record_bytes_(RecordBytes(store->layout())),
      row_bytes_(record_bytes_ + kEntryBytes),
      counts_cold_(!options.shares_cold) {
  // Slabs are small against a stripe's share, so that all stripes get theirs.
  store_.PrepareToEvict(options.budget->bytes() / KeyBatch::kStripes / 32);
  options_.evictor->Add(this);
}

TableTier::~TableTier() {
  options_.evictor->Remove(this);
  options_.budget->Charge(-static_cast<int64_t>(row_bytes()));
  options_.budget->ChargePages(-static_cast<int64_t>(page_bytes()));
}

ColdKey TableTier::PlaceOf(uint64_t key) const {
  return {.partition = PartitionOf(key, partitions_.partition_count()).value(), .key = key};
}

void TableTier::Added(uint64_t rows, uint64_t from_disk) {
  rows_.fetch_add(static_cast<int64_t>(rows - from_disk), std::memory_order_relaxed);
  memory_rows_.fetch_add(static_cast<int64_t>(rows), std::memory_order_relaxed);
  options_.budget->Charge(static_cast<int64_t>(rows * row_bytes_));
  RaisePages();
}

void TableTier::RaisePages() {
  const int64_t now = memory_rows_.load(std::memory_order_relaxed);
  int64_t most = most_rows_.load(std::memory_order_relaxed);
  while (now > most) {
    if (!most_rows_.compare_exchange_weak(most, now, std::memory_order_relaxed)) continue;
    options_.budget->ChargePages((now - most) * static_cast<int64_t>(row_bytes_));
    return;
  }
}

void TableTier::LowerPages(int64_t rows) {
  int64_t most = most_rows_.load(std::memory_order_relaxed);
  int64_t less = 0;
  do {
    less = std::max(most - rows, memory_rows_.load(std::memory_order_relaxed));
    if (less >= most) return;
  } while (!most_rows_.compare_exchange_weak(most, less, std::memory_order_relaxed));
  options_.budget->ChargePages((less - most) * static_cast<int64_t>(row_bytes_));
}

void TableTier::FreedMemory(uint64_t rows) {
  memory_rows_.fetch_sub(static_cast<int64_t>(rows), std::memory_order_relaxed);
  options_.budget->Charge(-static_cast<int64_t>(rows * row_bytes_));
}

void TableTier::Gone(uint64_t rows) {
  rows_.fetch_sub(static_cast<int64_t>(rows), std::memory_order_relaxed);
  FreedMemory(rows);
}

void TableTier::Left(uint64_t rows) {
  FreedMemory(rows);
  evicted_.fetch_add(rows, std::memory_order_relaxed);
}

absl::Status TableTier::WaitForRoom() const {
  // If the disk takes no rows, no room comes: the threads of the ps do not wait for it.
  const bool stuck = !eviction_error().ok();
  if (options_.budget->WaitForRoom(stuck ? absl::ZeroDuration() : options_.room_limit)) {
    return absl::OkStatus();
  }
  const absl::Status why = eviction_error();
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
    // Counts even if memory did not suffice for the pass.
    const absl::Cleanup count = [&] {
      uint64_t created = 0, from_disk = 0, repeated = 0;
      misses.TakeCounts(created, from_disk, repeated);
      repeated_.fetch_add(repeated, std::memory_order_relaxed);
      if (created + from_disk > 0) Added(created + from_disk, from_disk);
    };
    pass(of_round, left_positions, &misses);
  };
  run(keys);
  if (misses.done()) return absl::OkStatus();
  absl::ReaderMutexLock not_erased(&erase_mu_);
  for (int round = 1; !misses.done() && round <= kFreeRounds; ++round) {
    TESSERA_RETURN_IF_ERROR(misses.Read(left_keys, left_positions));
    run(left_keys);
  }
  if (misses.done()) return absl::OkStatus();
  // Answers from before the lock may be stale once more, those under it are not.
  absl::ReaderMutexLock lock(&evict_mu_);
  while (!misses.done()) {
    TESSERA_RETURN_IF_ERROR(misses.Read(left_keys, left_positions));
    run(left_keys);
  }
  return absl::OkStatus();
}

absl::StatusOr<RowCounts> TableTier::FindOrCreate(absl::Span<const uint64_t> keys, float* values,
                                                  uint8_t* statuses, RowPart part) {
  TESSERA_RETURN_IF_ERROR(WaitForRoom());
  return FindInMemory(keys, values, statuses, nullptr, part);
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
                                                  uint8_t* statuses, std::vector<uint32_t>* absent,
                                                  RowPart part) {
  const uint32_t floats = store_.layout().floats(part);
  RowCounts sum;
  std::vector<float> some_values;
  std::vector<uint8_t> some_statuses;
  const auto pass = [&](absl::Span<const uint64_t> of_round, absl::Span<const uint32_t> positions,
                        AbsentRows* misses) {
    const bool first = positions.empty();
    if (!first) {
      some_values.resize(of_round.size() * floats);
      // A later round writes again the places that are left out once more.
      some_statuses.assign(of_round.size(), 0);
    }
    const RowCounts counts =
        store_.FindOrCreate(of_round, first ? values : some_values.data(),
                            first ? statuses : some_statuses.data(), misses, part);
    sum.hits += counts.hits;
    sum.created += counts.created;
    for (size_t i = 0; i < positions.size(); ++i) {
      std::copy_n(some_values.data() + i * floats, floats, values + size_t{positions[i]} * floats);
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
  // A row that was not in memory a moment ago was on disk then, or nowhere; a row that is in memory
  // now is at least as new.
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
  TESSERA_ASSIGN_OR_RETURN(const ColdRows read, ReadColdRows(cold_, options_.cold_table,
                                                             record_bytes_, std::move(places)));
  cold_reads_.fetch_add(read.keys.size(), std::memory_order_relaxed);
  const uint32_t dim = store_.layout().dim();
  for (size_t i = 0; i < absent.size(); ++i) {
    if (!may[i]) continue;
    const size_t place = read.PlaceOf(PlaceOf(absent[i]));
    if (!read.found[place] || HasExpired(*read.blocks->row(place))) continue;
    store_.layout().ReadEmbedding(read.blocks->row(place), values + size_t{positions[i]} * dim);
    statuses[positions[i]] = v1::ROW_HIT;
    --counts.absent;
    ++counts.hits;
  }
  return counts;
}

absl::Status TableTier::Bring(absl::Span<const uint64_t> keys, std::vector<uint64_t>& absent) {
  // Keys that nobody has ever pushed may be any number: they take no memory.
  std::vector<uint64_t> cold;
  store_.AppendAbsent(keys, cold);
  std::vector<uint8_t> may(cold.size());
  cold_.MayContain(options_.cold_table, cold, may.data());
  size_t left = 0;
  for (size_t i = 0; i < cold.size(); ++i) {
    if (may[i]) {
      cold[left++] = cold[i];
    } else {
      absent.push_back(cold[i]);
    }
  }
  cold.resize(left);
  const uint32_t dim = store_.layout().dim();
  const size_t piece_keys = std::max<size_t>(1, kBroughtFloats / dim);
  std::vector<float> values(std::min(cold.size(), piece_keys) * dim);
  std::vector<uint8_t> statuses(std::min(cold.size(), piece_keys));
  std::vector<uint32_t> nowhere;
  for (size_t begin = 0; begin < cold.size(); begin += piece_keys) {
    const auto piece = absl::MakeConstSpan(cold).subspan(begin, piece_keys);
    nowhere.clear();
    TESSERA_RETURN_IF_ERROR(FindInMemory(piece, values.data(), statuses.data(), &nowhere).status());
    for (const uint32_t p : nowhere) absent.push_back(piece[p]);
  }
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

uint64_t TableTier::coming_bytes() const {
  if (!counts_cold_) return 0;
  // Filters grow in large steps: what is there may be less than its part for the rows on disk.
  const uint64_t expected = kBytesBelow * stats().rows;
  return expected - std::min(expected, cold_.MemoryBytes(options_.cold_table));
}

void TableTier::StopEvicting() {
  stopped_ = true;
  options_.evictor->Remove(this);
}

TableTier::Stats TableTier::stats() const {
  const int64_t rows = std::max<int64_t>(0, rows_.load(std::memory_order_relaxed));
  const int64_t cold = std::max<int64_t>(0, rows - memory_rows_.load(std::memory_order_relaxed));
  return {.rows = static_cast<uint64_t>(rows),
          .cold_rows = static_cast<uint64_t>(std::min(cold, rows)),
          .cold_reads = cold_reads_.load(std::memory_order_relaxed),
          .evicted_rows = evicted_.load(std::memory_order_relaxed),
          .spilled_rows = spilled_.load(std::memory_order_relaxed),
          .repeated_reads = repeated_.load(std::memory_order_relaxed),
          .expired_on_disk = expired_on_disk_.load(std::memory_order_relaxed)};
}

}  // namespace tessera::ps
