#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/rpc/channels.h"

namespace tessera {

// Why no master of a list answers. gRPC says it of the last one alone, which may be one that stands
// by and never listens: that would hide that the leader's certificate is refused.
class MasterSurvey {
 public:
  // "HOST:PORT,HOST:PORT". `channels` outlive the survey.
  MasterSurvey(Channels* channels, absl::string_view addresses);
  ~MasterSurvey();

  // Of a call that failed with UNAVAILABLE or DEADLINE_EXCEEDED; asks each master, for at most a
  // second, if there are several. Once. Where one answers, the call failed for a reason of its own.
  std::string Why(const absl::Status& failed);
  // Why returns soon. Thread-safe, also before Why.
  void Cancel();

 private:
  struct Question;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Question>> questions_;
};

}  // namespace tessera
