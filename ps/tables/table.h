#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/expiry.h"
#include "common/job/defaults.h"
#include "common/job/wire_type.h"
#include "ps/rows/partition_set.h"
#include "ps/rows/row_optimizer.h"
#include "ps/rows/row_store.h"
#include "ps/tables/admission.h"
#include "ps/tables/row_limit.h"
#include "ps/tables/table_tier.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// One table of a job on this ps: its rows, its optimizer, its counters. Thread-safe.
class Table {
 public:
  static constexpr uint32_t kMaxDim = RowLayout::kMaxDim;

  // Gradients of one sender, or changes that it has made to rows itself; borrowed.
  struct Gradients {
    absl::Span<const uint64_t> keys;
    const void* values;  // [keys, dim] of wire_type; changes: wire_bytes(kWhole) a key
    bool changes = false;
  };

  // INVALID_ARGUMENT names table and field. `partitions` is borrowed and outlives the table.
  static absl::StatusOr<std::unique_ptr<Table>> New(const v1::PsTable& spec, uint64_t seed,
                                                    const PartitionSet* partitions);
  ~Table();

  const std::string& name() const { return spec_.spec().name(); }
  const v1::PsTable& spec() const { return spec_; }
  uint32_t dim() const { return spec_.spec().dim(); }
  bool dense() const { return spec_.dense(); }
  bool sync() const { return IsSync(spec_.consistency()); }
  // Whether embeddings and gradients travel as bfloat16 (TableSpec.wire_type).
  bool wire_bfloat16() const { return spec_.spec().wire_type() == v1::BFLOAT16; }
  // Whole rows, and changes of them, travel as float32.
  size_t wire_bytes(RowPart part) const {
    return part == RowPart::kWhole ? optimizer_->layout().floats() * sizeof(float)
                                   : WireRowBytes(spec_.spec());
  }
  // Each step moves every row.
  bool every_row() const { return spec_.spec().update() == v1::EVERY_ROW; }
  // Whether the length of a step depends on the whole tensor that blocks make
  // (common/job/dense_layout.h).
  bool by_tensor() const { return dense() && optimizer_->StepsByWhole(); }
  // The rows in memory.
  RowStore& store() { return store_; }
  const RowStore& store() const { return store_; }
  // How many rows there are, in memory or not.
  uint64_t rows() const;

  // Whether rows may be on disk: not those of dense tables, nor of tables whose every row moves
  // with each step.
  bool may_spill() const { return !dense() && !every_row(); }
  // Gives the table a tier, once, before the first row. Returns it; the table owns it.
  TableTier* Attach(const TableTier::Options& options);
  bool spills() const { return tier_ != nullptr; }
  const TableTier* tier() const { return tier_.get(); }  // null: all rows are in memory
  bool has_cold_rows() const { return tier_ != nullptr && tier_->stats().cold_rows > 0; }
  // Bounds what the table keeps in memory, once, before the first row and after Attach. `limit` is
  // borrowed and outlives the table, `job` is for messages.
  void Limit(RowLimit* limit, std::string job);
  const RowOptimizer& optimizer() const { return *optimizer_; }

  // Checks, which change nothing (table_checks.cc).
  //
  // ABORTED: a key of a partition that this ps does not own.
  absl::Status CheckOwned(absl::Span<const uint64_t> keys) const;
  // Dense tables: FAILED_PRECONDITION names a block that nobody has assigned.
  absl::Status CheckAssigned(absl::Span<const uint64_t> keys) const;
  // INVALID_ARGUMENT: workers may not have whole rows of this table, and why.
  absl::Status CheckWhole() const;
  // INVALID_ARGUMENT names the key of the first value that is not finite, or larger than `most`.
  absl::Status CheckFinite(const Gradients& gradients, float most) const;
  // The largest magnitude of a gradient's element: what the optimizer's squares have room for, or
  // any finite number if gradients are clipped first.
  float largest_gradient() const;
  // INVALID_ARGUMENT: the learning rate would not be a finite number.
  absl::Status CheckRate(double learning_rate_scale) const;

  // The caller has checked the keys, and that whole rows may be asked for; a pull of whole rows is
  // not read_only. A dense table never creates rows: absent ones are an error.
  absl::Status Pull(absl::Span<const uint64_t> keys, bool read_only,
                    void* values,       // [keys] of wire_bytes(part)
                    uint8_t* statuses,  // [keys]
                    RowPart part = RowPart::kEmbedding);
  // Brings rows that are on disk to memory, for a pull that will come; waits for room there.
  absl::Status LookAhead(absl::Span<const uint64_t> keys);

