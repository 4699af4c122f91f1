#include "common/rpc/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

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

struct FreeAddresses {
  void operator()(addrinfo* found) const { ::freeaddrinfo(found); }
};

// An address of IPv4 or IPv6 in any way to write it; null: another, or a name.
std::unique_ptr<addrinfo, FreeAddresses> NumericHost(const std::string& host) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return nullptr;
  std::unique_ptr<addrinfo, FreeAddresses> first(found);
  if (found->ai_family != AF_INET && found->ai_family != AF_INET6) return nullptr;
  return first;
}

const in6_addr& OfIp6(const addrinfo& found) {
  return reinterpret_cast<const sockaddr_in6*>(found.ai_addr)->sin6_addr;
}
const in_addr& OfIp4(const addrinfo& found) {
  return reinterpret_cast<const sockaddr_in*>(found.ai_addr)->sin_addr;
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
  const std::unique_ptr<addrinfo, FreeAddresses> found = NumericHost(parsed->host);
  if (found == nullptr) return false;
  if (found->ai_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&OfIp6(*found));
  return ntohl(OfIp4(*found).s_addr) >> 24 == IN_LOOPBACKNET;
}

bool IsWildcard(absl::string_view address) {
  const absl::StatusOr<Address> parsed = ParseAddress(address);
  if (!parsed.ok() || parsed->host.empty()) return parsed.ok();
  const std::unique_ptr<addrinfo, FreeAddresses> found = NumericHost(parsed->host);
  if (found == nullptr) return false;
  if (found->ai_family == AF_INET6) return IN6_IS_ADDR_UNSPECIFIED(&OfIp6(*found));
  return OfIp4(*found).s_addr == INADDR_ANY;
}

}  // namespace tessera
