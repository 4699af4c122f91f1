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
#include "common/job/defaults.h"
#include "common/job/job_tables.h"
#include "ps/admission.h"
#include "ps/expiry.h"
#include "ps/partition_set.h"
#include "ps/row_optimizer.h"
#include "ps/row_store.h"
#include "ps/table_tier.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// One table of a job on this ps: its rows, its optimizer, its counters. Thread-safe.
class Table {
 public:
  static constexpr uint32_t kMaxDim = RowLayout::kMaxDim;

  // Gradients of one sender, or changes that it has made itself; borrowed.
  struct Gradients {
    absl::Span<const uint64_t> keys;
    const void* values;  // [keys, dim] of wire_type, or of wire_bytes(kWhole) a key
    bool changes = false;
  };

  // INVALID_ARGUMENT names table and field. `partitions` is borrowed and outlives the table.
  static absl::StatusOr<std::unique_ptr<Table>> New(const v1::PsTable& spec, uint64_t seed,
                                                    const PartitionSet* partitions);

  const std::string& name() const { return spec_.spec().name(); }
  const v1::PsTable& spec() const { return spec_; }
  uint32_t dim() const { return spec_.spec().dim(); }
  bool dense() const { return spec_.dense(); }
  bool sync() const { return IsSync(spec_.consistency()); }
  // Of a row's embedding, or a gradient, on its way to or from a worker (TableSpec.wire_type).
  bool wire_bfloat16() const { return spec_.spec().wire_type() == v1::BFLOAT16; }
  // Whole rows, and changes of them, travel as float32.
  size_t wire_bytes(RowPart part) const {
    return part == RowPart::kWhole ? optimizer_->layout().floats() * sizeof(float)
                                   : WireRowBytes(spec_.spec());
  }
  // Each step moves every row.
  bool every_row() const { return spec_.spec().update() == v1::EVERY_ROW; }
  // A step is as long as the tensor says that its blocks make (common/job/dense_layout.h).
  bool by_tensor() const { return dense() && optimizer_->StepsByWhole(); }
  // The rows in memory.
  RowStore& store() { return store_; }
  const RowStore& store() const { return store_; }
  // Of all rows, in memory or not.
  uint64_t rows() const;

  // Rows may be on disk: not those of dense tables, nor where each step moves every row.
  bool may_spill() const { return !dense() && !every_row(); }
  // Before the first row; once. Returns the tier, which is the table's.
  TableTier* Attach(const TableTier::Options& options);
  bool spills() const { return tier_ != nullptr; }
  bool has_cold_rows() const { return tier_ != nullptr && tier_->stats().cold_rows > 0; }
  const RowOptimizer& optimizer() const { return *optimizer_; }

  // ABORTED: a key of a partition that this ps does not own.
  absl::Status CheckOwned(absl::Span<const uint64_t> keys) const;
  // Dense tables: FAILED_PRECONDITION names a block that nobody has assigned.
  absl::Status CheckAssigned(absl::Span<const uint64_t> keys) const;
  // INVALID_ARGUMENT: whole rows of it are not for workers to have, and why.
  absl::Status CheckWhole() const;
  // INVALID_ARGUMENT names the key of the first value that is not finite, or larger than `most`.
  absl::Status CheckFinite(const Gradients& gradients, float most) const;
  // In size, of a gradient's elements: what the optimizer's squares have room for, or any that is
  // finite where it is clipped first.
  float largest_gradient() const;
  // INVALID_ARGUMENT: the learning rate would not be a finite number.
  absl::Status CheckRate(double learning_rate_scale) const;

  // Keys are checked, and so is that whole rows may be asked for; those are not read_only. A dense
  // table never creates rows: its absent ones are an error.
  absl::Status Pull(absl::Span<const uint64_t> keys, bool read_only,
                    void* values,       // [keys] of wire_bytes(part)
                    uint8_t* statuses,  // [keys]
                    RowPart part = RowPart::kEmbedding);
  // Brings rows that are on disk to memory, for a pull that will come; waits for room there.
  absl::Status LookAhead(absl::Span<const uint64_t> keys);

  // RESOURCE_EXHAUSTED: no memory for more rows. Asked before a step is applied, which then goes on
  // to its end.
  absl::Status WaitForRoom() const;
  // One step: the gradients of a key are summed in the order of `parts` (and within one, of its
  // places) and applied once; those of keys that are not admitted are dropped. Changes
  // are added to their rows before. EVERY_ROW: then the other rows move too. Keys are checked.
  // Fails only where rows are on disk and cannot be read; then the table is of no use any more.
  absl::Status Apply(absl::Span<const Gradients> parts, uint64_t step, double learning_rate_scale);

  absl::Status Assign(const Gradients& values);
  absl::Status Restore(absl::Span<const RowRecord> rows);

