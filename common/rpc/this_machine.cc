#include "common/rpc/this_machine.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "common/rpc/address.h"

namespace tessera {
namespace {

// The address in the form of inet_ntop; empty: not a numeric address.
std::string Numeric(const std::string& host) {
  for (const int family : {AF_INET, AF_INET6}) {
    unsigned char bytes[sizeof(in6_addr)];
    char text[INET6_ADDRSTRLEN];
    if (::inet_pton(family, host.c_str(), bytes) == 1) {
      return ::inet_ntop(family, bytes, text, sizeof(text));
    }
  }
  return "";
}

bool IsAnInterface(const std::string& numeric) {
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) return false;
  const absl::Cleanup free_interfaces = [interfaces] { ::freeifaddrs(interfaces); };
  for (const ifaddrs* i = interfaces; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (i->ifa_addr->sa_family == AF_INET) {
      const auto* const in = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
      ::inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      const auto* const in = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr);
      ::inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof(text));
    }
    if (numeric == text) return true;
  }
  return false;
}

}  // namespace

bool IsThisMachine(const std::string& address) {
  const absl::StatusOr<Address> parsed = ParseAddress(address);
  if (!parsed.ok()) return false;
  if (IsLoopback(address)) return true;
  const std::string& host = parsed->host;
  if (const std::string numeric = Numeric(host); !numeric.empty()) return IsAnInterface(numeric);
  char own[256] = {};
  if (::gethostname(own, sizeof(own) - 1) != 0 || host.empty()) return false;
  // Equal with or without the domain.
  return host == own || absl::StartsWith(host, std::string(own) + ".") ||
         absl::StartsWith(own, host + ".");
}

}  // namespace tessera
