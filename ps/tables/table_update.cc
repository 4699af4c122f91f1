// Table: gradients are applied to rows.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/job/dense_layout.h"
#include "common/math/bfloat16.h"
#include "common/math/optim/largest_gradient.h"
#include "common/status_macros.h"
#include "ps/memory/scratch.h"
#include "ps/rows/key_groups.h"
#include "ps/tables/table.h"

namespace tessera::ps {
namespace {

// Numbers of both types that cross the wire: float32, and bfloat16 as its bits.
float AsFloat(float x) { return x; }
float AsFloat(uint16_t half) { return math::FromBfloat16(half); }

}  // namespace

absl::Status Table::Apply(absl::Span<const Gradients> parts, uint64_t step,
                          double learning_rate_scale) {
  const double scale = spec_.fixed_rate() ? 1 : learning_rate_scale;
  std::vector<Gradients> gradients, changes;
  for (const Gradients& part : parts) (part.changes ? changes : gradients).push_back(part);
  parts = gradients;
  std::vector<Gradients> admitted;
  if (admission_ != nullptr) {
    absl::StatusOr<std::vector<Gradients>> left = Admit(parts);
    if (!left.ok()) return FromTier(left.status());
    admitted = *std::move(left);
    parts = admitted;
  }
  for (const Gradients& of : changes) TESSERA_RETURN_IF_ERROR(AddChanges(of, step));
  if (parts.empty() && !every_row()) return absl::OkStatus();
  if (!every_row() && !by_tensor()) return ApplyToRows(parts, step, scale);
  absl::MutexLock lock(&step_mu_);
  TESSERA_RETURN_IF_ERROR(ApplyToRows(parts, step, scale));
  if (every_row()) MoveOtherRows(step, scale);
  return absl::OkStatus();
}

// Memory that ApplyToRows works with. Not thread-safe.
struct Table::ApplyScratch {
  std::vector<uint64_t> keys;          // keys of all parts, if several
  std::vector<const void*> gradients;  // by place in `keys`, if several
  KeyGroups groups;
  std::vector<float> sums;                     // [RowStore::Block::kMost, dim]
  std::vector<RowOptimizer::Squares> squares;  // by_tensor: for groups.keys()

  size_t bytes() const {
    return 16 * keys.capacity() + groups.bytes() + 4 * sums.capacity() + 16 * squares.capacity();
  }
};

// The gradients of one step, grouped by key. Borrows them, and the memory that it works with.
// `Number`: the C++ type of wire_type.
template <typename Number>
class Table::KeyGradients {
 public:
  // `largest`: of a sum's elements, as of its summands'.
  KeyGradients(absl::Span<const Gradients> parts, uint32_t dim, float largest,
               ApplyScratch& scratch)
      : dim_(dim), largest_(largest), groups_(scratch.groups) {
    absl::Span<const uint64_t> keys;
    if (parts.size() == 1) {
      keys = parts[0].keys;
      of_one_ = static_cast<const Number*>(parts[0].values);
    } else {
      scratch.keys.clear();
      scratch.gradients.clear();
      for (const Gradients& part : parts) {
        scratch.keys.insert(scratch.keys.end(), part.keys.begin(), part.keys.end());
        const auto* const of_part = static_cast<const Number*>(part.values);
        for (size_t i = 0; i < part.keys.size(); ++i) {
          scratch.gradients.push_back(of_part + i * dim);
        }
      }
      keys = scratch.keys;
      of_several_ = scratch.gradients;
    }
    scratch.groups.Build(keys);
    repeats_ = groups_.size() < keys.size();
  }

  // Each once.
  absl::Span<const uint64_t> keys() const { return groups_.keys(); }
  // Fetches ahead what Sum reads; gradients lie anywhere in the sender's block.
  void Prefetch(uint32_t position) const {
    const uint32_t first = groups_.First(position);
    PrefetchNumbers(At(first), dim_);
    const uint32_t second = Next(first);
    if (second != KeyGroups::kEnd) PrefetchNumbers(At(second), dim_);
  }
  // Sums the gradients of the key at this position of keys(), in float32: [dim]. A single float32
  // gradient is used where it lies, any other sum in `sum`.
  const float* Sum(uint32_t position, float* sum) const {
    const uint32_t first = groups_.First(position);
    uint32_t place = Next(first);
    if constexpr (std::is_same_v<Number, float>) {
      if (place == KeyGroups::kEnd) return At(first);
      CopyFloats(At(first), dim_, sum);
    } else {
      math::WidenBfloat16(At(first), dim_, sum);
    }
    while (place != KeyGroups::kEnd) {
      const Number* const more = At(place);
      place = groups_.Next(place);
      if (place != KeyGroups::kEnd) PrefetchNumbers(At(place), dim_);
      for (uint32_t d = 0; d < dim_; ++d) sum[d] += AsFloat(more[d]);
    }
    for (uint32_t d = 0; d < dim_; ++d) sum[d] = math::Within(sum[d], largest_);
    return sum;
  }

 private:
  const Number* At(uint32_t place) const {
    return of_one_ != nullptr ? of_one_ + size_t{place} * dim_
                              : static_cast<const Number*>(of_several_[place]);
  }
  uint32_t Next(uint32_t place) const { return repeats_ ? groups_.Next(place) : KeyGroups::kEnd; }

