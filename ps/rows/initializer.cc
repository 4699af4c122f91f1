#include "ps/rows/initializer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/random.h"

namespace tessera::ps {

absl::StatusOr<Initializer> Initializer::New(const v1::InitializerSpec& spec, uint64_t seed,
                                             absl::string_view table) {
  Initializer out;
  out.seed_ = seed;
  out.table_hash_ = NameHash(table);
  switch (spec.kind_case()) {
    case v1::InitializerSpec::kConstant:
      out.kind_ = Kind::kConstant;
      out.a_ = spec.constant().value();
      break;
    case v1::InitializerSpec::kUniform:
      out.kind_ = Kind::kUniform;
      out.a_ = spec.uniform().min();
      out.b_ = spec.uniform().max() - spec.uniform().min();
      break;
    case v1::InitializerSpec::kNormal:
      out.kind_ = Kind::kNormal;
      out.a_ = spec.normal().mean();
      out.b_ = spec.normal().stddev();
      break;
    case v1::InitializerSpec::KIND_NOT_SET:
      return absl::InvalidArgumentError(absl::StrCat(
          "table ", table, ": initializer is not set; expected constant, uniform or normal"));
  }
  if (!std::isfinite(out.a_) || !std::isfinite(out.b_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table, ": initializer has a number that is not finite"));
  }
  if (out.b_ < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table, ": initializer ",
        out.kind_ == Kind::kUniform ? "uniform: max is below min" : "normal: stddev is negative"));
  }
  return out;
}

void Initializer::Fill(uint64_t key, absl::Span<float> embedding) const {
  if (kind_ == Kind::kConstant) {
    std::fill(embedding.begin(), embedding.end(), a_);
    return;
  }
  const uint64_t stream = StreamKey(RandomFor::kInitialRow, seed_, table_hash_, key);
  if (kind_ == Kind::kUniform) {
    for (size_t i = 0; i < embedding.size(); ++i) {
      embedding[i] = a_ + b_ * RandomUniform(stream, i);
    }
  } else {
    for (size_t i = 0; i < embedding.size(); ++i) {
      embedding[i] = a_ + b_ * RandomNormal(stream, i);
    }
  }
}

}  // namespace tessera::ps
