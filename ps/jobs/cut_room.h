#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::ps {

// Bounds the bytes of rows that were copied for cuts (RowStore::BeginCut) and are not written yet,
// in all shards of a ps. Whoever is about to change rows reserves as much as the copies may take,
// and returns it when the tables have made and counted the copies. Thread-safe.
class CutRoom {
 public:
  // What the cut of a shard has now; both 0 without one.
  struct Copies {
    uint64_t copied = 0;  // bytes of copies; never more than was reserved for them
    uint64_t unread = 0;  // bytes that the writer still has to read
  };
  struct Shard {
    // Called under the room's lock: they take no lock that is held where the room is called.
    std::function<Copies()> look;
    std::function<void()> give_up;  // the cut, and frees its copies
  };

  explicit CutRoom(uint64_t max_bytes) : max_bytes_(max_bytes) {}
  CutRoom(const CutRoom&) = delete;
  CutRoom& operator=(const CutRoom&) = delete;

  // `who` names the shard, which is removed before it goes.
  void Add(const void* who, Shard shard) ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(const void* who) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until there is room for what `needed` says that the copies may take, which becomes less
  // while the writer reads, and returns it. Of cuts whose writers have read nothing for at least
  // `limit` and less than twice that, the one with the most copies is given up, if that makes room.
  // nullopt: it does not, and no writer reads.
  std::optional<uint64_t> Reserve(absl::FunctionRef<uint64_t()> needed, absl::Duration limit)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Return(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Tells those that wait that copies were freed.
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);

  uint64_t max_bytes() const { return max_bytes_; }
  // Of all shards.
  uint64_t copied() const ABSL_LOCKS_EXCLUDED(mu_);
  // Whether somebody waits.
  bool awaited() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  uint64_t Copied() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Copies::unread of each shard, before a wait.
  using Unread = std::map<const void*, uint64_t>;
  // Gives up the largest cut that nobody has read since, if that makes room for `bytes`. False: it
  // did not.
  bool GiveUpStill(const Unread& before, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether any writer has read something since.
  bool Reads(const Unread& before) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t max_bytes_;
  mutable absl::Mutex mu_;
  std::map<const void*, Shard> shards_ ABSL_GUARDED_BY(mu_);
  uint64_t reserved_ ABSL_GUARDED_BY(mu_) = 0;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::ps