  // RESOURCE_EXHAUSTED: no memory for more rows, if `parts` may need some. Called before a step is
  // applied, which then goes on to its end. FAILED_PRECONDITION, unless the step is `replayed`: as
  // RowLimit::Refuse's.
  absl::Status WaitForRoom(absl::Span<const Gradients> parts, bool replayed);
  // Applies one step. The gradients of a key are summed in the order of `parts` (and within one, of
  // its places) and applied once; those of keys that are not admitted are dropped. Changes are
  // added to their rows before. EVERY_ROW: then the other rows move too. The caller has checked the
  // keys. Fails only if rows on disk cannot be read; then the table is of no use any more.
  absl::Status Apply(absl::Span<const Gradients> parts, uint64_t step, double learning_rate_scale);

  absl::Status Assign(const Gradients& values);
  absl::Status Restore(absl::Span<const RowRecord> rows);
  // As RowStore::Fill, of a table of embeddings without a tier.
  absl::Status Fill(PartitionId partition, uint64_t rows,
                    absl::FunctionRef<void(uint64_t first, absl::Span<RowRecord> records)> read);

  // A cut of all the table's rows, and of its sightings: see RowStore and TableTier. The store's
  // VisitCut has its rows in memory, VisitCutBelow those on disk; ABORTED as Pull.
  std::optional<uint64_t> BeginCut(bool all) {
    if (counts_sightings()) admission_->BeginCut();
    return tier_ != nullptr ? tier_->BeginCut(all) : store_.BeginCut(all);
  }
  absl::Status VisitCutBelow(PartitionId partition, TableTier::VisitBelow visit) {
    return tier_ == nullptr ? absl::OkStatus() : FromTier(tier_->VisitCutBelow(partition, visit));
  }
  // How many of the rows that BeginCut counted VisitCutBelow has found expired.
  uint64_t cut_gone() const { return tier_ == nullptr ? 0 : tier_->cut_gone(); }
  void DropCut() {
    if (counts_sightings()) admission_->DropCut();
    tier_ != nullptr ? tier_->DropCut() : store_.DropCut();
  }

  // Whether keys get a row only after several sightings. If not, the calls below do nothing and
  // have nothing; else see Admission.
  bool counts_sightings() const { return admission_ != nullptr && admission_->counts(); }
  uint64_t sighting_bytes() const { return counts_sightings() ? admission_->bytes() : 0; }
  // By how much that may grow while a cut keeps them.
  uint64_t sighting_bytes_of_a_cut() const {
    if (!counts_sightings()) return 0;
    const uint64_t twice = 2 * admission_->counting_bytes();
    return twice - std::min(twice, admission_->bytes());
  }
  std::vector<Sighting> Sightings(PartitionId partition) const {
    return counts_sightings() ? admission_->Sightings(partition) : std::vector<Sighting>();
  }
  std::vector<Sighting> TakeCutSightings(PartitionId partition) {
    return counts_sightings() ? admission_->TakeCut(partition) : std::vector<Sighting>();
  }
  void SetSightings(PartitionId partition, absl::Span<const Sighting> sightings) {
    if (counts_sightings()) admission_->SetSightings(partition, sightings);
  }
  void AddSightings(PartitionId partition, absl::Span<const Sighting> sightings) {
    if (counts_sightings()) admission_->AddSightings(partition, sightings);
  }

  // At a cut after `applied_steps` steps: drops the rows that the table's expiry takes. A key that
  // comes again starts from its initial value. Fails only if rows are on disk; then the table is of
  // no use any more.
  absl::Status Expire(uint64_t applied_steps);
  // Whether it has rules by which rows expire.
  bool expires() const { return expiry_.active(); }
  // For a table that nobody cuts: erases expired rows on disk. They count for nothing since Expire,
  // but take room until the next cut is read. Does nothing if there are none.
  absl::Status EraseExpiredBelow(PartitionId partition) {
    if (tier_ == nullptr || !expiry_.active()) return absl::OkStatus();
    return FromTier(tier_->EraseExpiredBelow(partition));
  }
  // How many rows Expire would drop. Reads those that are on disk.
  absl::StatusOr<uint64_t> CountExpirable(uint64_t applied_steps) const;

  // Hands out rows: see RowStore and TableTier. TakeRows has the rows in memory; then ReadTaken,
  // which needs no lock of the caller's, has those left on disk; ABORTED as Pull.
  TableTier::Taken TakeRows(PartitionId partition, bool changed,
                            absl::FunctionRef<void(absl::Span<const Row* const> rows)> take);
  absl::Status ReadTaken(const TableTier::Taken& taken,
                         absl::FunctionRef<void(absl::Span<const Row* const> rows)> take);
  // `other` is the same table with other partitions.
  void PrepareToTakeOver(const Table& other);
  void TakeOver(Table& other);
  // No row leaves memory any more.
  void StopEvicting() {
    if (tier_ != nullptr) tier_->StopEvicting();
  }
  // Frees what is left of the rows of partitions that are not owned.
  absl::Status FreeOthers();

