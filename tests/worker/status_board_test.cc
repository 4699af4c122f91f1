#include "worker/assignment/status_board.h"

#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class HandClock final : public Clock {
 public:
  absl::Duration Monotonic() const override { return now; }
  absl::Time Wall() const override { return absl::UnixEpoch() + now; }
  absl::Duration now = absl::Seconds(100);
};

TEST(StatusBoard, NamesWaitsThatAreOlderThanASecond) {
  HandClock clock;
  StatusBoard board(clock);
  std::optional<StatusBoard::Wait> wait(std::in_place, &board, "ps-1: push of step 7");
  EXPECT_THAT(board.waits(), IsEmpty());
  clock.now += absl::Seconds(3);
  EXPECT_THAT(board.waits(), ElementsAre("waits for ps-1: push of step 7, since 3 s"));
  wait.reset();
  EXPECT_THAT(board.waits(), IsEmpty());
}

TEST(StatusBoard, AWaitInOtherWordsIsAsOldAsItWas) {
  HandClock clock;
  StatusBoard board(clock);
  StatusBoard::Wait wait(&board, "ps-1: refused");
  clock.now += absl::Seconds(3);
  wait.Reword("ps-1: disk full");
  EXPECT_THAT(board.waits(), ElementsAre("waits for ps-1: disk full, since 3 s"));
}

}  // namespace
}  // namespace tessera::worker
