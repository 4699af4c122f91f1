#include "worker/parameters/slot_pool.h"

#include <unistd.h>

#include <set>

#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

using shared_memory::MappedRegion;
using shared_memory::SlotState;
using shared_memory::SlotWord;

constexpr uint32_t kSlots = 3;

// The ps's end is played by hand.
class SlotPoolTest : public ::testing::Test {
 protected:
  SlotPoolTest()
      : pool_(*SlotPool::New(kSlots, shared_memory::kPageBytes)),
        ps_(*MappedRegion::Open(::getpid(), pool_->region().fd(), pool_->region().bytes(),
                                pool_->region().nonce())) {}

  // False: the slot is at another use, or not handed over.
  bool PsTakes(uint32_t slot, uint64_t use) {
    uint64_t expected = SlotWord::Of(use, SlotState::kSent);
    return ps_->word(slot).compare_exchange_strong(expected, SlotWord::Of(use, SlotState::kTaken));
  }
  void PsIsDone(uint32_t slot, uint64_t use) {
    ps_->word(slot) = SlotWord::Of(use, SlotState::kFree);
  }
  // Those that can be had now, which are given back.
  std::set<uint32_t> Free() {
    std::vector<Slot> taken;
    std::set<uint32_t> numbers;
    while (std::optional<Slot> slot = pool_->Take()) {
      numbers.insert(slot->number());
      taken.push_back(*std::move(slot));
    }
    return numbers;
  }

  std::shared_ptr<SlotPool> pool_;
  std::unique_ptr<MappedRegion> ps_;
};

TEST_F(SlotPoolTest, ThereAreAsManyAsTheRegionHas) {
  EXPECT_EQ(Free(), (std::set<uint32_t>{0, 1, 2}));
  const std::optional<Slot> slot = pool_->Take();
  EXPECT_EQ(slot->memory().size(), shared_memory::kPageBytes);
  EXPECT_EQ(Free().size(), kSlots - 1);
  EXPECT_FALSE(Free().contains(slot->number()));
}

TEST_F(SlotPoolTest, OneThatThePsIsStillAtWorkOnIsNotUsedAgain) {
  std::optional<Slot> slot = pool_->Take();
  const uint32_t number = slot->number();
  const uint64_t use = slot->use();
  slot->MarkSent();
  ASSERT_TRUE(PsTakes(number, use));
  // The call was cancelled, or its time is over.
  slot.reset();
  EXPECT_FALSE(Free().contains(number));
  PsIsDone(number, use);
  EXPECT_TRUE(Free().contains(number));
}

TEST_F(SlotPoolTest, OneOfACallThatHasNotReachedThePsIsTakenBackAndTheCallComesTooLate) {
  std::optional<Slot> slot = pool_->Take();
  const uint32_t number = slot->number();
  const uint64_t use = slot->use();
  slot->MarkSent();
  slot.reset();
  EXPECT_FALSE(PsTakes(number, use));
  std::optional<Slot> again = pool_->Take();
  ASSERT_EQ(again->number(), number);
  EXPECT_EQ(again->use(), use + 1);
  again->MarkSent();
  EXPECT_FALSE(PsTakes(number, use));
  EXPECT_TRUE(PsTakes(number, use + 1));
}

TEST_F(SlotPoolTest, BeforeItIsSentThePsCannotTakeIt) {
  std::optional<Slot> slot = pool_->Take();
  EXPECT_FALSE(PsTakes(slot->number(), slot->use()));
  const uint32_t number = slot->number();
  slot.reset();
  EXPECT_TRUE(Free().contains(number));
}

TEST_F(SlotPoolTest, TheLastToComeIsTheFirstToGo) {
  std::optional<Slot> first = pool_->Take();
  std::optional<Slot> second = pool_->Take();
  const uint32_t last = first->number();
  second.reset();
  first.reset();
  EXPECT_EQ(pool_->Take()->number(), last);
}

TEST_F(SlotPoolTest, TheRegionStaysUntilTheLastSlotHasGone) {
  std::optional<Slot> slot = pool_->Take();
  pool_.reset();
  EXPECT_FALSE(ps_->Abandoned());
  slot->memory()[0] = 'x';
  slot.reset();
  EXPECT_TRUE(ps_->Abandoned());
}

}  // namespace
}  // namespace tessera::worker
