#include "common/rpc/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/process/file_descriptors.h"
#include "common/rpc/address.h"
#include "common/rpc/channels.h"

namespace tessera {
namespace {

// The wait after an error of the process, such as no file descriptor or no memory.
constexpr int kRetryMs = 100;
constexpr uint64_t kSayEveryTries = 50;

absl::Status Refused(const std::string& address, const char* why) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ", why));
}

const char* Why(int error) {
  switch (error) {
    case EADDRINUSE:
      return "the port is in use; choose another with --listen";
    case EADDRNOTAVAIL:
      return "the address is not this machine's; choose another with --listen";
    case EACCES:
      return "ports below 1024 are for privileged users; choose another with --listen";
    default:
      return std::strerror(error);
  }
}

// Opens a socket that listens at the address; -1: see errno. Without `only_ipv6` a socket for all
// of IPv6 also gets all of IPv4.
int Open(const addrinfo& info, bool only_ipv6) {
  const int fd = ::socket(info.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return fd;
  const int on = 1;
  const int v6_only = only_ipv6 ? 1 : 0;
  // A port whose last connections are closing counts as free; one with a listener does not.
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (info.ai_family == AF_INET6) {
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  }
  // Connections inherit these: no delay to gather data, and a peer that acknowledges nothing counts
  // as gone when keepalive says so, too.
  const int user_timeout = kKeepaliveTimeoutMs;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, sizeof(user_timeout));
  if (::bind(fd, info.ai_addr, info.ai_addrlen) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

int PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void SetPort(sockaddr* address, int port) {
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(static_cast<uint16_t>(port));
  }
}

bool IsSameHost(const addrinfo& a, const addrinfo& b) {
  if (a.ai_family != b.ai_family) return false;
  if (a.ai_family == AF_INET6) {
    const auto& one = *reinterpret_cast<const sockaddr_in6*>(a.ai_addr);
    const auto& other = *reinterpret_cast<const sockaddr_in6*>(b.ai_addr);
    return std::memcmp(&one.sin6_addr, &other.sin6_addr, sizeof(in6_addr)) == 0 &&
           one.sin6_scope_id == other.sin6_scope_id;
  }
  return reinterpret_cast<const sockaddr_in*>(a.ai_addr)->sin_addr.s_addr ==
         reinterpret_cast<const sockaddr_in*>(b.ai_addr)->sin_addr.s_addr;
}

// Whether the list has the same address before `info`, as where /etc/hosts has a name twice.
bool IsRepeated(const addrinfo* list, const addrinfo* info) {
  while (list != info && !IsSameHost(*list, *info)) list = list->ai_next;
  return list != info;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(const std::string& address) {
  const absl::StatusOr<Address> wanted = ParseAddress(address);
  if (!wanted.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("listen address ", wanted.status().message()));
  }
  const std::string& host = wanted->host;
  const std::string port = absl::StrCat(wanted->port);
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error =
          ::getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
      error != 0) {
    return Refused(address, ::gai_strerror(error));
  }
  const absl::Cleanup free = [found] { ::freeaddrinfo(found); };
  std::unique_ptr<Listener> listener(new Listener());
  listener->wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (listener->wake_ < 0) return Refused(address, std::strerror(errno));
  int not_here = 0;
  for (addrinfo* info = found; info != nullptr; info = info->ai_next) {
    if (IsRepeated(found, info)) continue;
    // All sockets have the same port.
    if (listener->port_ != 0) SetPort(info->ai_addr, listener->port_);
    const int fd = Open(*info, /*only_ipv6=*/host.empty());
    if (fd >= 0) {
      listener->sockets_.push_back(fd);
      listener->port_ = PortOf(fd);
      continue;
    }
    // A name may have addresses of a family that this machine does not support.
    not_here = errno;
    if (not_here != EAFNOSUPPORT && not_here != EADDRNOTAVAIL) return Refused(address, Why(errno));
  }
  if (listener->sockets_.empty()) return Refused(address, Why(not_here));
  listener->address_ = absl::StrCat(address.substr(0, address.rfind(':')), ":", listener->port_);
  return listener;
}

Listener::~Listener() {
  Stop();
  if (wake_ >= 0) ::close(wake_);
}

void Listener::Start(Take take, std::function<void(bool)> tell_takes) {
  thread_ = std::thread([this, take = std::move(take), tell_takes = std::move(tell_takes)] {
    Run(take, tell_takes);
  });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    // Cannot fail: only this call writes to the eventfd.
    if (::write(wake_, &one, sizeof(one)) < 0) SPDLOG_ERROR("wake: {}", std::strerror(errno));
    thread_.join();
  }
  for (const int fd : std::exchange(sockets_, {})) ::close(fd);
}

int Listener::TakeAll(int listener, const Take& take) {
  while (true) {
    if (!HasDescriptorForConnection()) return EMFILE;
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      take(listener, fd);
      continue;
    }
    switch (errno) {
      case EAGAIN:
        return 0;
      case EINTR:
      case ECONNABORTED:  // this and the following: errors of one connection, which is gone
      case EPERM:
      case EPROTO:
      case ENETDOWN:
      case ENETUNREACH:
      case EHOSTDOWN:
      case EHOSTUNREACH:
        continue;
      default:
        return errno;
    }
  }
}

void Listener::Run(const Take& take, const std::function<void(bool)>& tell_takes) {
  std::vector<pollfd> all = {{.fd = wake_, .events = POLLIN, .revents = 0}};
  for (const int fd : sockets_) all.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  std::vector<pollfd> only_wake = {all[0]};
  int error = 0;
  uint64_t failed = 0;  // failed tries in a row
  while (true) {
    std::vector<pollfd>& polled = error == 0 ? all : only_wake;
    if (::poll(polled.data(), polled.size(), error == 0 ? -1 : kRetryMs) < 0 && errno != EINTR) {
      SPDLOG_ERROR("poll of {}: {}", address_, std::strerror(errno));
    }
    if (polled[0].revents != 0) return;
    error = 0;
    for (size_t i = 1; error == 0 && i < all.size(); ++i) error = TakeAll(all[i].fd, take);
    if (error == 0) {
      if (failed > 0) {
        SPDLOG_INFO("connections to {} are taken again", address_);
        tell_takes(true);
      }
      failed = 0;
      continue;
    }
    if (failed == 0) tell_takes(false);
    if (failed++ % kSayEveryTries > 0) continue;
    SPDLOG_ERROR("takes no connections to {} for now: {}{}", address_, std::strerror(error),
                 error == EMFILE ? "; raise the limit (ulimit -n)" : "");
  }
}

}  // namespace tessera
