#pragma once

#include <cstdint>

namespace tessera {

// The version of the build; --version prints it, and a node that joins sends it.
inline constexpr char kVersion[] = "0.1.0";

// Processes with different protocol numbers refuse each other. Increased with every change of
// proto/ that an older peer would misread.
inline constexpr uint32_t kProtocolVersion = 7;

}  // namespace tessera
