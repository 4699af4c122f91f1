#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/hash.h"
#include "common/math/host_device.h"

namespace tessera {

// Counter-based random numbers: each draw is a pure function of its purpose, so it does not depend
// on threads, processes, order or restarts. A key made with StreamKey names a stream; draw i of the
// stream is RandomBits(key, i).
//
// Distinct purposes need distinct keys: a key begins with a RandomFor.
enum class RandomFor : uint64_t {
  kInitialRow = 1,    // seed, table name hash, key
  kInitialDense = 2,  // seed, parameter name hash
  kShardOrder = 3,    // seed, epoch
  kRecordOrder = 4,   // seed, epoch, window, rank
  kDropout = 5,       // seed, step, rank, op
  kGenerator = 6,     // generated data
  kBackoff = 7,
  kAdmission = 8,  // seed, table name hash, key
  kRounding = 9,   // seed, table name hash; then key, step, updates of the row
};

constexpr uint64_t StreamKey(RandomFor purpose, uint64_t a, uint64_t b = 0, uint64_t c = 0,
                             uint64_t d = 0) {
  return MixPair(MixPair(MixPair(MixPair(static_cast<uint64_t>(purpose), a), b), c), d);
}
// A 64-bit hash of a name, for use in keys.
uint64_t NameHash(absl::string_view name);

TESSERA_HOST_DEVICE constexpr uint64_t RandomBits(uint64_t key, uint64_t i) {
  return Mix64(key ^ Mix64(i));
}
// 16 random bits: draw i / 4 is cut into four, the lowest first.
TESSERA_HOST_DEVICE constexpr uint16_t RandomBits16(uint64_t key, uint64_t i) {
  return static_cast<uint16_t>(RandomBits(key, i / 4) >> (i % 4 * 16));
}
// Uniform numbers in [0, 1), with 24 bits (float) or 53 bits (double).
constexpr float RandomUniform(uint64_t key, uint64_t i) {
  return static_cast<float>(RandomBits(key, i) >> 40) * 0x1.0p-24f;
}
constexpr double RandomUniformDouble(uint64_t key, uint64_t i) {
  return static_cast<double>(RandomBits(key, i) >> 11) * 0x1.0p-53;
}
// A standard normal number, by Box-Muller from draws 2i and 2i+1.
float RandomNormal(uint64_t key, uint64_t i);
// A uniform number in [0, n), n > 0, by multiply-shift (bias below n / 2^64).
inline uint64_t RandomBelow(uint64_t key, uint64_t i, uint64_t n) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(RandomBits(key, i)) * n) >> 64);
}
// A permutation of 0 .. n-1 (Fisher-Yates).
std::vector<uint32_t> RandomPermutation(uint64_t key, uint32_t n);

}  // namespace tessera
