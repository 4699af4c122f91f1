#include "ps/tables/table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/math/bfloat16.h"
#include "common/status_macros.h"
#include "ps/memory/scratch.h"
#include "ps/rows/row_expiry.h"

namespace tessera::ps {
namespace {

struct Floats {
  std::vector<float> numbers;
  size_t bytes() const { return 4 * numbers.capacity(); }
};
// How many keys' rows are converted between float32 and bfloat16 at a time: a MiB of floats, or a
// row.
size_t WidePiece(uint32_t dim) { return std::max<size_t>(1, (256 << 10) / dim); }

}  // namespace

absl::StatusOr<std::unique_ptr<Table>> Table::New(const v1::PsTable& spec, uint64_t seed,
                                                  const PartitionSet* partitions) {
  const v1::TableSpec& table = spec.spec();
  if (table.name().empty()) return absl::InvalidArgumentError("a table has no name");
  if (table.dim() == 0 || table.dim() > kMaxDim) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table.name(), ": dim is ", table.dim(),
                                                   ", expected 1 to ", kMaxDim));
  }
  TESSERA_ASSIGN_OR_RETURN(Initializer initializer,
                           Initializer::New(table.initializer(), seed, table.name()));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<RowOptimizer> optimizer, NewRowOptimizer(table, seed));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Admission> admission,
                           Admission::New(table.admission(), seed, table.name(), partitions));
  TESSERA_ASSIGN_OR_RETURN(const Expiry expiry, Expiry::New(table.expiry(), table.name()));
  RowTemplate row_template = {.layout = optimizer->layout(),
                              .initializer = initializer,
                              .slots = optimizer->InitialSlots()};
  return std::unique_ptr<Table>(new Table(spec, std::move(optimizer), std::move(admission), expiry,
                                          std::move(row_template), partitions));
}

Table::Table(const v1::PsTable& spec, std::unique_ptr<RowOptimizer> optimizer,
             std::unique_ptr<Admission> admission, Expiry expiry, RowTemplate row_template,
             const PartitionSet* partitions)
    : spec_(spec),
      optimizer_(std::move(optimizer)),
      admission_(std::move(admission)),
      expiry_(expiry),
      partitions_(*partitions),
      store_(std::move(row_template), partitions) {}

Table::~Table() {
  if (limit_ != nullptr) limit_->Remove(this);
}

TableTier* Table::Attach(const TableTier::Options& options) {
  tier_ = std::make_unique<TableTier>(options, &partitions_, expiry_, &store_);
  return tier_.get();
}

uint64_t Table::rows() const { return tier_ != nullptr ? tier_->stats().rows : store_.rows(); }

absl::Status Table::Pull(absl::Span<const uint64_t> keys, bool read_only, void* values,
                         uint8_t* statuses, RowPart part) {
  if (!wire_bfloat16() || part == RowPart::kWhole) {
    return PullFloats(keys, read_only, static_cast<float*>(values), statuses, part);
  }
  auto* halves = static_cast<uint16_t*>(values);
  const Scratch<Floats> wide;
  while (!keys.empty()) {
    const absl::Span<const uint64_t> piece = keys.first(std::min(keys.size(), WidePiece(dim())));
    wide->numbers.resize(piece.size() * dim());
    TESSERA_RETURN_IF_ERROR(PullFloats(piece, read_only, wide->numbers.data(), statuses, part));
    math::RoundToBfloat16(wide->numbers.data(), wide->numbers.size(), halves);
    keys.remove_prefix(piece.size());
    statuses += piece.size();
    halves += wide->numbers.size();
  }
  return absl::OkStatus();
}

absl::Status Table::PullFloats(absl::Span<const uint64_t> keys, bool read_only, float* values,
                               uint8_t* statuses, RowPart part) {
  TESSERA_ASSIGN_OR_RETURN(RowCounts counts, FindOrMake(keys, read_only, values, statuses, part));
  if (dense() && counts.absent > 0) {
    TESSERA_RETURN_IF_ERROR(CheckAssigned(keys));
    // They have been assigned since.
    TESSERA_ASSIGN_OR_RETURN(counts, FindOrMake(keys, read_only, values, statuses, part));
  }
  Count(counts);
  return absl::OkStatus();
}