  v1::TableStats Stats() const;

 private:
  Table(const v1::PsTable& spec, std::unique_ptr<RowOptimizer> optimizer,
        std::unique_ptr<Admission> admission, Expiry expiry, RowTemplate row_template,
        const PartitionSet* partitions);

  absl::StatusOr<RowCounts> FindOrMake(absl::Span<const uint64_t> keys, bool read_only,
                                       float* values, uint8_t* statuses, RowPart part);
  absl::StatusOr<RowCounts> FindOrCreate(absl::Span<const uint64_t> keys, float* values,
                                         uint8_t* statuses, RowPart part);
  // Appends those of `keys` that have no row, each as often as it comes. Errors are those of a
  // tier.
  absl::Status AppendAbsent(absl::Span<const uint64_t> keys, std::vector<uint64_t>& absent);

  // table_admission.cc
  absl::StatusOr<RowCounts> PullAdmitted(absl::Span<const uint64_t> keys, float* values,
                                         uint8_t* statuses);
  // `parts` without the keys that are not admitted; makes rows for keys that are admitted now.
  absl::StatusOr<std::vector<Gradients>> Admit(absl::Span<const Gradients> parts);
  // Makes rows for keys that are admitted.
  absl::Status Make(absl::Span<const uint64_t> keys);

  // table_room.cc
  //
  // Takes room for rows of all keys that have none. Nothing where memory is not bounded. Errors as
  // RowLimit::Refuse's, and those of a tier, where near the limit those on disk are brought.
  absl::StatusOr<RowLimit::Room> TakeRoom(absl::Span<const uint64_t> keys, bool may_last);
  // Takes room for as many new rows.
  absl::StatusOr<RowLimit::Room> TakeRoomFor(size_t rows, bool may_last);
  // What of a new row stays in memory: all of it and its part of the map or, with a tier, what that
  // has of it when it is on disk.
  uint64_t room_of_row() const;

  // Pull and Assign with float32 numbers.
  absl::Status PullFloats(absl::Span<const uint64_t> keys, bool read_only, float* values,
                          uint8_t* statuses, RowPart part);
  absl::Status AssignFloats(absl::Span<const uint64_t> keys, const float* values);

  // Of a tier DATA_LOSS becomes ABORTED: what the tier lost is no loss of a checkpoint's data.
  absl::Status FromTier(const absl::Status& status) const;
  absl::StatusOr<RowCounts> FromTier(absl::StatusOr<RowCounts> counts) const {
    return counts.ok() ? std::move(counts) : FromTier(counts.status());
  }
  struct ApplyScratch;
  template <typename Number>
  class KeyGradients;
  absl::Status ApplyToRows(absl::Span<const Gradients> parts, uint64_t step, double scale);
  absl::Status AddChanges(const Gradients& changes, uint64_t step);
  // `Number`: the C++ type of wire_type.
  template <typename Number>
  absl::Status ApplyNumbers(absl::Span<const Gradients> parts, uint64_t step, double scale);
  void MoveOtherRows(uint64_t step, double scale) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  // Moves the embeddings by what RowOptimizer::Measure has given for each block; distinct keys.
  void MoveTensors(absl::Span<const uint64_t> keys, absl::Span<RowOptimizer::Squares> squares,
                   uint64_t step, double scale);
  void Count(const RowCounts& counts);
  // For a dense table. FAILED_PRECONDITION names a block that is cut in another way than this
  // table's optimizer needs (common/job/dense_layout.h).
  absl::Status CheckCut(absl::Span<const RowRecord> rows) const;

  const v1::PsTable spec_;
  const std::unique_ptr<const RowOptimizer> optimizer_;
  const std::unique_ptr<Admission> admission_;  // null: every key gets a row
  const Expiry expiry_;
  const PartitionSet& partitions_;

  RowStore store_;
  std::unique_ptr<TableTier> tier_;  // null: all rows are in memory
  RowLimit* limit_ = nullptr;        // null: what stays in memory has no bound
  std::string job_;                  // with limit_
  std::atomic<uint64_t> hits_ = 0;
  std::atomic<uint64_t> created_ = 0;
  std::atomic<uint64_t> absent_ = 0;
  std::atomic<uint64_t> not_admitted_ = 0;
  std::atomic<uint64_t> dropped_gradients_ = 0;
  std::atomic<uint64_t> expired_ = 0;
  // Held by a step that passes over rows twice: its kRowMoved marks, or what its first pass has
  // measured, must not meet another step's.
  absl::Mutex step_mu_;
};

// The tables of a job, by number.
using Tables = std::vector<std::unique_ptr<Table>>;

}  // namespace tessera::ps
