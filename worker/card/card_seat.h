#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tessera::worker {

// The choice of a card by a worker that may use any: it takes the card that the fewest other
// workers of its user on this machine (or in this container) have taken so. The seat is held until
// it is destroyed or its process ends, in whatever way. Leaves no file.
class CardSeat {
 public:
  // `cards` [1 or more]: names that are the same in every process. UNAVAILABLE: 256 workers share
  // each card already. Other errors are the system's.
  static absl::StatusOr<std::unique_ptr<CardSeat>> Take(absl::Span<const std::string> cards);
  ~CardSeat();
  CardSeat(const CardSeat&) = delete;
  CardSeat& operator=(const CardSeat&) = delete;

  // Index in `cards`.
  size_t card() const { return card_; }

 private:
  CardSeat(int fd, size_t card) : fd_(fd), card_(card) {}
  const int fd_;
  const size_t card_;
};

}  // namespace tessera::worker
