#pragma once

#include <cstdint>

namespace tessera::ps {

// A pull of at most this many bytes may be answered in gRPC's own thread, because handing it to
// another thread takes longer. That thread must not be held up: nothing long is done there for such
// a pull.
inline constexpr uint64_t kInlinePullBytes = 1024;

}  // namespace tessera::ps
