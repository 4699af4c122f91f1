#include "common/rpc/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

constexpr uint32_t kLastPort = 65535;

absl::Status Wrong(absl::string_view address, uint32_t first_port) {
  return absl::InvalidArgumentError(absl::StrCat(
      "is \"", address, "\", expected host:port with a port from ", first_port, " to ", kLastPort));
}

absl::StatusOr<Address> Parse(absl::string_view address, uint32_t first_port) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return Wrong(address, first_port);
  const absl::string_view digits = address.substr(colon + 1);
  uint32_t port = 0;
  // SimpleAtoi also accepts blanks and signs.
  if (!std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(digits, &port) || port < first_port || port > kLastPort) {
    return Wrong(address, first_port);
  }
  absl::string_view host = address.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) {
    absl::ConsumeSuffix(&host, "]");
  } else if (absl::StrContains(host, ':')) {
    return absl::InvalidArgumentError(
        absl::StrCat("is \"", address,
                     "\"; an IPv6 address stands in brackets before its port: ", "[::1]:7070"));
  }
  return Address{.host = std::string(host), .port = static_cast<uint16_t>(port)};
}

}  // namespace

absl::StatusOr<Address> ParseAddress(absl::string_view address) { return Parse(address, 0); }

absl::StatusOr<Address> ParseServerAddress(absl::string_view address) {
  TESSERA_ASSIGN_OR_RETURN(Address parsed, Parse(address, 1));
  if (parsed.host.empty()) return Wrong(address, 1);
  return parsed;
}

absl::Status CheckServerAddresses(absl::string_view addresses) {
  for (const absl::string_view address : absl::StrSplit(addresses, ',')) {
    TESSERA_RETURN_IF_ERROR(ParseServerAddress(address).status());
  }
  return absl::OkStatus();
}

bool IsLoopback(absl::string_view address) {
  const absl::StatusOr<Address> parsed = ParseAddress(address);
  if (!parsed.ok() || parsed->host.empty()) return false;
  if (parsed->host == "localhost") return true;
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(parsed->host.c_str(), nullptr, &hints, &found) != 0) return false;
  const absl::Cleanup free = [found] { ::freeaddrinfo(found); };
  if (found->ai_family == AF_INET6) {
    const auto* const in = reinterpret_cast<const sockaddr_in6*>(found->ai_addr);
    return IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
  }
  const auto* const in = reinterpret_cast<const sockaddr_in*>(found->ai_addr);
  return found->ai_family == AF_INET && ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

bool IsWildcard(absl::string_view address) {
  const absl::StatusOr<Address> parsed = ParseAddress(address);
  return parsed.ok() && (parsed->host.empty() || parsed->host == "0.0.0.0" || parsed->host == "::");
}

}  // namespace tessera
