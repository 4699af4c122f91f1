#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera::math {

// AUC (auc.h) of any number of samples, from the counts of each class in a fixed number of score
// bins: with P_b, N_b samples in bin b and N_<b in the bins below,
//   AUC = sum over b of P_b (N_<b + N_b / 2) / (P N)
// the area under the ROC curve by trapezoids between the edges of bins (Fawcett 2006, "An
// introduction to ROC analysis", section 7). A pair in one bin counts half, as if its scores were
// equal; all others count as in auc.h. So the error is at most half the share of pairs in one bin
// whose scores differ.
//
// A bin is 2^-13 of an octave of |x| + 2^-6, on either side of 0, from 2^-6 to 2^10: its width is
// 2^-14 to 2^-13 of |x| + 2^-6, from 2e-6 near 0 to 5e-4 at 7. Scaling scores does not change an
// AUC, and widths that grow with the score keep the error the same for scores that spread over
// thousandths or hundreds. Bins of equal width in the logit would need to know the spread; bins of
// equal width in the probability would put all samples of a rare class in a few. Measured with
// normal scores of deviation 1 around 0, -4 and -7, the error is below 1e-6 and the bound below
// 1e-4; scores that all lie within a thousandth of -4 are too close together, and the bound says
// so. Scores of 1024 and above share one bin on each side.
//
// Independent of the samples' order, and of how they were divided among merged objects, to the bit.
// At most 6 MB, with weights 10; at most 12 KB, or 20, for each sample. A value type.
class BinnedAuc {
 public:
  explicit BinnedAuc(bool weighted);

  void Add(absl::Span<const float> logits,    // [n], none NaN
           absl::Span<const float> labels,    // [n], above 0.5: positive
           absl::Span<const float> weights);  // [n], 0 or more; not weighted: empty
  // `other` must be weighted exactly if this is.
  void Merge(const BinnedAuc& other);

  // NaN if a class is missing, or weights add up to 2^62 or more. Weights count in units of 2^-64,
  // so weights of 2^-41 and above count exactly.
  double value() const;
  // A bound of |value() - AUC|, except for rounding to double. NaN if value() is NaN.
  double error_bound() const;

 private:
  struct Bin {
    uint64_t positives = 0;
    uint64_t negatives = 0;
    // SortedScores::Key of the only score in the bin; kNone: no score; kSeveral: different scores.
    uint32_t key = 0;
  };
  // The fractional parts of the weights, in units of 2^-64.
  struct Fraction {
    uint64_t positives = 0;
    uint64_t negatives = 0;
  };
  struct Pairs {
    double ordered = 0;    // share with the positive above; pairs in one bin count half
    double uncertain = 0;  // share of pairs in one bin whose scores may differ
  };

  // Neighbouring bins, allocated once one of them has a sample.
  struct Page {
    std::vector<Bin> bins;            // [kPageBins]; empty: not allocated
    std::vector<Fraction> fractions;  // as many; empty: not weighted
  };

  Page& PageOf(uint32_t bin);
  Pairs Count() const;
  Pairs CountWeighted() const;

  bool weighted_;
  std::vector<Page> pages_;
  uint64_t most_weight_ = 0;  // sum of all weights, each rounded up to above its value
};

}  // namespace tessera::math
