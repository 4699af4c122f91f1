#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera::client {

struct ClickModelOptions {
  uint64_t seed = 1;
  // The number of ids of each sparse field. Within a field the id of rank r (from 1) is drawn with
  // a probability proportional to 1 / r^zipf.
  std::vector<uint32_t> vocabulary = {50, 100, 150, 200, 300, 500, 1000, 5000};
  double zipf = 1.25;
  uint32_t dense = 4;
};

// A synthetic model of clicks that samples are drawn from, so that the best that any model could do
// on them is known. A sample has dense values x ~ N(0, 1) and one id per field, and is clicked with
// probability sigmoid(z):
//   z = b + sum_f w_f[id_f] + sum_{f < g < 4} <v_f[id_f], v_g[id_g]>     (linear, and as in FM)
//         + sum_k a_k x_k + c (|x_last| - E|x_last|)                     (and not linear in x_last)
// Pure: sample i of a split depends only on (options, split, i). Immutable.
class ClickModel {
 public:
  explicit ClickModel(const ClickModelOptions& options);

  struct Sample {
    bool clicked = false;
    std::vector<double> dense;  // [dense], with 4 decimals
    // [fields]; a field's ids follow those of the fields before it, so no two fields share one.
    std::vector<uint32_t> ids;
    double logit = 0;  // z
  };
  // Overwrites `sample`, reusing its memory.
  void Draw(uint64_t split, uint64_t i, Sample* sample) const;
  // z of a sample as a data file has it.
  double Logit(absl::Span<const double> dense, absl::Span<const uint32_t> ids) const;

 private:
  static constexpr uint32_t kLatentDim = 4;
  static constexpr size_t kInteracting = 4;  // fields

  struct Field {
    uint32_t first_id = 0;
    std::vector<double> cumulative;  // [vocabulary], sums of the probabilities by rank
    std::vector<uint32_t> id;        // [vocabulary], rank -> id within the field
    std::vector<double> weight;      // [vocabulary], by rank
    std::vector<double> latent;      // [vocabulary, kLatentDim], by rank; empty: none
    std::vector<uint32_t> rank;      // [vocabulary], id within the field -> rank
  };

  Field MakeField(size_t index, uint32_t first_id, uint32_t vocabulary, double zipf) const;

  const uint64_t seed_;
  std::vector<Field> fields_;
  std::vector<double> slopes_;  // [dense]
};

}  // namespace tessera::client
