#include "ps/calls/shared_calls.h"

#include <unistd.h>

#include <cstring>
#include <functional>
#include <optional>

#include "ps/jobs/job_shard.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;
using shared_memory::MappedRegion;
using shared_memory::SlotLayout;
using shared_memory::SlotState;
using shared_memory::SlotWord;

constexpr uint32_t kSlots = 2;
constexpr uint32_t kSlotBytes = 2 * shared_memory::kPageBytes;

v1::ShareMemoryRequest OfferOf(const MappedRegion& region) {
  v1::ShareMemoryRequest request;
  request.set_pid(::getpid());
  request.set_fd(region.fd());
  request.set_bytes(region.bytes());
  request.set_nonce(region.nonce());
  return request;
}

// A worker's end of a region, by hand.
class SharedCallsTest : public testing::Test {
 protected:
  SharedCallsTest() : region_(*MappedRegion::Create(kSlots, kSlotBytes)) {
    number_ = *regions_.Accept(OfferOf(*region_));
  }

  uint64_t word(uint32_t slot) const { return region_->word(slot); }

  // Marks the slot as sent, and names it.
  v1::SharedBulk Send(uint32_t slot, uint64_t use) {
    region_->word(slot) = SlotWord::Of(use, SlotState::kSent);
    v1::SharedBulk shared;
    shared.set_region(number_);
    shared.set_slot(slot);
    shared.set_use(use);
    return shared;
  }
  // The bulk of a message moves to a slot; the message without it.
  v1::PushRequest Move(v1::PushRequest push, uint32_t slot, uint64_t use) {
    SlotLayout layout(kSlotBytes);
    v1::SharedBulk& shared = *push.mutable_shared();
    shared = Send(slot, use);
    for (v1::GradientBlock& block : *push.mutable_tables()) {
      Write(slot, *layout.Add(block.keys().size()), block.keys());
      shared.add_key_bytes(block.keys().size());
      block.clear_keys();
    }
    for (v1::GradientBlock& block : *push.mutable_tables()) {
      Write(slot, *layout.Add(block.gradients().size()), block.gradients());
      shared.add_value_bytes(block.gradients().size());
      block.clear_gradients();
    }
    return push;
  }
  v1::PullRequest Move(v1::PullRequest pull, uint64_t row_bytes, uint32_t slot, uint64_t use) {
    SlotLayout layout(kSlotBytes);
    v1::SharedBulk& shared = *pull.mutable_shared();
    shared = Send(slot, use);
    for (v1::KeyBlock& block : *pull.mutable_tables()) {
      Write(slot, *layout.Add(block.keys().size()), block.keys());
      shared.add_key_bytes(block.keys().size());
      shared.add_value_bytes(block.keys().size() / 8 * row_bytes);
      block.clear_keys();
    }
    return pull;
  }
  void Write(uint32_t slot, uint64_t offset, const std::string& bytes) {
    std::memcpy(region_->slot(slot) + offset, bytes.data(), bytes.size());
  }

  SharedRegions regions_{1 << 20};
  std::unique_ptr<MappedRegion> region_;
  uint64_t number_ = 0;
};

TEST_F(SharedCallsTest, ASlotIsTakenOnceForEachUseAndFreeWhenThatGoes) {
  const v1::SharedBulk shared = Send(1, 5);
  {
    const auto use = regions_.Take(shared);
    ASSERT_OK(use);
    EXPECT_EQ(use->memory().size(), kSlotBytes);
    EXPECT_EQ(word(1), SlotWord::Of(5, SlotState::kTaken));
    EXPECT_THAT(regions_.Take(shared).status(),
                FailsWith(StatusCode::kUnavailable, "past its use 5"));
  }
  EXPECT_EQ(word(1), SlotWord::Of(5, SlotState::kFree));
  EXPECT_THAT(regions_.Take(shared).status(),
              FailsWith(StatusCode::kUnavailable, "past its use 5"));
  Send(1, 6);
  EXPECT_THAT(regions_.Take(shared).status(),
              FailsWith(StatusCode::kUnavailable, "past its use 5"));
  EXPECT_EQ(word(1), SlotWord::Of(6, SlotState::kSent));
}

TEST_F(SharedCallsTest, RegionsAndSlotsThatAreNotThereAreRefused) {
  v1::SharedBulk shared = Send(0, 1);
  shared.set_slot(kSlots);
  EXPECT_THAT(regions_.Take(shared).status(), FailsWith(StatusCode::kInvalidArgument, "slot 2"));
  shared.set_slot(UINT32_MAX);
  EXPECT_THAT(regions_.Take(shared).status(),
              FailsWith(StatusCode::kInvalidArgument, "slot 42949"));
  shared.set_slot(0);
  shared.set_region(number_ + 1);
  EXPECT_THAT(regions_.Take(shared).status(),
              FailsWith(StatusCode::kUnavailable, "no shared region"));
  EXPECT_EQ(word(0), SlotWord::Of(1, SlotState::kSent));
}

