#pragma once

#include "absl/strings/string_view.h"
#include "google/protobuf/stubs/common.h"

namespace tessera {

// Whether `text` may be a string of a message: protobuf refuses a message with others whole.
inline bool IsUtf8(absl::string_view text) {
  return google::protobuf::internal::IsStructurallyValidUTF8(text.data(),
                                                             static_cast<int>(text.size()));
}

}  // namespace tessera