absl::StatusOr<RowCounts> Table::FindOrMake(absl::Span<const uint64_t> keys, bool read_only,
                                            float* values, uint8_t* statuses, RowPart part) {
  if (dense() && part == RowPart::kWhole) {
    TESSERA_RETURN_IF_ERROR(CheckAssigned(keys));
    return store_.FindOrCreate(keys, values, statuses, nullptr, part);
  }
  if (read_only || dense()) {
    if (tier_ != nullptr) return FromTier(tier_->Find(keys, values, statuses));
    return store_.Find(keys, values, statuses);
  }
  if (admission_ != nullptr) return PullAdmitted(keys, values, statuses);
  TESSERA_ASSIGN_OR_RETURN(RowLimit::Room room, TakeRoom(keys, /*may_last=*/true));
  TESSERA_ASSIGN_OR_RETURN(const RowCounts counts, FindOrCreate(keys, values, statuses, part));
  room.Use(counts.created * room_of_row());
  return counts;
}

absl::StatusOr<RowCounts> Table::FindOrCreate(absl::Span<const uint64_t> keys, float* values,
                                              uint8_t* statuses, RowPart part) {
  if (tier_ != nullptr) return FromTier(tier_->FindOrCreate(keys, values, statuses, part));
  return store_.FindOrCreate(keys, values, statuses, nullptr, part);
}

absl::Status Table::AppendAbsent(absl::Span<const uint64_t> keys, std::vector<uint64_t>& absent) {
  if (tier_ == nullptr) {
    store_.AppendAbsent(keys, absent);
    return absl::OkStatus();
  }
  // The caller is about to change the rows that are on disk, so they are brought.
  return tier_->Bring(keys, absent);
}

absl::Status Table::LookAhead(absl::Span<const uint64_t> keys) {
  if (!has_cold_rows()) return absl::OkStatus();
  // In pieces: between two checks of the room in --memory only a small part of it comes.
  constexpr size_t kPiece = 1 << 14;
  for (size_t begin = 0; begin < keys.size(); begin += kPiece) {
    TESSERA_RETURN_IF_ERROR(FromTier(tier_->WaitForRoom()));
    std::vector<uint64_t> absent;
    TESSERA_RETURN_IF_ERROR(FromTier(tier_->Bring(keys.subspan(begin, kPiece), absent)));
  }
  return absl::OkStatus();
}

absl::Status Table::FromTier(const absl::Status& status) const {
  if (!absl::IsDataLoss(status)) return WithContext(status, absl::StrCat("table ", name()));
  return absl::AbortedError(absl::StrCat(
      "table ", name(), ": ", status.message(),
      "; the disk of --spill-dir is scratch: the job goes on from its last checkpoint"));
}

absl::Status Table::Assign(const Gradients& values) {
  if (!wire_bfloat16()) return AssignFloats(values.keys, static_cast<const float*>(values.values));
  const auto* halves = static_cast<const uint16_t*>(values.values);
  std::vector<float> wide;
  for (absl::Span<const uint64_t> keys = values.keys; !keys.empty();) {
    const absl::Span<const uint64_t> piece = keys.first(std::min(keys.size(), WidePiece(dim())));
    wide.resize(piece.size() * dim());
    math::WidenBfloat16(halves, wide.size(), wide.data());
    TESSERA_RETURN_IF_ERROR(AssignFloats(piece, wide.data()));
    keys.remove_prefix(piece.size());
    halves += wide.size();
  }
  return absl::OkStatus();
}

absl::Status Table::AssignFloats(absl::Span<const uint64_t> keys, const float* values) {
  TESSERA_ASSIGN_OR_RETURN(RowLimit::Room room, TakeRoom(keys, /*may_last=*/false));
  RowCounts counts;
  if (tier_ != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(counts, FromTier(tier_->InsertIfAbsent(keys, values)));
  } else {
    counts = store_.InsertIfAbsent(keys, values);
  }
  room.Use(counts.created * room_of_row());
  Count(counts);
  return absl::OkStatus();
}

absl::Status Table::Restore(absl::Span<const RowRecord> rows) {
  if (dense()) TESSERA_RETURN_IF_ERROR(CheckCut(rows));
  std::vector<uint64_t> keys;
  keys.reserve(rows.size());
  for (const RowRecord& row : rows) keys.push_back(row.key);
  TESSERA_ASSIGN_OR_RETURN(RowLimit::Room room, TakeRoom(keys, /*may_last=*/false));
  if (tier_ != nullptr) {
    TESSERA_RETURN_IF_ERROR(FromTier(tier_->Insert(rows)));
  } else {
    store_.Insert(rows);
  }
  room.Use(rows.size() * room_of_row());
  return absl::OkStatus();
}

