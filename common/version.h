#pragma once

#include <cstdint>

namespace tessera {

// Of the build; shown by --version and said when a node joins.
inline constexpr char kVersion[] = "0.1.0";

// Processes with different protocol numbers refuse each other. Grows with every change of proto/
// that an older peer would misread.
inline constexpr uint32_t kProtocolVersion = 7;

}  // namespace tessera
