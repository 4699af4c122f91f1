#pragma once

#include <string>

#include "tests/master/core_harness.h"

namespace tessera::master {

class CoreSuspendTest : public testing::Test, protected CoreHarness {
 protected:
  static v1::JobSpec Quiet(uint32_t epochs = 20) {
    v1::JobSpec spec = SmallJob();
    spec.mutable_checkpoint()->set_every_steps(1000000);
    spec.mutable_train()->set_epochs(epochs);
    return spec;
  }
  static v1::JobSpec Urgent(int32_t priority) {
    v1::JobSpec spec = Quiet(1);
    spec.set_name("urgent");
    spec.set_priority(priority);
    return spec;
  }
  absl::Status Suspend(const std::string& id) {
    const absl::Status status = core_->Suspend(id, now_);
    Advance(absl::ZeroDuration());
    return status;
  }
  absl::Status Resume(const std::string& id) {
    const absl::Status status = core_->Resume(id, now_);
    Advance(absl::ZeroDuration());
    return status;
  }
};

}  // namespace tessera::master
