#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera::math {

// AUC (auc.h) of any number of samples, from how many of each class have scores in each of a fixed
// number of bins: with P_b, N_b samples in bin b and N_<b in the bins below,
//   AUC = sum over b of P_b (N_<b + N_b / 2) / (P N)
// the area under the ROC curve by trapezoids between the edges of bins (Fawcett 2006, "An
// introduction to ROC analysis", section 7). A pair whose scores fall in one bin counts half as if
// they were equal, and all others count as in auc.h, so it is wrong by half the share of such pairs
// at most; not at all where the scores are equal.
//
// A bin is 2^-13 of an octave of |x| + 2^-6, on either side of 0, from 2^-6 to 2^10: its width is
// 2^-14 to 2^-13 of |x| + 2^-6, from 2e-6 near 0 to 5e-4 at 7. Scaling scores does not change an
// AUC, and widths that grow with the score keep the error the same for scores that spread over
// thousandths or hundreds. Bins even in the logit would have to know how far they spread, and even
// in the probability would put all samples of a rare class in a few. Measured with normal scores
// that deviate by 1 around 0, -4 and -7, the error is below 1e-6 and the bound below 1e-4; scores
// that all lie within a thousandth of -4 are too near to one another, and the bound says so. Scores
// of 1024 and above share one bin of each side.
//
// A function of the samples as a set: their order, and how they were divided among those that were
// merged, does not change a bit. At most 6 MB, with weights 10; at most 12 KB, or 20, for each
// sample. A value type.
class BinnedAuc {
 public:
  explicit BinnedAuc(bool weighted);

  void Add(absl::Span<const float> logits,    // [n], none NaN
           absl::Span<const float> labels,    // [n], above 0.5: positive
           absl::Span<const float> weights);  // [n], 0 or more; not weighted: empty
  // `other` is weighted if this is.
  void Merge(const BinnedAuc& other);

  // NaN where a class is missing, or weights add up to 2^62 or more. Weights count in units of
  // 2^-64, so those of 2^-41 and above exactly.
  double value() const;
  // |value() - AUC| is no larger, but for the rounding of a double. NaN where the value is.
  double error_bound() const;

 private:
  struct Bin {
    uint64_t positives = 0;
    uint64_t negatives = 0;
    // SortedScores::Key of the one score that is here; kNone: nobody is, kSeveral: several are.
    uint32_t key = 0;
  };
  // What of weights is below 1, in units of 2^-64.
  struct Fraction {
    uint64_t positives = 0;
    uint64_t negatives = 0;
  };
  struct Pairs {
    double ordered = 0;    // share in which the positive is above, those in one bin counting half
    double uncertain = 0;  // share in one bin, of scores that may differ
  };

  // Neighbours, which are there once one of them has a sample.
  struct Page {
    std::vector<Bin> bins;            // [kPageBins]; empty: it is not there
    std::vector<Fraction> fractions;  // as many; empty: not weighted
  };

  Page& PageOf(uint32_t bin);
  Pairs Count() const;
  Pairs CountWeighted() const;

  bool weighted_;
  std::vector<Page> pages_;
  uint64_t most_weight_ = 0;  // all weights, each rounded up to more than it is
};

}  // namespace tessera::math