  const uint32_t dim_;
  const float largest_;
  const KeyGroups& groups_;
  const Number* of_one_ = nullptr;            // [keys, dim] of the only part
  absl::Span<const void* const> of_several_;  // by place among the keys of several parts
  bool repeats_ = false;                      // a key comes several times
};

absl::Status Table::ApplyToRows(absl::Span<const Gradients> parts, uint64_t step, double scale) {
  return wire_bfloat16() ? ApplyNumbers<uint16_t>(parts, step, scale)
                         : ApplyNumbers<float>(parts, step, scale);
}

template <typename Number>
absl::Status Table::ApplyNumbers(absl::Span<const Gradients> parts, uint64_t step, double scale) {
  const Scratch<ApplyScratch> scratch;
  const KeyGradients<Number> gradients(parts, dim(), largest_gradient(), *scratch);
  const absl::Span<const uint64_t> keys = gradients.keys();
  scratch->sums.resize(RowStore::Block::kMost * dim());
  if (by_tensor()) scratch->squares.assign(keys.size(), {});
  const uint32_t flag = every_row() ? kRowMoved : 0;
  const auto change = [&](const RowStore::Block& block) {
    for (const KeyBatch::Item& item : block.coming) gradients.Prefetch(item.position);
    std::array<const float*, RowStore::Block::kMost> of_rows;
    float* sum = scratch->sums.data();
    for (size_t i = 0; i < block.rows.size(); ++i) {
      block.rows[i]->Touch(step, flag);
      of_rows[i] = gradients.Sum(block.positions[i], sum);
      if (of_rows[i] == sum) sum += dim();
    }
    const auto changes = absl::MakeConstSpan(of_rows).first(block.rows.size());
    if (!by_tensor()) return optimizer_->Apply(block.rows, changes, scale, step);
    std::array<RowOptimizer::Squares, RowStore::Block::kMost> squares;
    optimizer_->Measure(block.rows, changes, absl::MakeSpan(squares).first(block.rows.size()));
    for (size_t i = 0; i < block.rows.size(); ++i) {
      scratch->squares[block.positions[i]] = squares[i];
    }
  };
  if (tier_ != nullptr) {
    return FromTier(
        tier_->Update(keys, [&](absl::Span<Row* const> rows, absl::Span<const uint32_t> positions) {
          change({.rows = rows, .positions = positions, .coming = {}});
        }));
  }
  store_.UpdateBlocks(keys, change);
  if (by_tensor()) MoveTensors(keys, absl::MakeSpan(scratch->squares), step, scale);
  return absl::OkStatus();
}

absl::Status Table::AddChanges(const Gradients& changes, uint64_t step) {
  const auto* const values = static_cast<const float*>(changes.values);
  const size_t floats = optimizer_->layout().floats();
  std::vector<const float*> of_rows;
  const auto add = [&](absl::Span<Row* const> rows, absl::Span<const uint32_t> positions) {
    of_rows.clear();
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i]->Touch(step);
      of_rows.push_back(values + positions[i] * floats);
    }
    optimizer_->Add(rows, of_rows, step);
  };
  if (tier_ != nullptr) return FromTier(tier_->Update(changes.keys, add));
  store_.Update(changes.keys, add);
  return absl::OkStatus();
}

void Table::MoveTensors(absl::Span<const uint64_t> keys, absl::Span<RowOptimizer::Squares> squares,
                        uint64_t step, double scale) {
  // Sums over a tensor always run in the order of its blocks.
  std::vector<uint32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return Mix64(keys[a]) < Mix64(keys[b]); });
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    RowOptimizer::Squares whole;
    const uint64_t tensor = DenseLayout::TensorOf(keys[order[begin]]);
    for (; end < order.size() && DenseLayout::TensorOf(keys[order[end]]) == tensor; ++end) {
      whole.weights += squares[order[end]].weights;
      whole.direction += squares[order[end]].direction;
    }
    for (size_t i = begin; i < end; ++i) squares[order[i]] = whole;
  }
  store_.UpdateBlocks(keys, [&](const RowStore::Block& block) {
    std::array<RowOptimizer::Squares, RowStore::Block::kMost> wholes;
    for (size_t i = 0; i < block.rows.size(); ++i) {
      // Somebody may have copied the row since it was touched.
      block.rows[i]->flags |= kRowChanged;
      wholes[i] = squares[block.positions[i]];
    }
    optimizer_->Move(block.rows, absl::MakeConstSpan(wholes).first(block.rows.size()), scale, step);
  });
}

void Table::MoveOtherRows(uint64_t step, double scale) {
  std::vector<Row*> others;
  std::vector<const float*> zeros;
  store_.UpdateEvery([&](absl::Span<Row* const> rows) {
    others.clear();
    for (Row* row : rows) {
      if ((row->flags & kRowMoved) == 0) others.push_back(row);
      row->flags = (row->flags & ~kRowMoved) | kRowChanged;
    }
    zeros.resize(others.size(), nullptr);
    optimizer_->Apply(others, zeros, scale, step);
  });
}

}  // namespace tessera::ps
