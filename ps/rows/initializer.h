#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/v1/job.pb.h"

namespace tessera::ps {

// The embedding that a row starts from: a pure function of (seed, table, key), so it depends on no
// process, thread, order or restart. A value; thread-safe.
class Initializer {
 public:
  // INVALID_ARGUMENT names the field: no kind set, not finite, min > max, stddev < 0.
  static absl::StatusOr<Initializer> New(const v1::InitializerSpec& spec, uint64_t seed,
                                         absl::string_view table);

  void Fill(uint64_t key, absl::Span<float> embedding) const;

 private:
  enum class Kind { kConstant, kUniform, kNormal };
  Initializer() = default;

  Kind kind_ = Kind::kConstant;
  float a_ = 0;  // value; min; mean
  float b_ = 0;  // -; max - min; standard deviation
  uint64_t seed_ = 0;
  uint64_t table_hash_ = 0;
};

}  // namespace tessera::ps
