#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/wire/buffer.h"
#include "ps/calls/calls.h"

// A push, or a part of one, as a record of kind kPush: a v1::LoggedPush is its text, the memory of
// the call its bulk (FORMAT.md).
namespace tessera::ps::push_log {

// The text. All keys and gradients of the call must lie in its memory.
std::string EncodePush(const PushCall& call);
// The call that a record has. DATA_LOSS: it has none.
absl::StatusOr<PushCall> DecodePush(const std::string& text, wire::Buffer bulk);

}  // namespace tessera::ps::push_log
