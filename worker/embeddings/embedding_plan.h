#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tessera/v1/job.pb.h"
#include "worker/dense/model.h"

namespace tessera::worker {

// Which columns are looked up in which tables, and where their rows go. Tables with the same
// columns share one key set: their duplicates are removed and their keys routed once. Everything
// that reads one table is one lookup, so that a key's gradients meet in one sum. Immutable.
class EmbeddingPlan {
 public:
  struct KeySet {
    std::vector<uint32_t> columns;  // indices in Batch::sparse, in order
  };
  // Where a column's rows go: into one field of an input, or with SEQUENCE into a whole input.
  struct Field {
    v1::Pooling pooling = v1::SUM;
    size_t input = 0;          // index among the model's inputs
    size_t at = 0;             // where the field begins in a sample, in floats
    size_t sample_floats = 0;  // floats of a sample in the input
  };
  struct Lookup {
    uint32_t table = 0;  // index in TablesOf(spec)
    uint32_t dim = 0;
    bool wire_bfloat16 = false;
    size_t key_set = 0;
    std::vector<Field> fields;  // by column of the key set
  };

  EmbeddingPlan(const v1::JobSpec& spec, absl::Span<const Model::Input> inputs);

  absl::Span<const KeySet> key_sets() const { return key_sets_; }
  absl::Span<const Lookup> lookups() const { return lookups_; }

 private:
  std::vector<KeySet> key_sets_;
  std::vector<Lookup> lookups_;
};

}  // namespace tessera::worker
