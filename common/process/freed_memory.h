#pragma once

#include <cstdint>

namespace tessera {

// Of memory that calls have freed, malloc keeps megabytes for each thread. Keeps it in proportion
// to `budget`, that of the process in bytes. Before any thread starts.
void KeepFreedMemoryWithin(uint64_t budget);

}  // namespace tessera
