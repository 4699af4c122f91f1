#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// The parts of "host:port", in which an IPv6 host stands in brackets.
struct Address {
  std::string host;  // without brackets; may be empty
  uint16_t port = 0;
};

// INVALID_ARGUMENT: the port is missing or not from 0 to 65535, or an IPv6 host has no brackets.
absl::StatusOr<Address> ParseAddress(absl::string_view address);
// Parses an address to call. INVALID_ARGUMENT: also without a host, or for port 0.
absl::StatusOr<Address> ParseServerAddress(absl::string_view address);
// Checks one address of a server, or several separated by ','.
absl::Status CheckServerAddresses(absl::string_view addresses);

// Whether the host is loopback: 127.0.0.0/8, ::1, localhost. Looks up no name.
bool IsLoopback(absl::string_view address);
// Whether the address stands for all addresses of the machine, so that nobody can call it: the host
// is 0.0.0.0, [::] or empty.
bool IsWildcard(absl::string_view address);

}  // namespace tessera
