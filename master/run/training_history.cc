#include "master/run/training_history.h"

#include <cmath>
#include <optional>
#include <utility>

namespace tessera::master {
namespace {

// The mean over the samples of those of the two that have a value.
std::optional<double> MeanOf(std::optional<double> a, uint64_t a_samples, std::optional<double> b,
                             uint64_t b_samples) {
  if (!a.has_value() || a_samples == 0) return b.has_value() ? b : a;
  if (!b.has_value() || b_samples == 0) return a;
  const auto of_a = static_cast<double>(a_samples);
  const auto of_b = static_cast<double>(b_samples);
  return (*a * of_a + *b * of_b) / (of_a + of_b);
}

std::optional<double> LossOf(const v1::TrainingPoint& point) {
  return point.has_loss() ? std::optional(point.loss()) : std::nullopt;
}
std::optional<double> AucOf(const v1::TrainingPoint& point) {
  return point.has_auc() ? std::optional(point.auc()) : std::nullopt;
}

// Adds `next`, which follows `point`, to it.
void Join(const v1::TrainingPoint& next, v1::TrainingPoint* point) {
  const std::optional<double> loss =
      MeanOf(LossOf(*point), point->samples(), LossOf(next), next.samples());
  const std::optional<double> auc =
      MeanOf(AucOf(*point), point->samples(), AucOf(next), next.samples());
  if (loss.has_value()) point->set_loss(*loss);
  if (auc.has_value()) point->set_auc(*auc);
  point->set_step(next.step());
  point->set_unix_ms(next.unix_ms());
  point->set_samples(point->samples() + next.samples());
  point->set_seconds(point->seconds() + next.seconds());
  point->set_units(point->units() + next.units());
}

}  // namespace

void TrainingHistory::Begin(uint64_t step) {
  while (!points_.empty() && points_.rbegin()->step() > step) points_.RemoveLast();
  next_.Clear();
}

void TrainingHistory::Add(const v1::UnitResult& unit, uint64_t step, double seconds,
                          absl::Time now) {
  v1::TrainingPoint point;
  point.set_step(step);
  point.set_unix_ms(absl::ToUnixMillis(now));
  point.set_samples(unit.samples());
  point.set_seconds(seconds);
  const double loss = unit.loss_sum() / static_cast<double>(unit.samples());
  if (std::isfinite(loss)) point.set_loss(loss);
  if (std::isfinite(unit.auc())) point.set_auc(unit.auc());
  point.set_units(1);
  Join(point, &next_);
  const uint64_t before = points_.empty() ? 0 : points_.rbegin()->step();
  if (step <= before) return;
  const v1::TrainingPoint ended = std::exchange(next_, {});
  // The first point has as many units as a full one.
  if (!points_.empty() && points_.rbegin()->units() < points_[0].units()) {
    return Join(ended, &*points_.rbegin());
  }
  if (points_.size() == kMostPoints) {
    for (int i = 0; i < kMostPoints / 2; ++i) {
      v1::TrainingPoint both = points_[2 * i];
      Join(points_[2 * i + 1], &both);
      points_[i] = both;
    }
    points_.DeleteSubrange(kMostPoints / 2, kMostPoints / 2);
  }
  *points_.Add() = ended;
}

}  // namespace tessera::master
