#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/job/tasks.h"
#include "common/math/metrics/evaluation_metrics.h"

// Samples that metrics are measured of.
namespace tessera::math {

struct EvaluatedSamples {
  std::vector<float> outputs;
  std::vector<float> labels;
  std::vector<uint64_t> groups;
  Outputs kind = Outputs::kLogits;
  std::vector<float> log_probabilities = {};

  Evaluated WithWeights(absl::Span<const float> weights) const {
    return {.outputs = outputs,
            .labels = labels,
            .groups = groups,
            .weights = weights,
            .log_probabilities = log_probabilities,
            .kind = kind};
  }
  double Measure(const std::string& name) const {
    return ComputeMetrics({name}, WithWeights({})).at(name);
  }
};

// Outputs are rounded to quarters, so that many are equal.
inline EvaluatedSamples RandomSamples(int n, int groups, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  EvaluatedSamples samples;
  for (int i = 0; i < n; ++i) {
    const float x = std::round(normal(random) * 8) / 4;
    samples.outputs.push_back(x);
    samples.labels.push_back(uniform(random) < 1 / (1 + std::exp(1 - x)) ? 1 : 0);
    samples.groups.push_back(random() % groups * 0x9e3779b97f4a7c15u);
  }
  samples.labels[0] = 0, samples.labels[1] = 1;
  return samples;
}

// All that a loss may have.
inline std::set<Outputs> AllOutputs() {
  std::set<Outputs> all;
  for (const LossInfo& info : AllLosses()) all.insert(info.outputs);
  return all;
}

// Logits of labels, or in their place what outputs of the kind and their labels are.
inline EvaluatedSamples SamplesOf(Outputs kind, int n, int groups, int seed) {
  EvaluatedSamples samples = RandomSamples(n, groups, seed);
  samples.kind = kind;
  std::mt19937 random(seed + 1);
  std::normal_distribution<float> normal;
  for (int i = 0; i < n; ++i) {
    if (kind == Outputs::kValues) samples.labels[i] = 2 + normal(random);
    if (kind == Outputs::kGradedRanks) samples.labels[i] = static_cast<float>(random() % 4);
    if (kind == Outputs::kClasses) {
      samples.outputs[i] = static_cast<float>(random() % 4);
      samples.labels[i] = static_cast<float>(random() % 4);
      samples.log_probabilities.push_back(-std::fabs(normal(random)));
    }
  }
  return samples;
}

}  // namespace tessera::math
