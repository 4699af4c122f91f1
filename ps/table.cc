#include "ps/table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/partition.h"
#include "common/status_macros.h"
#include "ps/row_groups.h"

namespace tessera::ps {
namespace {

// Rows that are summed and then moved together: their sums stay in the cache.
constexpr size_t kChunkRows = 64;

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
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<RowOptimizer> optimizer,
                           NewRowOptimizer(table.optimizer(), table.dim(), table.name()));
  RowTemplate row_template = {.layout = optimizer->layout(),
                              .initializer = initializer,
                              .slots = optimizer->InitialSlots()};
  return std::unique_ptr<Table>(
      new Table(spec, std::move(optimizer), std::move(row_template), partitions));
}

Table::Table(const v1::PsTable& spec, std::unique_ptr<RowOptimizer> optimizer,
             RowTemplate row_template, const PartitionSet* partitions)
    : spec_(spec),
      optimizer_(std::move(optimizer)),
      partitions_(*partitions),
      store_(std::move(row_template), partitions) {}

absl::Status Table::CheckOwned(absl::Span<const uint64_t> keys) const {
  const size_t i = KeyBatch::FirstNotOwned(keys, partitions_);
  if (i == keys.size()) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("table ", name(), ": key ", keys[i], " is in partition ",
                   PartitionOf(keys[i], partitions_.partition_count()).value(),
                   ", which this ps does not own; the partition map has moved on, refresh it"));
}

absl::Status Table::CheckAssigned(absl::Span<const uint64_t> keys) const {
  if (!dense()) return absl::OkStatus();
  const size_t i = store_.FirstAbsent(keys);
  if (i == keys.size()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("table ", name(), ": block ", keys[i],
                   " of the dense parameters has no value yet; it must be assigned or restored "
                   "before it is pulled or pushed"));
}

absl::Status Table::CheckFinite(const Gradients& gradients) const {
  const size_t n = gradients.keys.size() * dim();
  // Counted first, which vectorises; found after.
  uint32_t bad = 0;
  for (size_t i = 0; i < n; ++i) {
    bad += !(std::fabs(gradients.values[i]) <= std::numeric_limits<float>::max());
  }
  if (bad == 0) return absl::OkStatus();
  for (size_t i = 0; i < n; ++i) {
    if (std::isfinite(gradients.values[i])) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("table ", name(), ": key ", gradients.keys[i / dim()], ", element ", i % dim(),
                     ": value is ", gradients.values[i],
                     ", expected a finite number; nothing of this call was applied; if the "
                     "training diverges, lower the learning rate or set train.clip"));
  }
  return absl::OkStatus();
}

absl::Status Table::Pull(absl::Span<const uint64_t> keys, bool read_only, float* values,
                         uint8_t* statuses) {
  const bool find_only = read_only || dense();
  const RowCounts counts =
      find_only ? store_.Find(keys, values, statuses) : store_.FindOrCreate(keys, values, statuses);
  Count(counts);
  return dense() && counts.absent > 0 ? CheckAssigned(keys) : absl::OkStatus();
}

void Table::Apply(absl::Span<const Gradients> parts, uint64_t step, double learning_rate_scale) {
  const double scale = spec_.fixed_rate() ? 1 : learning_rate_scale;
  if (!every_row()) {
    ApplyToRows(parts, step, scale);
    return;
  }
  absl::MutexLock lock(&every_row_mu_);
  ApplyToRows(parts, step, scale);
  MoveOtherRows(scale);
}

void Table::ApplyToRows(absl::Span<const Gradients> parts, uint64_t step, double scale) {
  std::vector<uint64_t> keys;
  std::vector<const float*> gradients;
  for (const Gradients& part : parts) {
    keys.insert(keys.end(), part.keys.begin(), part.keys.end());
    for (size_t i = 0; i < part.keys.size(); ++i) gradients.push_back(part.values + i * dim());
  }
  RowGroups groups;
  std::vector<float> sums(kChunkRows * dim());
  std::vector<Row*> chunk_rows;
  std::vector<const float*> chunk_gradients;
  const uint32_t flag = every_row() ? kRowMoved : 0;
  store_.Update(keys, [&](absl::Span<Row* const> rows, absl::Span<const uint32_t> positions) {
    groups.Build(rows);
    for (size_t begin = 0; begin < groups.size(); begin += kChunkRows) {
      chunk_rows.clear();
      chunk_gradients.clear();
      float* sum = sums.data();
      for (size_t g = begin; g < std::min(groups.size(), begin + kChunkRows); ++g) {
        const uint32_t first = groups.First(g);
        const float* gradient = gradients[positions[first]];
        if (groups.Next(first) != RowGroups::kEnd) {
          std::copy_n(gradient, dim(), sum);
          for (uint32_t i = groups.Next(first); i != RowGroups::kEnd; i = groups.Next(i)) {
            const float* const more = gradients[positions[i]];
            for (uint32_t d = 0; d < dim(); ++d) sum[d] += more[d];
          }
          gradient = sum;
          sum += dim();
        }
        rows[first]->Touch(step);
        rows[first]->flags |= flag;
        chunk_rows.push_back(rows[first]);
        chunk_gradients.push_back(gradient);
      }
      optimizer_->Apply(chunk_rows, chunk_gradients, scale);
    }
  });
}

void Table::MoveOtherRows(double scale) {
  std::vector<Row*> others;
  std::vector<const float*> zeros;
  store_.UpdateEvery([&](absl::Span<Row* const> rows) {
    others.clear();
    for (Row* row : rows) {
      if ((row->flags & kRowMoved) == 0) others.push_back(row);
      row->flags = (row->flags & ~kRowMoved) | kRowChanged;
    }
    zeros.resize(others.size(), nullptr);
    optimizer_->Apply(others, zeros, scale);
  });
}

void Table::Assign(absl::Span<const uint64_t> keys, const float* values) {
  Count(store_.InsertIfAbsent(keys, values));
}

void Table::Count(const RowCounts& counts) {
  hits_.fetch_add(counts.hits, std::memory_order_relaxed);
  created_.fetch_add(counts.created, std::memory_order_relaxed);
  absent_.fetch_add(counts.absent, std::memory_order_relaxed);
}

v1::TableStats Table::Stats() const {
  v1::TableStats stats;
  stats.set_name(name());
  stats.set_rows(store_.rows());
  stats.set_bytes(store_.bytes());
  stats.set_hits(hits_.load(std::memory_order_relaxed));
  stats.set_created(created_.load(std::memory_order_relaxed));
  stats.set_absent(absent_.load(std::memory_order_relaxed));
  return stats;
}

}  // namespace tessera::ps
