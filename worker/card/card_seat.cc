#include "worker/card/card_seat.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace tessera::worker {
namespace {

// Most workers on a card.
constexpr int kSeats = 256;

// An abstract socket name: one socket of the machine can have it at a time, and the kernel frees it
// with the socket.
bool Bind(int fd, const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t size = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::copy_n(name.data(), size, address.sun_path + 1);  // a leading zero makes it abstract
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&address),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size)) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CardSeat>> CardSeat::Take(absl::Span<const std::string> cards) {
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  int error = fd < 0 ? errno : 0;
  for (int seat = 0; seat < kSeats && error == 0; ++seat) {
    for (size_t card = 0; card < cards.size() && error == 0; ++card) {
      if (Bind(fd, absl::StrCat("tessera-card-", ::getuid(), "-", cards[card], "-", seat))) {
        return std::unique_ptr<CardSeat>(new CardSeat(fd, card));
      }
      if (errno != EADDRINUSE) error = errno;
    }
  }
  if (fd >= 0) ::close(fd);
  if (error != 0) return absl::ErrnoToStatus(error, "choose a card; name one, as in cuda:0");
  return absl::UnavailableError(absl::StrCat(kSeats, " workers share each of the ", cards.size(),
                                             " cards; name one, as in cuda:0"));
}

CardSeat::~CardSeat() { ::close(fd_); }

}  // namespace tessera::worker
