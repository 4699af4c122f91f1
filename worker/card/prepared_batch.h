#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker/card/card_batch.h"
#include "worker/data/batch.h"
#include "worker/embeddings/key_preparer.h"
#include "worker/parameters/parameter_client.h"

namespace tessera::worker {

// One mini-batch on its way through a step.
struct PreparedBatch {
  uint64_t index = 0;  // the batch's number within its window or unit
  Batch batch;
  std::vector<BatchKeys> keys;  // by key set
  // By lookup: [PulledKeys, dim], which the pull fills.
  std::vector<std::vector<float>> rows;
  // By lookup: whole rows for a card to train, which the pull fills too.
  std::vector<std::vector<float>> whole_rows;
  CardBatch card;  // where rows are pooled on a card
  // The look-ahead call that goes before the pull; null: none. Reads `keys`.
  std::unique_ptr<PendingCall> ahead;
};

// The keys whose rows a pull brings: all, or those that a card has not kept.
inline const RoutedKeys& PulledKeys(const PreparedBatch& batch, size_t key_set) {
  if (batch.card.rows().empty() || batch.card.rows()[key_set].asks_for_all) {
    return batch.keys[key_set].routed;
  }
  return batch.card.rows()[key_set].asked;
}

// What the card is told about the rows of a key set that it trains; null: it trains none.
inline const CardBatch::Rows::Trained* TrainedRowsOf(const PreparedBatch& batch, size_t key_set) {
  if (batch.card.rows().empty() || !batch.card.rows()[key_set].trained) return nullptr;
  return &*batch.card.rows()[key_set].trained;
}

// The keys whose gradients are pushed: all, or those of rows that a card does not train.
inline const RoutedKeys& PushedKeys(const PreparedBatch& batch, size_t key_set) {
  return TrainedRowsOf(batch, key_set) == nullptr ? batch.keys[key_set].routed
                                                  : batch.card.rows()[key_set].asked;
}

}  // namespace tessera::worker
