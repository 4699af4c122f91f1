#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Of "host:port"; an IPv6 host stands in brackets there.
struct Address {
  std::string host;  // without brackets; may be empty
  uint16_t port = 0;
};

// INVALID_ARGUMENT: there is no port, or none from 0 to 65535, or an IPv6 host without brackets.
absl::StatusOr<Address> ParseAddress(absl::string_view address);
// Of what is called: INVALID_ARGUMENT without a host, too, and for port 0.
absl::StatusOr<Address> ParseServerAddress(absl::string_view address);
// One such address or several, parted by ','.
absl::Status CheckServerAddresses(absl::string_view addresses);

// Whether the host is loopback: 127.0.0.0/8, ::1, localhost. Looks up no name.
bool IsLoopback(absl::string_view address);
// Whether it stands for all addresses of the machine, so that nobody can call it: 0.0.0.0, [::] or
// nothing before the port.
bool IsWildcard(absl::string_view address);

}  // namespace tessera
