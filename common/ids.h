#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <utility>

namespace tessera {

// A number that identifies something: comparable, hashable, and of a type of its own, so that the
// compiler tells kinds of numbers apart.
template <typename Tag, typename T>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(T value) : value_(value) {}
  constexpr T value() const { return value_; }
  constexpr auto operator<=>(const Id&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const Id& id) {
    return H::combine(std::move(h), id.value_);
  }
  friend std::ostream& operator<<(std::ostream& out, const Id& id) { return out << id.value_; }

 private:
  T value_ = 0;
};

using PartitionId = Id<struct PartitionTag, uint32_t>;
// Index of a table in TablesOf(spec).
using TableIndex = Id<struct TableTag, uint32_t>;
// Number of a worker within its job, 0 .. workers-1.
using Rank = Id<struct RankTag, uint32_t>;

}  // namespace tessera
