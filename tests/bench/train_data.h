#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::bench {

// Samples that look like a click log to whoever trains on them, drawn by a fixed seed: dense values
// uniform in [0, 1), ids of each field by Zipf's law (zipf.h), labels 1 for a quarter of them, by
// chance: what a model learns from them is not looked at.
struct TrainData {
  uint64_t samples = 0;
  uint32_t dense = 0;
  uint32_t fields = 0;
  // Of all fields together. Field f has the ids from f * rows / fields on, so fields share none.
  uint64_t rows = 0;
};

// The same samples twice: `csv` with a header (label, d0 .. , c0 ..) and `raw`, which is labels
// [samples] and dense values [samples, dense] as float32, then ids [samples, fields] as int64, in
// the machine's byte order. Returns how many different ids they have, which is how many rows a job
// creates. UNAVAILABLE: cannot be written.
absl::StatusOr<uint64_t> WriteTrainData(const TrainData& data, const std::string& csv,
                                        const std::string& raw);

}  // namespace tessera::bench
