#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tessera::worker {

// The choice of a card by a worker that may have any: each takes the one that the fewest others of
// its user have taken so, on this machine (in a container: there). Held until it is destroyed, or
// its process ends, however it does. Leaves no file.
class CardSeat {
 public:
  // `cards` [1 or more]: names that are the same in every process. UNAVAILABLE: the system refuses.
  static absl::StatusOr<std::unique_ptr<CardSeat>> Take(absl::Span<const std::string> cards);
  ~CardSeat();
  CardSeat(const CardSeat&) = delete;
  CardSeat& operator=(const CardSeat&) = delete;

  // Of `cards`.
  size_t card() const { return card_; }

 private:
  CardSeat(int fd, size_t card) : fd_(fd), card_(card) {}
  const int fd_;
  const size_t card_;
};

}  // namespace tessera::worker
