#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::worker {

// How far a rank's pushes, which are numbered, have come. Some ps may have pushes from `next` to
// `end`.
struct PushProgress {
  uint64_t next = 0;  // every ps has all pushes below; some ps lacks this one
  uint64_t end = 0;   // no ps has this push or a later one

  // From the answers of all ps, of which there is at least one.
  static PushProgress Of(absl::Span<const v1::ProgressResponse> answers) {
    PushProgress progress = {.next = answers[0].next_push(), .end = answers[0].end_push()};
    for (const v1::ProgressResponse& answer : answers) {
      progress.next = std::min(progress.next, answer.next_push());
      progress.end = std::max(progress.end, answer.end_push());
    }
    return progress;
  }
};

}  // namespace tessera::worker
