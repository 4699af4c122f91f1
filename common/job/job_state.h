#pragma once

#include "tessera/v1/job_service.pb.h"

namespace tessera {

// The job has ended for good: no state follows.
inline bool HasEnded(v1::JobState state) { return state == v1::SUCCEEDED || state == v1::FAILED; }

}  // namespace tessera
