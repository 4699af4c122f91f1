#include "common/checkpoint/diff.h"

#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

void Add(TableDifference::Keys& keys, uint64_t key) {
  if (keys.first.size() < TableDifference::kKeys) keys.first.push_back(key);
  ++keys.count;
}

std::string ShapeDifference(const v1::CheckpointTable& a, const v1::CheckpointTable& b) {
  if (a.spec().dim() != b.spec().dim()) {
    return absl::StrCat("dim ", a.spec().dim(), " and ", b.spec().dim());
  }
  // Compared even without rows: the slots are part of the shape.
  if (a.slot_floats() != b.slot_floats()) {
    return absl::StrCat(a.slot_floats(), " and ", b.slot_floats(), " floats of the optimizer");
  }
  return "";
}

// Marks the rows that both sides have. Both sides ascend by key.
void Compare(const PartitionRows& a, const PartitionRows& b, std::vector<bool>& matched_a,
             std::vector<bool>& matched_b, TableDifference& difference) {
  uint64_t i = 0;
  uint64_t j = 0;
  while (i < a.rows() && j < b.rows()) {
    if (a.key(i) < b.key(j)) {
      ++i;
    } else if (b.key(j) < a.key(i)) {
      ++j;
    } else {
      matched_a[i] = matched_b[j] = true;
      if (std::memcmp(a.values(i).data(), b.values(j).data(), a.values(i).size() * sizeof(float)) !=
          0) {
        Add(difference.different, a.key(i));
      } else {
        ++difference.same;
        difference.other_metadata +=
            a.frequency(i) != b.frequency(j) || a.last_step(i) != b.last_step(j);
      }
      ++i;
      ++j;
    }
  }
}

// One side of the comparison: one partition of the table at a time, with marks on the rows that the
// other side has.
class Side {
 public:
  Side(const CheckpointReader& reader, TableIndex table, TableDifference::Keys& unmatched)
      : reader_(reader), table_(table), unmatched_(unmatched) {}

  uint64_t partitions() const { return reader_.manifest().partition_count(); }
  uint64_t partition() const { return partition_; }
  bool done() const { return partition_ >= partitions(); }
  const PartitionRows& rows() const { return rows_; }
  std::vector<bool>& matched() { return matched_; }

  absl::Status Load() {
    rows_ = PartitionRows();
    if (done()) return absl::OkStatus();
    TESSERA_ASSIGN_OR_RETURN(rows_,
                             reader_.Read(table_, PartitionId(static_cast<uint32_t>(partition_))));
    matched_.assign(rows_.rows(), false);
    return absl::OkStatus();
  }
  absl::Status Advance() {
    for (uint64_t i = 0; i < matched_.size(); ++i) {
      if (!matched_[i]) Add(unmatched_, rows_.key(i));
    }
    matched_.clear();
    ++partition_;
    return Load();
  }

 private:
  const CheckpointReader& reader_;
  const TableIndex table_;
  TableDifference::Keys& unmatched_;
  uint64_t partition_ = 0;
  PartitionRows rows_;
  std::vector<bool> matched_;
};

// Partition p of n holds the keys whose hash, as a fraction, lies from p/n to (p + 1)/n
// (PartitionOf). So both sides visit the hashes in the same order, whatever their partition counts,
// and each partition is read once.
absl::Status DiffTable(Side a, Side b, KeepGoing keep_going, TableDifference& difference) {
  TESSERA_RETURN_IF_ERROR(a.Load());
  TESSERA_RETURN_IF_ERROR(b.Load());
  while (!a.done() && !b.done()) {
    TESSERA_RETURN_IF_ERROR(keep_going());
    Compare(a.rows(), b.rows(), a.matched(), b.matched(), difference);
    const uint64_t end_a = (a.partition() + 1) * b.partitions();
    const uint64_t end_b = (b.partition() + 1) * a.partitions();
    if (end_a <= end_b) TESSERA_RETURN_IF_ERROR(a.Advance());
    if (end_b <= end_a) TESSERA_RETURN_IF_ERROR(b.Advance());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenVerified(FileSystem& fs,
                                                               const std::string& folder,
                                                               KeepGoing keep_going) {
  TESSERA_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest,
                           VerifyCheckpoint(fs, folder, keep_going));
  return CheckpointReader::Open(fs, folder, std::move(manifest));
}

}  // namespace

absl::StatusOr<std::vector<TableDifference>> DiffCheckpoints(FileSystem& fs,
                                                             const std::string& first,
                                                             const std::string& second,
                                                             KeepGoing keep_going) {
  TESSERA_ASSIGN_OR_RETURN(const auto a, OpenVerified(fs, first, keep_going));
  TESSERA_ASSIGN_OR_RETURN(const auto b, OpenVerified(fs, second, keep_going));
  std::vector<TableDifference> differences;
  for (int t = 0; t < a->manifest().tables_size(); ++t) {
    const v1::CheckpointTable& table = a->manifest().tables(t);
    TableDifference& difference = differences.emplace_back();
    difference.name = table.spec().name();
    const absl::StatusOr<TableIndex> other = b->FindTable(difference.name);
    if (!other.ok()) {
      difference.shape = "only in the first";
      continue;
    }
    difference.shape =
        ShapeDifference(table, b->manifest().tables(static_cast<int>(other->value())));
    if (!difference.shape.empty()) continue;
    TESSERA_RETURN_IF_ERROR(
        DiffTable(Side(*a, TableIndex(static_cast<uint32_t>(t)), difference.only_first),
                  Side(*b, *other, difference.only_second), keep_going, difference));
  }
  for (const v1::CheckpointTable& table : b->manifest().tables()) {
    if (a->FindTable(table.spec().name()).ok()) continue;
    TableDifference& difference = differences.emplace_back();
    difference.name = table.spec().name();
    difference.shape = "only in the second";
  }
  return differences;
}

}  // namespace tessera
