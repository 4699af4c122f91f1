#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <random>
#include <set>

namespace tessera {

// A port of loopback that nobody has, was given before, or gets for its end of a connection, as a
// client that comes back to the server might: those are above 32767 (ip_local_port_range). Not
// thread-safe.
inline int FreePortForServer() {
  static std::set<int> given;
  std::random_device random;
  while (true) {
    const int port = std::uniform_int_distribution<int>(15000, 32767)(random);
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in here = {};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    here.sin_port = htons(static_cast<uint16_t>(port));
    const bool free = ::bind(fd, reinterpret_cast<sockaddr*>(&here), sizeof(here)) == 0;
    ::close(fd);
    if (free && given.insert(port).second) return port;
  }
}

}  // namespace tessera
