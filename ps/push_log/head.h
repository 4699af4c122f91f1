#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/file_system.h"
#include "tessera/v1/parameter_service.pb.h"
#include "tessera/v1/push_log.pb.h"

// What the head of a push log says of the shard that wrote it.
namespace tessera::ps::push_log {

// Head of the last segment of a generation's log that begins at this checkpoint. If the rows came
// from memory and no checkpoint had them, the head of the first segment: it has took_over, or leads
// back to nothing. `root`: the folder of all push logs. FAILED_PRECONDITION, DATA_LOSS: no such
// log.
absl::StatusOr<v1::PushLogHead> FindHead(FileSystem& files, absl::string_view root,
                                         absl::string_view job_id, uint64_t generation,
                                         const std::string& checkpoint);

// The request that recovers the shard whose log has that head.
v1::OpenJobRequest ToRecover(const v1::PushLogHead& head, const std::string& checkpoint);

// Whether both open the same shard, whatever they open it from.
bool OpenSameShard(const v1::OpenJobRequest& a, const v1::OpenJobRequest& b);

}  // namespace tessera::ps::push_log
