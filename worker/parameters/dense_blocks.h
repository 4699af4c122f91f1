#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/job/dense_layout.h"
#include "tessera/v1/job.pb.h"
#include "worker/dense/model.h"
#include "worker/parameters/parameter_client.h"

namespace tessera::worker {

// How the trained parameters lie in kDenseTable: flat, or by tensor where the optimizer asks for
// it.
DenseLayout TrainedLayout(const v1::ModelSpec& spec, const Model& model);

// A flat vector of dense parameters, or some blocks of one, as rows of a table. The routing is
// fixed for an assignment. Not thread-safe.
class DenseBlocks {
 public:
  DenseBlocks(uint32_t table, const DenseLayout& layout, const KeyRouter& router)
      : DenseBlocks(table, layout.blocks(), router) {}
  // Only these blocks; floats of other blocks are neither read nor written.
  DenseBlocks(uint32_t table, absl::Span<const DenseLayout::Block> blocks, const KeyRouter& router);

  // What a pull fills and what a push sends, in the order of the blocks' owners. Each has its own
  // buffer, so both calls may be under way at once.
  TableRows Read();
  TableGradients Write() const;

  // CopyOut reads what was pulled, CopyIn sets what is pushed. `flat` is [layout.floats()].
  // FAILED_PRECONDITION: what was pulled was written for another model (DenseLayout::CheckPadding).
  absl::Status CopyOut(absl::Span<float> flat) const;
  void CopyIn(absl::Span<const float> flat);

 private:
  const uint32_t table_;
  RoutedKeys keys_;
  std::vector<DenseLayout::Block> blocks_;  // in the order of keys_
  // [blocks, kDenseBlockFloats]
  std::vector<float> pulled_;
  std::vector<float> pushed_;
};

}  // namespace tessera::worker
