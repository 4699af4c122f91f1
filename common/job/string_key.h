#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/hash.h"
#include "common/random.h"

namespace tessera {

// The key of a STRING column's value. `key_space_hash` is NameHash of the column's key space
// (KeySpaceOf in defaults.h). Pure.
inline uint64_t StringKey(uint64_t key_space_hash, absl::string_view value) {
  return MixPair(key_space_hash, NameHash(value));
}

}  // namespace tessera
