#pragma once

#include <string>

namespace tessera {

// Whether "host:port" is an address of this machine as far as can be told without asking anybody:
// loopback, one of its interfaces' addresses, or its own name. Another machine may have the same
// one. Thread-safe.
bool IsThisMachine(const std::string& address);

}  // namespace tessera
