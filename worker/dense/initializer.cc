#include "worker/dense/initializer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace tessera::worker {
namespace {

struct Scheme {
  const char* name;
  Initializer::Kind kind;
  // The variance is this over the sum of the fans that count; 0: the gain itself is the standard
  // deviation, or the bound.
  double variance = 0;
  bool counts_out = false;
};

constexpr auto kNormal = Initializer::Kind::kNormal;
constexpr auto kUniform = Initializer::Kind::kUniform;

constexpr Scheme kSchemes[] = {
    // Glorot, Bengio 2010.
    {"xavier_normal", kNormal, 2, true},
    {"xavier_uniform", kUniform, 2, true},
    // He et al. 2015, for ReLU.
    {"he_normal", kNormal, 2},
    {"he_uniform", kUniform, 2},
    // LeCun et al. 1998. torch.nn.Linear starts as lecun_uniform with a gain of 1 / sqrt(3).
    {"lecun_normal", kNormal, 1},
    {"lecun_uniform", kUniform, 1},
    {"normal", kNormal},
    {"uniform", kUniform},
};

// `by_fans`: one of those whose variance goes by the fans.
std::string ReadInit(OptionReader& options, bool by_fans) {
  std::vector<std::string> names;
  for (const Scheme& scheme : kSchemes) {
    if (scheme.variance > 0 || !by_fans) names.emplace_back(scheme.name);
  }
  return options.Choice("init", kSchemes[0].name, names);
}

}  // namespace

std::string WeightInit::ReadScheme(OptionReader& options) {
  return ReadInit(options, /*by_fans=*/true);
}

WeightInit WeightInit::Read(OptionReader& options) {
  WeightInit init;
  init.scheme_ = ReadInit(options, /*by_fans=*/false);
  init.gain_ = static_cast<float>(options.Number("gain", 1, 0, 1e6));
  return init;
}

Initializer WeightInit::For(int64_t fan_in, int64_t fan_out) const {
  const Scheme* const scheme =
      std::find_if(std::begin(kSchemes), std::end(kSchemes),
                   [this](const Scheme& known) { return known.name == scheme_; });
  if (scheme->variance == 0) return {scheme->kind, gain_};
  const auto fans = static_cast<double>(fan_in + (scheme->counts_out ? fan_out : 0));
  // The variance of uniform numbers is a third of their bound's square.
  const double square = scheme->variance / fans * (scheme->kind == kUniform ? 3 : 1);
  return {scheme->kind, gain_ * static_cast<float>(std::sqrt(square))};
}

}  // namespace tessera::worker