TEST_F(SharedCallsTest, ARegionOfferedAgainKeepsItsNumber) {
  EXPECT_EQ(*regions_.Accept(OfferOf(*region_)), number_);
  EXPECT_EQ(regions_.bytes(), region_->bytes());
}

TEST_F(SharedCallsTest, RegionsAreBoundedInBytesAndOnesThatWereClosedMakeRoom) {
  SharedRegions regions(2 * region_->bytes());
  auto second = *MappedRegion::Create(kSlots, kSlotBytes);
  const auto third = *MappedRegion::Create(kSlots, kSlotBytes);
  const uint64_t first = *regions.Accept(OfferOf(*region_));
  ASSERT_OK(regions.Accept(OfferOf(*second)));
  EXPECT_EQ(*regions.Accept(OfferOf(*region_)), first) << "it takes no room of its own again";
  EXPECT_THAT(regions.Accept(OfferOf(*third)).status(),
              FailsWith(StatusCode::kResourceExhausted, "has no room for one of"));
  v1::ShareMemoryRequest huge = OfferOf(*third);
  huge.set_bytes(UINT64_MAX);
  EXPECT_THAT(regions.Accept(huge).status(), FailsWith(StatusCode::kResourceExhausted, "1844674"));
  second.reset();
  ASSERT_OK(regions.Accept(OfferOf(*third)));
  EXPECT_EQ(regions.bytes(), 2 * region_->bytes());
}

TEST_F(SharedCallsTest, RegionsAreBoundedInNumber) {
  SharedRegions regions(1 << 30);
  std::vector<std::unique_ptr<MappedRegion>> made;
  for (size_t i = 0; i <= SharedRegions::kMaxRegions; ++i) {
    made.push_back(*MappedRegion::Create(1, shared_memory::kPageBytes));
    const auto accepted = regions.Accept(OfferOf(*made.back()));
    EXPECT_EQ(accepted.ok(), i < SharedRegions::kMaxRegions) << i << ": " << accepted.status();
  }
}

TEST_F(SharedCallsTest, AWorkerThatHasGoneIsForgottenButNotWhatItHasPushed) {
  auto use = regions_.Take(Send(0, 1));
  ASSERT_OK(use);
  regions_.DropAbandoned();
  EXPECT_EQ(regions_.bytes(), region_->bytes());
  region_->slot(0)[3] = 'x';
  region_.reset();
  regions_.DropAbandoned();
  EXPECT_EQ(regions_.bytes(), 0u);
  EXPECT_EQ(use->memory()[3], 'x');
}

TEST_F(SharedCallsTest, APsThatSharesNothingSaysSo) {
  SharedRegions none(0);
  EXPECT_THAT(none.Accept(OfferOf(*region_)).status(),
              FailsWith(StatusCode::kFailedPrecondition, "--shared-memory"));
}

TEST_F(SharedCallsTest, ACallReadsAsIfItsBulkHadComeInTheMessage) {
  const v1::PushRequest push =
      PushOf(0, 7, {{0, {1, 2}, {1, 2, 3, 4}}, {1, {}, {}}, {1, {9}, {5}}});
  for (const bool copy : {false, true}) {
    SCOPED_TRACE(copy);
    PushCall expected = CallOf(push);
    PushCall call = CallOf(Move(push, 1, copy ? 2 : 1));
    const auto bytes = TakeShared(regions_, copy, call);
    ASSERT_OK(bytes);
    EXPECT_EQ(*bytes, 3 * 8 + 5 * 4u);
    EXPECT_EQ(call.request.SerializeAsString(), expected.request.SerializeAsString());
    EXPECT_EQ(call.keys, expected.keys);
    EXPECT_EQ(call.gradients, expected.gradients);
    // What is logged is laid out as for any other push.
    EXPECT_EQ(copy, absl::string_view(call.memory.data(), call.memory.size()) ==
                        absl::string_view(expected.memory.data(), expected.memory.size()));
    EXPECT_EQ(word(1),
              copy ? SlotWord::Of(2, SlotState::kFree) : SlotWord::Of(1, SlotState::kTaken));
    call = PushCall();
    EXPECT_EQ(word(1), SlotWord::Of(copy ? 2 : 1, SlotState::kFree));
  }
}

TEST_F(SharedCallsTest, KeysThatChangeAfterwardsAreNotSeen) {
  PushCall push = CallOf(Move(PushOf(0, 0, {{0, {1, 2}, {1, 2}}}), 0, 1));
  PullCall pull = CallOf(Move(PullOf(0, 0, {{0, {3}}}), 4, 1, 1));
  ASSERT_OK(TakeShared(regions_, false, push));
  ASSERT_OK(TakeShared(regions_, pull));
  std::memset(region_->slot(0), 0xff, kSlotBytes);
  std::memset(region_->slot(1), 0xff, kSlotBytes);
  EXPECT_EQ(std::string(push.keys[0].data(), 16), Bytes<uint64_t>({1, 2}));
  EXPECT_EQ(std::string(pull.keys[0].data(), 8), Bytes<uint64_t>({3}));
}

