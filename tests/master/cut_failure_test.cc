#include "master/run/cut_failure.h"

#include "gtest/gtest.h"

namespace tessera::master {
namespace {

TEST(CutFailureTest, WhatAFailureSaysOfTheRows) {
  using Code = absl::StatusCode;
  struct Case {
    Code code;
    bool ps_lost;
    bool none_lost;
    CutFailure expected;
  };
  const Case cases[] = {
      {Code::kAborted, false, true, CutFailure::kShardFailed},
      {Code::kAborted, false, false, CutFailure::kDropped},  // that of the lost ps
      {Code::kAborted, true, true, CutFailure::kDropped},    // it is back already
      {Code::kAborted, true, false, CutFailure::kDropped},
      {Code::kNotFound, false, true, CutFailure::kDropped},
      {Code::kNotFound, true, false, CutFailure::kDropped},
      {Code::kUnavailable, false, true, CutFailure::kNotReached},
      {Code::kUnavailable, false, false, CutFailure::kNotReached},
      {Code::kUnavailable, true, false, CutFailure::kDropped},
      {Code::kDeadlineExceeded, false, true, CutFailure::kNotReached},
      {Code::kDeadlineExceeded, true, true, CutFailure::kDropped},
      {Code::kResourceExhausted, false, true, CutFailure::kDisk},
      {Code::kResourceExhausted, true, true, CutFailure::kDropped},
      {Code::kPermissionDenied, false, false, CutFailure::kDisk},
      {Code::kDataLoss, false, true, CutFailure::kDisk},
  };
  for (const Case& c : cases) {
    ActionResult result;
    result.status = absl::Status(c.code, "as scripted");
    EXPECT_EQ(Classify(result, c.ps_lost, c.none_lost), c.expected)
        << result.status << c.ps_lost << c.none_lost;
    result.own_disk = true;
    EXPECT_EQ(Classify(result, c.ps_lost, c.none_lost), CutFailure::kDisk) << result.status;
  }
}

}  // namespace
}  // namespace tessera::master
