#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "worker/parameters/ps_directory.h"
#include "worker/parameters/slot_pool.h"

namespace tessera::worker {

// Memory that a worker shares with those ps of an assignment that run on its own machine. The
// worker offers a region to a ps (v1::ParameterService.ShareMemory) when a call first has use for
// it, and again when another process may have taken the place of that ps. Until the ps agrees,
// calls carry their bulk themselves; if it refuses, for good. Thread-safe.
class SharedMemory {
 public:
  // Slots per region, and bytes per slot: a message of ParameterClient, and what alignment adds.
  static constexpr uint32_t kSlots = 64;
  static constexpr uint32_t kSlotBytes = 576 << 10;

  // `ps` is borrowed and outlives it. `enabled`: false: nothing is ever shared.
  SharedMemory(const PsDirectory* ps, bool enabled);
  ~SharedMemory();  // cancels offers that are under way, and waits for them to end

  struct Taken {
    Slot slot;
    uint64_t region = 0;  // the region's number at the ps
  };
  // A slot for the bulk of a call to ps number `ps`; none: the call must carry its bulk.
  std::optional<Taken> Take(size_t ps, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Called when a call with bulk in a slot of `region` has failed. After UNAVAILABLE a new region
  // is offered: another process may have that address now.
  void Failed(size_t ps, uint64_t region, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  enum class State { kNotOffered, kOffered, kAgreed, kRefused };
  // The state of sharing with one ps.
  struct Link {
    Link() = default;
    explicit Link(std::shared_ptr<Peer> process) : peer(std::move(process)) {}

    std::shared_ptr<Peer> peer;  // the process; null: none yet
    State state = State::kNotOffered;
    absl::Duration not_before;       // earliest time of the next offer, by the monotonic clock
    bool refused_once = false;       // the log says so already
    std::shared_ptr<SlotPool> pool;  // once agreed
    uint64_t region = 0;             // once agreed
  };
  struct Offer;

  // Makes an offer, and End takes its outcome. The link is kOffered until then.
  void Begin(size_t ps, std::shared_ptr<Peer> peer) ABSL_LOCKS_EXCLUDED(mu_);
  void End(Offer* offer, absl::Status status) ABSL_LOCKS_EXCLUDED(mu_);
  void Refuse(const Peer& peer, Link& link, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool NoOffers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return offers_.empty(); }

  const PsDirectory& ps_;
  const bool enabled_;
  absl::Mutex mu_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Link> links_ ABSL_GUARDED_BY(mu_);     // [ps]
  std::vector<Offer*> offers_ ABSL_GUARDED_BY(mu_);  // under way; each deletes itself
};

}  // namespace tessera::worker