absl::Status Table::Fill(
    PartitionId partition, uint64_t rows,
    absl::FunctionRef<void(uint64_t first, absl::Span<RowRecord> records)> read) {
  TESSERA_ASSIGN_OR_RETURN(RowLimit::Room room, TakeRoomFor(rows, /*may_last=*/false));
  store_.Fill(partition, rows, read);
  room.Use(rows * room_of_row());
  return absl::OkStatus();
}

absl::Status Table::Expire(uint64_t applied_steps) {
  if (!expiry_.active()) return absl::OkStatus();
  if (tier_ != nullptr) {
    const absl::StatusOr<uint64_t> in_memory = tier_->Expire(applied_steps);
    if (!in_memory.ok()) return FromTier(in_memory.status());
    expired_.fetch_add(*in_memory, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  uint64_t expired = 0;
  for (const PartitionId partition : partitions_.owned()) {
    expired += store_.EraseIf(partition, [&](const Row& row) {
      return ExpiryTakes(expiry_, row, store_.layout(), applied_steps);
    });
  }
  expired_.fetch_add(expired, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Table::CountExpirable(uint64_t applied_steps) const {
  if (!expiry_.active()) return 0;
  uint64_t rows = 0;
  if (tier_ != nullptr) {
    const absl::StatusOr<uint64_t> on_disk = tier_->CountExpirable(applied_steps);
    if (!on_disk.ok()) return FromTier(on_disk.status());
    rows = *on_disk;
  }
  for (const PartitionId partition : partitions_.owned()) {
    store_.VisitPartition(partition, [&](absl::Span<const Row* const> all) {
      for (const Row* row : all) rows += ExpiryTakes(expiry_, *row, store_.layout(), applied_steps);
    });
  }
  return rows;
}

void Table::Count(const RowCounts& counts) {
  hits_.fetch_add(counts.hits, std::memory_order_relaxed);
  created_.fetch_add(counts.created, std::memory_order_relaxed);
  absent_.fetch_add(counts.absent, std::memory_order_relaxed);
}

TableTier::Taken Table::TakeRows(PartitionId partition, bool changed,
                                 absl::FunctionRef<void(absl::Span<const Row* const>)> take) {
  if (tier_ != nullptr) return tier_->TakeRows(partition, changed, take);
  store_.TakeRows(partition, changed, take);
  return {.partition = partition, .keys = {}};
}

absl::Status Table::ReadTaken(const TableTier::Taken& taken,
                              absl::FunctionRef<void(absl::Span<const Row* const>)> take) {
  return tier_ == nullptr ? absl::OkStatus() : FromTier(tier_->ReadTaken(taken, take));
}

void Table::PrepareToTakeOver(const Table& other) {
  store_.PrepareToTakeOver(other.store_);
  if (tier_ != nullptr) tier_->GoOnFrom(*other.tier_);
}

void Table::TakeOver(Table& other) {
  if (counts_sightings()) admission_->TakeOver(*other.admission_);
  tier_ != nullptr ? tier_->TakeOver(*other.tier_) : void(store_.TakeOver(other.store_));
}

absl::Status Table::FreeOthers() {
  store_.FreeDropped();
  return tier_ == nullptr ? absl::OkStatus() : FromTier(tier_->EraseOthersBelow());
}

v1::TableStats Table::Stats() const {
  v1::TableStats stats;
  stats.set_name(name());
  stats.set_bytes(store_.bytes() + (admission_ != nullptr ? admission_->bytes() : 0));
  stats.set_hits(hits_.load(std::memory_order_relaxed));
  stats.set_created(created_.load(std::memory_order_relaxed));
  stats.set_absent(absent_.load(std::memory_order_relaxed));
  stats.set_not_admitted(not_admitted_.load(std::memory_order_relaxed));
  stats.set_dropped_gradients(dropped_gradients_.load(std::memory_order_relaxed));
  stats.set_expired(expired_.load(std::memory_order_relaxed));
  if (tier_ == nullptr) {
    stats.set_rows(store_.rows());
    stats.set_memory_rows(stats.rows());
    return stats;
  }
  const TableTier::Stats tier = tier_->stats();
  stats.set_rows(tier.rows);
  stats.set_memory_rows(tier.rows - tier.cold_rows);
  stats.set_cold_rows(tier.cold_rows);
  stats.set_cold_reads(tier.cold_reads);
  stats.set_evicted_rows(tier.evicted_rows);
  stats.set_spilled_rows(tier.spilled_rows);
  stats.set_expired(stats.expired() + tier.expired_on_disk);
  return stats;
}

}  // namespace tessera::ps
