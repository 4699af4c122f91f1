#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "worker/dense/shape.h"

namespace tessera::worker {

// An error unless `as_expected`: most ops check inputs with it. `expected` ends the sentence
// "expected ...".
inline absl::Status ExpectShapes(bool as_expected, absl::string_view expected,
                                 absl::Span<const Shape> found) {
  if (as_expected) return absl::OkStatus();
  if (found.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", expected, "; found no inputs"));
  }
  std::string shapes;
  for (const Shape& shape : found) {
    absl::StrAppend(&shapes, shapes.empty() ? "" : ", ", shape.ToString());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", expected, "; found ", found.size(),
                   found.size() == 1 ? " input: " : " inputs: ", shapes));
}

}  // namespace tessera::worker
