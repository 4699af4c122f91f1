#include "client/click_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/random.h"

namespace tessera::client {
namespace {

// The generator's random streams.
enum Stream : uint64_t { kWeights, kLatents, kOrder, kSlopes, kIds, kDense, kLabels };

// Sizes of the effects: with these the best AUC is about 0.83, and a quarter of the samples or a
// bit more are clicked.
constexpr double kBias = -1.2;
constexpr double kWeightDeviation = 0.4;
constexpr double kLatentDeviation = 0.42;
// Effects shrink with the rank as 1 / r^kRareness: ids that a model sees in few samples weigh
// little, so that a good model comes near to the best from some 100,000 samples.
constexpr double kRareness = 0.25;
constexpr double kSlope = 0.35;
constexpr double kBend = 0.5;

double MeanAbsNormal() { return std::sqrt(2 / std::numbers::pi); }

// Normal draws, smaller for rare ids, shifted and scaled so that under the probabilities of the
// ranks they have mean 0 and the given deviation: the draws of the few most frequent ids do not
// decide the size of an effect.
void DrawEffects(uint64_t key, absl::Span<const double> probability, double deviation,
                 size_t stride, double* out) {
  double mean = 0;
  double square = 0;
  for (size_t r = 0; r < probability.size(); ++r) {
    out[r * stride] = RandomNormal(key, r) * std::pow(r + 1.0, -kRareness);
    mean += probability[r] * out[r * stride];
  }
  for (size_t r = 0; r < probability.size(); ++r) {
    out[r * stride] -= mean;
    square += probability[r] * out[r * stride] * out[r * stride];
  }
  for (size_t r = 0; r < probability.size(); ++r) out[r * stride] *= deviation / std::sqrt(square);
}

}  // namespace

ClickModel::ClickModel(const ClickModelOptions& options) : seed_(options.seed) {
  uint32_t first_id = 0;
  for (size_t f = 0; f < options.vocabulary.size(); ++f) {
    fields_.push_back(MakeField(f, first_id, options.vocabulary[f], options.zipf));
    first_id += options.vocabulary[f];
  }
  for (uint32_t k = 0; k < options.dense; ++k) {
    const uint64_t key = StreamKey(RandomFor::kGenerator, seed_, kSlopes);
    slopes_.push_back((RandomBits(key, k) & 1) != 0 ? kSlope : -kSlope);
  }
}

ClickModel::Field ClickModel::MakeField(size_t index, uint32_t first_id, uint32_t vocabulary,
                                        double zipf) const {
  Field field;
  field.first_id = first_id;
  std::vector<double> probability(vocabulary);
  double sum = 0;
  for (uint32_t r = 0; r < vocabulary; ++r) sum += probability[r] = std::pow(r + 1.0, -zipf);
  double below = 0;
  for (double& p : probability) {
    p /= sum;
    field.cumulative.push_back(below += p);
  }
  const auto key = [&](Stream stream, uint64_t part) {
    return StreamKey(RandomFor::kGenerator, seed_, stream, index, part);
  };
  field.weight.resize(vocabulary);
  DrawEffects(key(kWeights, 0), probability, kWeightDeviation, 1, field.weight.data());
  if (index < kInteracting) {
    field.latent.resize(size_t{vocabulary} * kLatentDim);
    for (uint32_t d = 0; d < kLatentDim; ++d) {
      DrawEffects(key(kLatents, d), probability, kLatentDeviation, kLatentDim,
                  field.latent.data() + d);
    }
  }
  field.id = RandomPermutation(key(kOrder, 0), vocabulary);
  field.rank.resize(vocabulary);
  for (uint32_t r = 0; r < vocabulary; ++r) field.rank[field.id[r]] = r;
  return field;
}

void ClickModel::Draw(uint64_t split, uint64_t i, Sample* sample) const {
  const auto key = [&](Stream stream) {
    return StreamKey(RandomFor::kGenerator, seed_, stream, split, i);
  };
  sample->dense.resize(slopes_.size());
  for (size_t k = 0; k < slopes_.size(); ++k) {
    // As a file has the value: with four decimals, and no negative zero.
    sample->dense[k] = std::round(RandomNormal(key(kDense), k) * 1e4) / 1e4 + 0.0;
  }
  sample->ids.resize(fields_.size());
  for (size_t f = 0; f < fields_.size(); ++f) {
    const Field& field = fields_[f];
    const auto it = std::upper_bound(field.cumulative.begin(), field.cumulative.end() - 1,
                                     RandomUniformDouble(key(kIds), f));
    sample->ids[f] = field.first_id + field.id[static_cast<size_t>(it - field.cumulative.begin())];
  }
  sample->logit = Logit(sample->dense, sample->ids);
  sample->clicked = RandomUniformDouble(key(kLabels), 0) < 1 / (1 + std::exp(-sample->logit));
}

double ClickModel::Logit(absl::Span<const double> dense, absl::Span<const uint32_t> ids) const {
  double z = kBias;
  // The pairs' sum is half of |sum of v|^2 - sum of |v|^2, the identity of factorization machines
  // (Rendle 2010, lemma 3.1).
  double sum[kLatentDim] = {};
  double squares = 0;
  for (size_t f = 0; f < fields_.size(); ++f) {
    const Field& field = fields_[f];
    const size_t rank = field.rank[ids[f] - field.first_id];
    z += field.weight[rank];
    if (field.latent.empty()) continue;
    for (uint32_t d = 0; d < kLatentDim; ++d) {
      const double v = field.latent[rank * kLatentDim + d];
      sum[d] += v;
      squares += v * v;
    }
  }
  for (const double s : sum) z += s * s / 2;
  z -= squares / 2;
  for (size_t k = 0; k < slopes_.size(); ++k) z += slopes_[k] * dense[k];
  if (!slopes_.empty()) z += kBend * (std::fabs(dense[slopes_.size() - 1]) - MeanAbsNormal());
  return z;
}

}  // namespace tessera::client
