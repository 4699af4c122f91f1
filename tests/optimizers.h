#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tessera/v1/job.pb.h"

namespace tessera {

// The kinds of OptimizerSpec, all that there are: "sgd", "adagrad", ...
inline std::vector<std::string> KindsOfOptimizers() {
  const google::protobuf::OneofDescriptor& kinds = *v1::OptimizerSpec::descriptor()->oneof_decl(0);
  std::vector<std::string> names;
  for (int i = 0; i < kinds.field_count(); ++i) names.push_back(kinds.field(i)->name());
  return names;
}

constexpr char kWithOptions[] = "_with_options";

// Each kind by itself, and with those of its options that lead to another formula: "adam" and
// "adam_with_options", which is AdamW.
inline std::vector<std::string> NamesOfOptimizers() {
  std::vector<std::string> names;
  for (const std::string& kind : KindsOfOptimizers()) {
    names.push_back(kind);
    names.push_back(kind + kWithOptions);
  }
  return names;
}

// One of NamesOfOptimizers.
inline v1::OptimizerSpec OptimizerNamed(absl::string_view name) {
  v1::OptimizerSpec spec;
  const bool with_options = absl::ConsumeSuffix(&name, kWithOptions);
  spec.GetReflection()->MutableMessage(
      &spec, v1::OptimizerSpec::descriptor()->FindFieldByName(std::string(name)));
  if (!with_options) return spec;
  spec.set_weight_decay(0.1f);
  if (spec.has_momentum()) spec.mutable_momentum()->set_nesterov(true);
  if (spec.has_adagrad()) spec.mutable_adagrad()->set_decay(0.9f);
  if (spec.has_rmsprop()) spec.mutable_rmsprop()->set_momentum(0.5f);
  if (spec.has_ftrl()) spec.mutable_ftrl()->set_l1(0.01f);
  return spec;
}

}  // namespace tessera