TEST_F(SharedCallsTest, SizesThatCannotBeAreRefusedAndTheSlotIsFree) {
  const v1::PushRequest right = Move(PushOf(0, 0, {{0, {1}, {1}}}), 0, 1);
  const auto take = [&](const std::function<void(v1::PushRequest&)>& change, uint64_t use) {
    v1::PushRequest request = right;
    request.mutable_shared()->set_use(use);
    region_->word(0) = SlotWord::Of(use, SlotState::kSent);
    change(request);
    PushCall call = CallOf(request);
    const absl::Status status = TakeShared(regions_, false, call).status();
    EXPECT_EQ(word(0) == SlotWord::Of(use, SlotState::kTaken), status.ok());
    return status;
  };
  const auto sizes = [](uint64_t keys, uint64_t values) {
    return [keys, values](v1::PushRequest& request) {
      request.mutable_shared()->set_key_bytes(0, keys);
      request.mutable_shared()->set_value_bytes(0, values);
    };
  };
  EXPECT_THAT(take(sizes(kSlotBytes + 1, 4), 2),
              FailsWith(StatusCode::kInvalidArgument, "of a slot"));
  EXPECT_THAT(take(sizes(8, kSlotBytes - 63), 3),
              FailsWith(StatusCode::kInvalidArgument, "begins at 64 of a slot"));
  EXPECT_THAT(take(sizes(UINT64_MAX, 4), 4), FailsWith(StatusCode::kInvalidArgument, "of a slot"));
  EXPECT_THAT(take(sizes(8, UINT64_MAX - 63), 5),
              FailsWith(StatusCode::kInvalidArgument, "of a slot"));
  EXPECT_THAT(take([](v1::PushRequest& r) { r.mutable_shared()->add_key_bytes(0); }, 6),
              FailsWith(StatusCode::kInvalidArgument, "of 1 blocks"));
  EXPECT_THAT(take([](v1::PushRequest& r) { r.mutable_shared()->clear_value_bytes(); }, 7),
              FailsWith(StatusCode::kInvalidArgument, "of 1 blocks"));
  EXPECT_THAT(take([](v1::PushRequest& r) { r.mutable_tables(0)->set_keys("12345678"); }, 8),
              FailsWith(StatusCode::kInvalidArgument, "bulk of its own"));
  EXPECT_OK(take([](v1::PushRequest&) {}, 9));
}

TEST_F(SharedCallsTest, RowsOfAPullAreWrittenToItsRoomWithTheBitsOfOneWithout) {
  FaultFileSystem files;
  const auto shard =
      *JobShard::Open(Whole(Job({SgdTable("t", 4, v1::ASYNC)})),
                      {.clock = &SystemClock(), .files = &files, .checkpoint_root = "root"});
  ASSERT_OK(shard->Push(CallOf(PushOf(0, 0, {{0, {5, 6}, {1, 2, 3, 4, 5, 6, 7, 8}}}))));
  const v1::PullRequest pull = PullOf(0, 0, {{0, {6, 5}}}, /*read_only=*/true);
  const auto answer_of = [&shard](PullCall call) {
    std::optional<PullAnswer> answer;
    shard->Pull(std::move(call), absl::ZeroDuration(),
                [&answer](absl::StatusOr<PullAnswer> pulled) {
                  ASSERT_OK(pulled);
                  answer = *std::move(pulled);
                });
    return ResponseOf(*std::move(answer));
  };
  const v1::PullResponse expected = answer_of(CallOf(pull));
  EXPECT_FALSE(expected.shared());

  PullCall call = CallOf(Move(pull, 16, 1, 1));
  ASSERT_OK(TakeShared(regions_, call));
  const v1::PullResponse response = answer_of(std::move(call));
  EXPECT_TRUE(response.shared());
  EXPECT_EQ(response.tables(0).values(), "");
  EXPECT_EQ(std::string(region_->slot(1) + 64, 2 * 16), expected.tables(0).values());
  EXPECT_EQ(word(1), SlotWord::Of(1, SlotState::kFree));

  // Nothing asked for is nothing to write, and said to be there all the same.
  call = CallOf(Move(PullOf(0, 0, {}), 16, 1, 2));
  ASSERT_OK(TakeShared(regions_, call));
  EXPECT_TRUE(answer_of(std::move(call)).shared());

  call = CallOf(Move(pull, 12, 1, 3));
  ASSERT_OK(TakeShared(regions_, call));
  shard->Pull(std::move(call), absl::ZeroDuration(), [](absl::StatusOr<PullAnswer> pulled) {
    EXPECT_THAT(pulled.status(),
                FailsWith(StatusCode::kInvalidArgument, "room for rows has 24 bytes"));
  });
  EXPECT_EQ(word(1), SlotWord::Of(3, SlotState::kFree));
}

}  // namespace
}  // namespace tessera::ps
