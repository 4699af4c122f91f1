#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/batch.h"
#include "worker/data/unique_keys.h"
#include "worker/embeddings/embedding_plan.h"
#include "worker/parameters/key_router.h"

namespace tessera::worker {

// The distinct keys of one key set in one batch.
struct BatchKeys {
  RoutedKeys routed;
  // [occurrences]: index in routed.keys; columns one after another, each in the order of samples.
  std::vector<uint32_t> row;
};

// Removes duplicate keys and routes the rest. Keeps its memory between batches; one per thread.
class KeyPreparer {
 public:
  // Both are borrowed and outlive the preparer.
  KeyPreparer(const EmbeddingPlan* plan, const KeyRouter* router) : plan_(plan), router_(router) {}
  // Fills one BatchKeys per key set.
  void Prepare(const Batch& batch, std::vector<BatchKeys>* keys);

 private:
  const EmbeddingPlan* const plan_;
  const KeyRouter* const router_;
  KeyDeduplicator deduplicator_;
  UniqueKeys unique_;
  std::vector<uint32_t> position_;
};

}  // namespace tessera::worker