  // See RowStore and TableTier: a cut of all the table's rows, and of its sightings. What the
  // store's VisitCut does not have of it is on disk, and VisitCutBelow's; ABORTED as of Pull.
  std::optional<uint64_t> BeginCut(bool all) {
    if (counts_sightings()) admission_->BeginCut();
    return tier_ != nullptr ? tier_->BeginCut(all) : store_.BeginCut(all);
  }
  absl::Status VisitCutBelow(PartitionId partition, TableTier::VisitBelow visit) {
    return tier_ == nullptr ? absl::OkStatus() : FromTier(tier_->VisitCutBelow(partition, visit));
  }
  // Of the rows that BeginCut counted, those that VisitCutBelow has found to have expired.
  uint64_t cut_gone() const { return tier_ == nullptr ? 0 : tier_->cut_gone(); }
  void DropCut() {
    if (counts_sightings()) admission_->DropCut();
    tier_ != nullptr ? tier_->DropCut() : store_.DropCut();
  }

  // Whether keys wait for their row until they have been seen often. See Admission for the rest,
  // which where they do not has and does nothing.
  bool counts_sightings() const { return admission_ != nullptr && admission_->counts(); }
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
  // comes again starts from its initial value. Fails only where rows are on disk; then the table is
  // of no use any more.
  absl::Status Expire(uint64_t applied_steps);
  // Of a table that nobody cuts: the same for its rows on disk, which count for nothing since
  // Expire, but take room until the next cut is read. Does nothing where there are none.
  absl::Status EraseExpiredBelow(PartitionId partition) {
    if (tier_ == nullptr || !expiry_.active()) return absl::OkStatus();
    return FromTier(tier_->EraseExpiredBelow(partition));
  }
  // How many rows that would drop. Reads those that are on disk.
  absl::StatusOr<uint64_t> CountExpirable(uint64_t applied_steps) const;

  // See RowStore and TableTier. First the rows in memory; `ReadTaken`, which needs no lock of the
  // caller's, hands out what TakeRows has left on disk; ABORTED as of Pull.
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
  // Of partitions that are not owned, what is still there of their rows.
  absl::Status FreeOthers();

  v1::TableStats Stats() const;

 private:
  Table(const v1::PsTable& spec, std::unique_ptr<RowOptimizer> optimizer,
        std::unique_ptr<Admission> admission, Expiry expiry, RowTemplate row_template,
        const PartitionSet* partitions);

  // The errors are those of a tier.
  absl::StatusOr<RowCounts> FindOrMake(absl::Span<const uint64_t> keys, bool read_only,
                                       float* values, uint8_t* statuses, RowPart part);
  absl::StatusOr<RowCounts> PullAdmitted(absl::Span<const uint64_t> keys, float* values,
                                         uint8_t* statuses);
  // What is left of `parts` when the keys that are not admitted are gone; makes rows for those that
  // are admitted now.
  absl::StatusOr<std::vector<Gradients>> Admit(absl::Span<const Gradients> parts);
  // Appends those of `keys` that have no row, each as often as it comes.
  absl::Status AppendAbsent(absl::Span<const uint64_t> keys, std::vector<uint64_t>& absent);
  // Rows for keys that are admitted.
  absl::Status Make(absl::Span<const uint64_t> keys);

  // Pull and Assign of float32.
  absl::Status PullFloats(absl::Span<const uint64_t> keys, bool read_only, float* values,
                          uint8_t* statuses, RowPart part);
  absl::Status AssignFloats(absl::Span<const uint64_t> keys, const float* values);

  // What the tier lost is no loss of a checkpoint's data: DATA_LOSS becomes ABORTED.
  absl::Status FromTier(const absl::Status& status) const;
  struct ApplyScratch;
  absl::Status ApplyToRows(absl::Span<const Gradients> parts, uint64_t step, double scale);
  absl::Status AddChanges(const Gradients& changes, uint64_t step);
  // `Number`: of wire_type.
  template <typename Number>
  absl::Status ApplyNumbers(absl::Span<const Gradients> parts, uint64_t step, double scale);
  void MoveOtherRows(uint64_t step, double scale) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  // Of what RowOptimizer::Measure has given for each block; distinct keys.
  void MoveTensors(absl::Span<const uint64_t> keys, absl::Span<RowOptimizer::Squares> squares,
                   uint64_t step, double scale);
  void Count(const RowCounts& counts);
  // Of a dense table: FAILED_PRECONDITION names a block that is cut in another way than this
  // table's optimizer needs (common/job/dense_layout.h).
  absl::Status CheckCut(absl::Span<const RowRecord> rows) const;

  const v1::PsTable spec_;
  const std::unique_ptr<const RowOptimizer> optimizer_;
  const std::unique_ptr<Admission> admission_;  // null: every key gets a row
  const Expiry expiry_;
  const PartitionSet& partitions_;

  RowStore store_;
  std::unique_ptr<TableTier> tier_;  // null: all rows are in memory
  std::atomic<uint64_t> hits_ = 0;
  std::atomic<uint64_t> created_ = 0;
  std::atomic<uint64_t> absent_ = 0;
  std::atomic<uint64_t> not_admitted_ = 0;
  std::atomic<uint64_t> dropped_gradients_ = 0;
  std::atomic<uint64_t> expired_ = 0;
  // One step at a time where it passes over rows twice: kRowMoved marks belong to it, or what the
  // first pass has measured.
  absl::Mutex step_mu_;
};

}  // namespace tessera::ps
