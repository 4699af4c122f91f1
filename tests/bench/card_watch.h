#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace tessera::bench {

// How much of the time the first card has work, as its driver sees it: of each of its sampling
// periods (a sixth of a second to one second) the share in which some kernel ran. Looks in a thread
// of its own while it lives.
class CardWatch {
 public:
  // UNAVAILABLE: there is no NVML here, or it knows no card.
  static absl::StatusOr<std::unique_ptr<CardWatch>> Start();
  ~CardWatch();

  // From 0 to 1: the mean over the time since the last call, or the start; 0 before the first look.
  double BusyShare() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Nvml;
  explicit CardWatch(std::unique_ptr<Nvml> nvml);
  void Work() ABSL_LOCKS_EXCLUDED(mu_);

  const std::unique_ptr<Nvml> nvml_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<double> shares_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace tessera::bench
