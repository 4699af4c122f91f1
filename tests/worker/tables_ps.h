#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "common/job/job_tables.h"
#include "gtest/gtest.h"
#include "ps/tables/table.h"
#include "worker/parameters/parameter_client.h"

namespace tessera::worker {

inline constexpr uint32_t kPartitions = 8;

// The tables of a job, on two ps. Calls are answered as soon as they are made, or when they are
// waited for.
class TablesPs final : public ParameterClient {
 public:
  // `late_pushes`: those when they are waited for, whatever the other calls do.
  TablesPs(const v1::JobSpec& spec, const v1::PartitionMap& map, bool at_once, bool late_pushes)
      : at_once_(at_once), late_pushes_(late_pushes) {
    for (int p = 0; p < map.ps_size(); ++p) {
      std::vector<uint32_t> owned;
      for (uint32_t i = 0; i < kPartitions; ++i) {
        if (map.owner(static_cast<int>(i)) == static_cast<uint32_t>(p)) owned.push_back(i);
      }
      Ps& ps = ps_.emplace_back();
      ps.partitions =
          std::make_unique<ps::PartitionSet>(*ps::PartitionSet::New(kPartitions, owned));
      for (const v1::PsTable& table : TablesOf(spec)) {
        auto made = ps::Table::New(table, spec.seed(), ps.partitions.get());
        EXPECT_TRUE(made.ok()) << made.status();
        ps.tables.push_back(*std::move(made));
      }
    }
  }

  std::unique_ptr<PendingCall> Pull(absl::Span<const TableRows> reads,
                                    const PullOptions& options) override {
    return Start(
        [this, reads = std::vector(reads.begin(), reads.end()), read_only = options.read_only] {
          return ForEach(reads, [&](const TableRows& read, ps::Table& table,
                                    absl::Span<const uint64_t> keys, size_t first) {
            std::vector<uint8_t> statuses(keys.size());
            if (read.whole && !table.dense()) {
              whole_rows += keys.size();
              for (const uint64_t key : keys) asked_too_early += on_its_way_.count({&table, key});
            }
            return table.Pull(keys, read_only, read.rows + first * read.dim, statuses.data(),
                              read.whole ? ps::RowPart::kWhole : ps::RowPart::kEmbedding);
          });
        });
  }
  std::unique_ptr<PendingCall> LookAhead(absl::Span<const TableRows>) override { return nullptr; }
  std::unique_ptr<PendingCall> Push(absl::Span<const TableGradients> writes,
                                    const PushOptions& options) override {
    const auto rows = RowsOf(writes);
    on_its_way_.insert(rows.begin(), rows.end());
    return Start(
        [this, writes = std::vector(writes.begin(), writes.end()), options, rows] {
          for (const auto& row : rows) on_its_way_.erase(on_its_way_.find(row));
          return ForEach(writes, [&](const TableGradients& write, ps::Table& table,
                                     absl::Span<const uint64_t> keys, size_t first) {
            (table.dense()   ? dense_blocks
             : write.changes ? changed_rows
                             : pushed_rows) += keys.size();
            const ps::Table::Gradients of = {.keys = keys,
                                             .values = write.gradients + first * write.dim,
                                             .changes = write.changes};
            absl::Status status = table.CheckFinite(of, table.largest_gradient());
            status.Update(table.CheckOwned(keys));
            return status.ok()
                       ? table.Apply({&of, 1}, options.sequence, options.learning_rate_scale)
                       : status;
          });
        },
        !late_pushes_);
  }
  std::unique_ptr<PendingCall> Assign(absl::Span<const TableGradients> values) override {
    return Start([this, values = std::vector(values.begin(), values.end())] {
      return ForEach(values, [&](const TableGradients& of, ps::Table& table,
                                 absl::Span<const uint64_t> keys, size_t first) {
        return table.Assign({.keys = keys, .values = of.gradients + first * of.dim});
      });
    });
  }
  absl::StatusOr<PushProgress> GetProgress(uint64_t confirmed) override {
    return PushProgress{confirmed, confirmed};
  }
  absl::StatusOr<std::vector<uint64_t>> CountRows() override {
    return absl::UnimplementedError("no share is asked for");
  }

  // Embedding and slots of every row of a table, by key.
  std::map<uint64_t, std::vector<float>> Rows(size_t table) const {
    std::map<uint64_t, std::vector<float>> all;
    std::vector<float> room;
    for (const Ps& ps : ps_) {
      const ps::RowStore& store = ps.tables[table]->store();
      for (const PartitionId partition : ps.partitions->owned()) {
        store.VisitPartition(partition, [&](absl::Span<const ps::Row* const> rows) {
          for (const ps::Row* row : rows) {
            const absl::Span<const float> floats = store.layout().Floats(row, room);
            all[row->key].assign(floats.begin(), floats.end());
          }
        });
      }
    }
    return all;
  }

  // Pulled, and pushed.
  uint64_t whole_rows = 0, pushed_rows = 0, changed_rows = 0, dense_blocks = 0;
  // Whole rows of which changes or gradients had been sent and were not there.
  uint64_t asked_too_early = 0;

 private:
  struct Ps {
    std::unique_ptr<ps::PartitionSet> partitions;
    std::vector<std::unique_ptr<ps::Table>> tables;
  };
  class Call final : public PendingCall {
   public:
    explicit Call(std::function<absl::Status()> run) : run_(std::move(run)) {}
    absl::Status Wait() override {
      if (run_ != nullptr) status_ = std::exchange(run_, nullptr)();
      return status_;
    }
    bool Done() const override { return run_ == nullptr; }

   private:
    std::function<absl::Status()> run_;
    absl::Status status_;
  };
  std::unique_ptr<PendingCall> Start(std::function<absl::Status()> run,
                                     bool may_be_at_once = true) {
    auto call = std::make_unique<Call>(std::move(run));
    if (at_once_ && may_be_at_once) call->Wait().IgnoreError();
    return call;
  }
  // call(of, its table at a ps, keys of that ps, the first one's place among all)
  template <typename Tables, typename Call>
  absl::Status ForEach(const Tables& all, Call call) {
    for (const auto& of : all) {
      for (size_t p = 0; p < ps_.size(); ++p) {
        const size_t first = of.keys->begin[p], count = of.keys->begin[p + 1] - first;
        const absl::Status status =
            call(of, *ps_[p].tables[of.table],
                 absl::MakeConstSpan(of.keys->keys).subspan(first, count), first);
        if (!status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  using Row = std::pair<const ps::Table*, uint64_t>;
  std::vector<Row> RowsOf(absl::Span<const TableGradients> writes) {
    std::vector<Row> rows;
    ForEach(writes, [&](const TableGradients&, ps::Table& table, absl::Span<const uint64_t> keys,
                        size_t) {
      for (const uint64_t key : keys) {
        if (!table.dense()) rows.emplace_back(&table, key);
      }
      return absl::OkStatus();
    }).IgnoreError();
    return rows;
  }

  const bool at_once_, late_pushes_;
  std::vector<Ps> ps_;
  std::multiset<Row> on_its_way_;
};

}  // namespace tessera::worker
