#pragma once

#include <string>
#include <vector>

#include "tests/master/core_harness.h"

namespace tessera::master {

// Jobs that train long enough to be moved to other ps.
class CoreScaleHarness : public CoreHarness {
 public:
  static v1::JobSpec Quiet() {
    v1::JobSpec spec = SmallJob();
    spec.mutable_checkpoint()->set_every_steps(1000000);
    spec.mutable_train()->set_epochs(20);
    return spec;
  }
  static v1::JobSpec LoggedJob() {
    v1::JobSpec spec = Quiet();
    spec.mutable_recovery()->set_push_log(v1::RecoverySpec::ASYNC);
    return spec;
  }
  absl::StatusOr<v1::ScaleResponse> Scale(const std::string& id, uint32_t ps,
                                          const std::vector<std::string>& drain = {}) {
    v1::ScaleRequest request;
    request.set_job_id(id);
    request.set_ps(ps);
    for (const std::string& name : drain) request.add_drain(name);
    auto answer = core_->Scale(request, now_);
    Advance(absl::ZeroDuration());
    return answer;
  }
  // A job of one ps that is to have two, while all of its rows are copied and a checkpoint falls
  // due: what is copied is of no use any more. Nothing that a ps writes ends before hold_writes_ is
  // taken back.
  std::string SubmitAndMoveUntilUnwanted(v1::JobSpec spec) {
    spec.mutable_checkpoint()->set_every_steps(40);
    const std::string id = Submit(spec, 1, 1);
    RunUntilStep(id, 20);
    hold_writes_ = true;
    EXPECT_TRUE(Scale(id, 2).ok());
    for (int i = 0; i < 50 && core_->UnwantedActions().empty(); ++i) Round();
    EXPECT_TRUE(writing_.has_value());
    return id;
  }
  void RunUntilPs(const std::string& id, uint32_t ps) {
    for (int i = 0; i < 300 && (Job(id).has_scaling() || opens_.back().calls.size() != ps); ++i) {
      Round();
    }
    ASSERT_FALSE(Job(id).has_scaling()) << Job(id).ShortDebugString();
    ASSERT_EQ(opens_.back().calls.size(), ps) << Job(id).ShortDebugString();
  }
  void CannotCopy() {
    on_copy_ = [](const CopyPartitions&) {
      return Failed(absl::FailedPreconditionError("rows may lie on disk"));
    };
  }
  // Who is lost does not answer.
  void LostAreNotReached() {
    on_open_ = [this](const OpenPs& open) { return Reach(open.calls); };
    on_cut_ = [this](const CutCheckpoint& cut) { return Reach(cut.calls); };
    on_write_ = [this](const WriteCheckpoint& write) { return Reach(write.calls); };
    on_copy_ = [this](const CopyPartitions& copy) { return Failed(Reach(copy.calls)); };
  }
  template <typename Calls>
  absl::Status Reach(const Calls& calls) const {
    for (const auto& [ps, request] : calls) {
      const auto found = alive_.find(ps.name);
      if (found == alive_.end() || found->second != ps.incarnation) {
        return absl::UnavailableError(ps.name + ": Connection refused");
      }
    }
    return absl::OkStatus();
  }
  static ActionResult Failed(absl::Status status) {
    ActionResult result;
    result.status = std::move(status);
    return result;
  }
};

}  // namespace tessera::master
