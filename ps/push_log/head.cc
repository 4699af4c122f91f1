#include "ps/push_log/head.h"

#include <memory>
#include <optional>

#include "common/status_macros.h"
#include "ps/push_log/folders.h"
#include "ps/push_log/push_log_reader.h"

namespace tessera::ps::push_log {
namespace {

// The request without what the shard was opened from.
v1::OpenJobRequest Identity(v1::OpenJobRequest request) {
  request.clear_checkpoint();
  request.clear_warm();
  request.clear_first_step();
  request.clear_recover();
  request.clear_pushed();
  // A shard that recovers takes over from nobody, even if the one that began the log did.
  request.clear_take_over();
  request.clear_move();
  request.clear_follow();
  request.clear_pair();
  request.clear_ps_process();
  request.clear_incarnations();
  request.clear_cluster();  // logs of before do not have it
  return request;
}

}  // namespace

absl::StatusOr<v1::PushLogHead> FindHead(FileSystem& files, absl::string_view root,
                                         absl::string_view job_id, uint64_t generation,
                                         const std::string& checkpoint) {
  const std::string folder = GenerationFolder(root, job_id, generation);
  auto reader = PushLogReader::Open(files, folder, checkpoint);
  if (absl::IsFailedPrecondition(reader.status())) {
    reader = PushLogReader::Open(files, folder, std::nullopt);
  }
  TESSERA_RETURN_IF_ERROR(reader.status());
  return (*reader)->head();
}

v1::OpenJobRequest ToRecover(const v1::PushLogHead& head, const std::string& checkpoint) {
  const v1::OpenJobRequest& opened = head.opened();
  v1::OpenJobRequest request = Identity(opened);
  request.set_recover(true);
  request.set_checkpoint(checkpoint);
  request.set_warm(head.has_cut() && opened.warm() && opened.checkpoint() == checkpoint);
  request.set_first_step(head.next_step());
  return request;
}

bool OpenSameShard(const v1::OpenJobRequest& a, const v1::OpenJobRequest& b) {
  return Identity(a).SerializeAsString() == Identity(b).SerializeAsString();
}

}  // namespace tessera::ps::push_log
