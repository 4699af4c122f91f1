#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/rpc/channels.h"
#include "worker/assignment/cancellation.h"
#include "worker/assignment/status_board.h"
#include "worker/parameters/key_router.h"
#include "worker/parameters/ps_directory.h"

namespace tessera::overload {

// An `async` job of one table whose ranks offer a ps more than it takes, and a count of what it
// must have become: gradients are whole numbers that depend on key and element, applied by SGD with
// rate 1 to rows that begin at 0, so a row is minus its pushes times its gradient, to the bit, in
// whatever order they came.
class PushLoad {
 public:
  static constexpr uint32_t kDim = 16;

  struct Options {
    std::string ps;  // its address
    uint32_t ranks = 2;
    uint64_t rows = 0;             // keys are below
    uint32_t batches = 128;        // distinct ones
    uint32_t batch_keys = 53'248;  // draws by Zipf's law, of which a batch has the distinct ones
    uint64_t offered_bytes = 0;    // that all ranks together have under way
    uint64_t seed = 1;
  };
  explicit PushLoad(const Options& options);
  ~PushLoad();

  absl::Status Open();
  // Pushes, and now and then pulls, until `stop`; one thread a rank.
  absl::Status Run(uint32_t rank, const std::atomic<bool>& stop);
  // When all ranks have stopped: DATA_LOSS names the first row that is not what it must be.
  absl::Status Verify();

  uint64_t pushed_keys() const { return pushed_keys_.load(std::memory_order_relaxed); }
  uint64_t pulled_keys() const { return pulled_keys_.load(std::memory_order_relaxed); }
  uint64_t distinct_rows() const { return distinct_rows_; }

 private:
  struct Rank;
  struct Batch {
    worker::RoutedKeys keys;
    std::vector<float> gradients;  // [keys, kDim]
  };
  // Rows of a pull beside the pushes that were acknowledged before it and begun before it ended.
  absl::Status CheckRows(absl::Span<const uint64_t> keys, absl::Span<const float> rows,
                         absl::Span<const uint32_t> acknowledged) const;

  const Options options_;
  worker::StatusBoard board_;
  worker::Cancellation cancellation_;
  std::vector<Batch> batches_;
  uint64_t distinct_rows_ = 0;
  // [rows], pushes of each key.
  std::vector<std::atomic<uint32_t>> begun_;
  std::vector<std::atomic<uint32_t>> acknowledged_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::atomic<uint64_t> pushed_keys_ = 0;
  std::atomic<uint64_t> pulled_keys_ = 0;
};

}  // namespace tessera::overload
