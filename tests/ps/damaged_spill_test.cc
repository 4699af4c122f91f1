#include <algorithm>
#include <memory>

#include "ps/memory/memory_budget.h"
#include "ps/tables/evictor.h"
#include "ps/tables/table.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

// A tier that knows every key and can read none.
class DamagedColdStore final : public ColdStore {
 public:
  size_t MayContain(uint32_t, absl::Span<const uint64_t> keys, uint8_t* may) const override {
    std::fill_n(may, keys.size(), 1);
    return keys.size();
  }
  KnownFilter& Known(uint32_t) override { return known_; }
  absl::Status Read(uint32_t, absl::Span<const ColdKey>, char*, uint8_t*,
                    const ColdSnapshot*) override {
    return Damaged();
  }
  absl::Status Write(uint32_t, absl::Span<const ColdRecord>) override { return Damaged(); }
  void AwaitCompactionOfWrites(uint32_t, const std::atomic<bool>&) override {}
  void AwaitCompactionToErase(uint32_t) override {}
  absl::Status Erase(uint32_t, absl::Span<const ColdKey>) override { return Damaged(); }
  absl::Status ErasePartitions(uint32_t, absl::Span<const PartitionRange>) override {
    return Damaged();
  }
  absl::Status VisitPartition(uint32_t, uint32_t,
                              absl::FunctionRef<absl::Status(uint64_t, const char*)>) override {
    return Damaged();
  }
  std::unique_ptr<ColdScan> Scan(uint32_t, const ColdSnapshot*) override {
    return std::make_unique<DamagedScan>();
  }
  std::unique_ptr<ColdSnapshot> TakeSnapshot() override { return std::make_unique<ColdSnapshot>(); }
  Stats stats() const override { return {}; }
  uint64_t MemoryBytes(uint32_t) const override { return 0; }

 private:
  class DamagedScan final : public ColdScan {
    absl::Status Visit(uint32_t, absl::FunctionRef<absl::Status(uint64_t, const char*)>) override {
      return Damaged();
    }
  };
  static absl::Status Damaged() { return absl::DataLossError("a record lost its checksum"); }

  KnownFilter known_;
};

TEST(DamagedSpillDisk, SendsTheJobBackToItsCheckpointAndCondemnsNone) {
  const PartitionSet partitions = *PartitionSet::New(1, {0});
  DamagedColdStore cold;
  MemoryBudget budget(1 << 20);
  Evictor evictor(&budget);
  const std::unique_ptr<Table> table = *Table::New(SgdTable("t", 1, v1::SYNC), 1, &partitions);
  table->Attach({.cold = &cold, .cold_table = 0, .budget = &budget, .evictor = &evictor});
  const std::vector<uint64_t> keys = {1, 2};
  const std::vector<float> values = {1, 2};
  std::vector<float> pulled(2);
  std::vector<uint8_t> statuses(2);
  const auto expect_aborted = [](const absl::Status& status) {
    EXPECT_FAILS(status, absl::StatusCode::kAborted, "table t: ");
    EXPECT_FAILS(status, absl::StatusCode::kAborted, "goes on from its last checkpoint");
  };
  expect_aborted(table->Pull(keys, /*read_only=*/false, pulled.data(), statuses.data()));
  const Table::Gradients gradients[] = {{.keys = keys, .values = values.data()}};
  expect_aborted(table->Apply(gradients, 0, 1));
  expect_aborted(table->Assign(gradients[0]));
  expect_aborted(
      table->Restore({RowRecord{.key = 1, .floats = absl::MakeConstSpan(values).first(1)}}));
  table->BeginCut(/*all=*/true);
  expect_aborted(table->VisitCutBelow(
      PartitionId(0),
      [](absl::Span<const uint64_t>, absl::Span<const Row* const>) { return absl::OkStatus(); }));
  table->DropCut();
}

}  // namespace
}  // namespace tessera::ps
