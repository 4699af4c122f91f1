#include "common/checkpoint/checksum.h"

// Compiles xxHash here, for the processor that the build names (TESSERA_ARCH).
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/str_cat.h"

namespace tessera {

struct Checksum64::State {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  const std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

Checksum64::Checksum64() : state_(std::make_unique<State>()) { Reset(); }
Checksum64::~Checksum64() = default;

void Checksum64::Reset() { XXH3_64bits_reset(state_->xxh.get()); }
void Checksum64::Add(absl::string_view bytes) {
  XXH3_64bits_update(state_->xxh.get(), bytes.data(), bytes.size());
}
uint64_t Checksum64::Value() const { return XXH3_64bits_digest(state_->xxh.get()); }

uint64_t Checksum64Of(absl::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string ChecksumText(uint64_t checksum) {
  return absl::StrCat(absl::Hex(checksum, absl::kZeroPad16));
}

}  // namespace tessera
