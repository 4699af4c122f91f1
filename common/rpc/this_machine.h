#pragma once

#include <string>

namespace tessera {

// Whether "host:port" is an address of this machine, as far as can be told without a lookup:
// loopback, an address of its interfaces, or its own name. Another machine may have it, too.
// Thread-safe.
bool IsThisMachine(const std::string& address);

}  // namespace tessera
