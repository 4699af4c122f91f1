#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "master/etcd/etcd_client.h"

namespace tessera::master {

// Makes this process the one master of its cluster: the process holds the key
// /tessera/<cluster>/leader, which lives as long as a lease that a thread of this object renews.
// The object counts nine tenths of the lease, from before it asked for the renewal, so that it
// takes itself for deposed before etcd can give the key to another process. A leadership once lost
// stays lost: to lead again takes a new object. Thread-safe.
class Leadership {
 public:
  struct Options {
    EtcdClient* etcd = nullptr;  // borrowed, outlives the leadership
    std::string cluster;         // see CheckClusterName
    std::string self;            // the leader's name in the logs of others
    // How long others wait after the leader has vanished. etcd takes whole seconds and may grant
    // more.
    absl::Duration ttl = absl::Seconds(10);
    const Clock* clock = &SystemClock();
    // Runs once when the leadership is lost, in the thread that finds out; must not block.
    std::function<void()> on_lost;
  };

  // Returns when this process leads. Until then it looks twice a second and logs whom it waits for.
  // `wait` lets time pass and returns whether to give up: CANCELLED. FAILED_PRECONDITION: etcd
  // refuses this process for good.
  static absl::StatusOr<std::unique_ptr<Leadership>> Campaign(
      const Options& options, const std::function<bool(absl::Duration)>& wait);
  // Resigns if it still leads, so that another process can lead at once.
  ~Leadership();

  const std::string& prefix() const { return prefix_; }  // of all keys of the cluster
  const std::string& key() const { return key_; }
  // Identifies this leadership: no other one of the cluster has or had the same.
  int64_t create_revision() const { return create_revision_; }

  // For so long from now nobody else can lead; zero: the leadership is lost.
  absl::Duration Remaining() ABSL_LOCKS_EXCLUDED(mu_);
  // UNAVAILABLE with the reason once the leadership is lost, so that clients look for the next
  // master.
  absl::Status Check() ABSL_LOCKS_EXCLUDED(mu_);
  // Called by whoever finds out that another process leads.
  void Lose(absl::string_view why) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Leadership(const Options& options, int64_t lease, absl::Duration ttl, int64_t create_revision,
             absl::Duration until);
  void RenewForever();
  absl::Status Renew(absl::Duration limit);

  const Options options_;
  const std::string prefix_;
  const std::string key_;
  const int64_t lease_;
  const absl::Duration ttl_;  // as granted
  const int64_t create_revision_;

  absl::Mutex mu_;
  absl::Duration until_ ABSL_GUARDED_BY(mu_);  // on the monotonic clock
  absl::Status lost_ ABSL_GUARDED_BY(mu_);     // OK: it leads
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

// INVALID_ARGUMENT unless the name is 1 to 100 letters, digits, '.', '_' and '-'.
absl::Status CheckClusterName(absl::string_view name);

}  // namespace tessera::master
