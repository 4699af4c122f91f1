#include "ps/memory/memory_beside.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::ps {
namespace {

// The figure before there is any work: what a ps with two busy clients and rows on disk took.
constexpr uint64_t kFirst = 96 << 20;
// The part of the budget kept free for what comes before it is measured.
uint64_t MarginOf(uint64_t budget) { return std::min<uint64_t>(budget / 16, 64 << 20); }
// Largest rise in a second, as a share of the budget.
constexpr double kMostRise = 1.0 / 8;
// How fast the figure falls.
constexpr absl::Duration kHalfLife = absl::Minutes(2);
constexpr absl::Duration kHalfLifeWhereRowsStay = absl::Hours(2);

}  // namespace

void MemoryBeside::Measure(uint64_t resident, uint64_t counted, absl::Duration now) {
  measured_ = resident > counted ? resident - counted : 0;
  const uint64_t beside = measured_ + MarginOf(budget_);
  const absl::Duration since = now - at_;
  at_ = now;
  const bool begun = std::exchange(begun_, true);
  guessed_ = begun ? guessed_ && beside < bytes_ : beside < kFirst;
  if (!begun) {
    bytes_ = std::max(beside, kFirst);
  } else if (beside > bytes_ && rows_ == Rows::kStay) {
    bytes_ = beside;
  } else if (beside > bytes_) {
    const double rise = kMostRise * static_cast<double>(budget_) * absl::ToDoubleSeconds(since);
    bytes_ += std::min(beside - bytes_, static_cast<uint64_t>(rise));
  } else {
    const absl::Duration half_life = rows_ == Rows::kStay ? kHalfLifeWhereRowsStay : kHalfLife;
    const double left = std::exp2(-absl::FDivDuration(since, half_life));
    bytes_ = beside + static_cast<uint64_t>(static_cast<double>(bytes_ - beside) * left);
  }
}

}  // namespace tessera::ps
