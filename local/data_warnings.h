#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/v1/job.pb.h"
#include "worker/data/batch.h"

namespace tessera::local {

// For each sequence of model.options whose ids never have the keys of its target's, and each
// negative whose ids never have those of its sequence, so that equal ids have different rows.
std::vector<std::string> WarningsOfKeys(const v1::JobSpec& spec);

// What records hold that is allowed and hardly meant: no separator where the job names one,
// sequences that are read place by place and are not equally long, no label at all, numbers that
// are too large for a network. Borrows the spec.
class ColumnsSeen {
 public:
  explicit ColumnsSeen(const v1::JobSpec& spec);
  // Records of the spec's data.
  void Add(const worker::Batch& batch);
  std::vector<std::string> Warnings() const;

 private:
  struct Lists {
    const v1::ColumnSpec* column = nullptr;
    size_t sparse_index = 0;  // in Batch::sparse
    uint64_t filled = 0;      // records with an id
    uint64_t several = 0;     // records with more than one
  };
  struct Pair {
    std::string first, other;
    size_t first_index = 0, other_index = 0;  // in Batch::sparse
    uint64_t unequal = 0;                     // records
  };
  struct Labels {
    const v1::ColumnSpec* column = nullptr;
    size_t index = 0;  // in a row of Batch::labels
    bool any = false;  // some record has one
  };
  struct Numbers {
    const v1::ColumnSpec* column = nullptr;
    size_t begin = 0, end = 0;  // in a row of Batch::dense
    float largest = 0;          // without its sign
  };

  uint64_t records_ = 0;
  std::vector<Lists> lists_;  // of columns with a separator
  std::vector<Pair> pairs_;
  std::vector<Labels> labels_;  // of columns with a missing_value
  std::vector<Numbers> numbers_;
};

}  // namespace tessera::local
