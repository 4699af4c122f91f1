#include "common/cluster/master_survey.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "common/rpc/status.h"
#include "tessera/v1/job_service.grpc.pb.h"

namespace tessera {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(1);

// Of gRPC's "failed to connect to all addresses; last error: UNKNOWN: ipv4:1.2.3.4:7070: <reason>"
// the reason.
std::string ReasonOf(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) {
    return absl::StrCat("no answer in ", absl::FormatDuration(kLimit));
  }
  constexpr absl::string_view kLast = "last error: ";
  absl::string_view reason = status.message();
  const size_t last = reason.find(kLast);
  if (last == absl::string_view::npos) return std::string(reason);
  reason.remove_prefix(last + kLast.size());
  for (const absl::string_view code : {"UNKNOWN: ", "UNAVAILABLE: "}) {
    absl::ConsumePrefix(&reason, code);
  }
  if (absl::StartsWith(reason, "ipv4:") || absl::StartsWith(reason, "ipv6:")) {
    if (const size_t end = reason.find(": "); end != absl::string_view::npos) {
      reason.remove_prefix(end + 2);
    }
  }
  absl::ConsumeSuffix(&reason, ".");
  return std::string(reason);
}

}  // namespace

struct MasterSurvey::Question {
  std::unique_ptr<v1::JobService::Stub> stub;
  grpc::ClientContext context;
  v1::ClusterStatus answer;
  grpc::Status status;
};

MasterSurvey::MasterSurvey(Channels* channels, absl::string_view addresses)
    : addresses_(absl::StrSplit(addresses, ',', absl::SkipEmpty())) {
  if (addresses_.size() < 2) return;
  for (const std::string& address : addresses_) {
    Question& question = *questions_.emplace_back(std::make_unique<Question>());
    question.stub = v1::JobService::NewStub(channels->Connect(address));
  }
}

MasterSurvey::~MasterSurvey() = default;

void MasterSurvey::Cancel() {
  for (const auto& question : questions_) question->context.TryCancel();
}

std::string MasterSurvey::Why(const absl::Status& failed) {
  if (questions_.empty()) return std::string(failed.message());
  const v1::GetClusterRequest request;
  absl::BlockingCounter left(static_cast<int>(questions_.size()));
  for (const auto& question : questions_) {
    question->context.set_deadline(absl::ToChronoTime(absl::Now() + kLimit));
    question->stub->async()->GetCluster(&question->context, &request, &question->answer,
                                        [&question, &left](const grpc::Status& answered) {
                                          question->status = answered;
                                          left.DecrementCount();
                                        });
  }
  left.Wait();
  // The addresses by reason, in their order.
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (size_t i = 0; i < addresses_.size(); ++i) {
    if (questions_[i]->status.ok()) return std::string(failed.message());
    const std::string reason = ReasonOf(FromGrpc(questions_[i]->status));
    auto same = std::find_if(reasons.begin(), reasons.end(),
                             [&](const auto& known) { return known.first == reason; });
    if (same == reasons.end()) same = reasons.insert(same, {reason, {}});
    same->second.push_back(addresses_[i]);
  }
  if (reasons.size() == 1) return reasons[0].first;
  return absl::StrJoin(reasons, "; ", [](std::string* out, const auto& of) {
    absl::StrAppend(out, absl::StrJoin(of.second, ", "), ": ", of.first);
  });
}

}  // namespace tessera
