#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// XXH3-64 (xxHash 0.8) over bytes that are added in pieces. Not thread-safe.
class Checksum64 {
 public:
  Checksum64();
  ~Checksum64();
  Checksum64(const Checksum64&) = delete;
  Checksum64& operator=(const Checksum64&) = delete;

  void Reset();
  void Add(absl::string_view bytes);
  // The checksum of all bytes since the last Reset; more may be added.
  uint64_t Value() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

uint64_t Checksum64Of(absl::string_view bytes);

// 16 lower-case hex digits.
std::string ChecksumText(uint64_t checksum);

}  // namespace tessera
