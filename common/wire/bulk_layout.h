#pragma once

#include <array>
#include <cstddef>

namespace tessera::wire {

// Which fields of a message are its bulk: the number of the repeated field that holds its blocks,
// and the numbers of the `bytes` fields of a block. They follow
// proto/tessera/v1/parameter_service.proto and ring.proto and change with them; tests compare them.
inline constexpr size_t kMaxBulks = 2;
// The most blocks in one message; BulkReader refuses more.
inline constexpr size_t kMaxBlocks = 1 << 16;
struct BulkLayout {
  int blocks;
  std::array<int, kMaxBulks> bulks;  // 0: none
};

inline constexpr BulkLayout kPullRequest = {.blocks = 4, .bulks = {2, 0}};    // keys
inline constexpr BulkLayout kPullResponse = {.blocks = 1, .bulks = {2, 0}};   // values
inline constexpr BulkLayout kPushRequest = {.blocks = 4, .bulks = {2, 3}};    // keys, gradients
inline constexpr BulkLayout kAssignRequest = {.blocks = 2, .bulks = {2, 3}};  // keys, values
inline constexpr BulkLayout kTakePartialResponse = {.blocks = 1, .bulks = {1, 0}};  // sums

}  // namespace tessera::wire
