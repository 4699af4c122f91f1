// Rows that a card trains, or an emulated one, against what a ps makes of the same gradients.
#include "worker/card/card_optimizer.h"

#include <memory>
#include <numeric>

#include "common/job/optimizer.h"
#include "ps/rows/row_optimizer.h"
#include "tests/optimizers.h"
#include "tests/worker/rows_testing.h"

namespace tessera::worker::testing {
namespace {

class CardOptimizerOnCuda : public RowKernels {
 protected:
  static constexpr uint32_t kSlots = 7;
};

v1::OptimizerSpec Spec(const std::string& name, bool options) {
  v1::OptimizerSpec spec = OptimizerNamed(name);
  spec.set_learning_rate(0.1f);
  if (!options) return spec;
  spec.set_l2(0.02f);
  spec.set_weight_decay(0.1f);
  spec.set_clip_value(0.8f);
  spec.set_clip_norm(1.5f);
  return spec;
}

TEST_F(CardOptimizerOnCuda, MovesRowsAsAPsDoes) {
  for (const std::string& name : NamesOfOptimizers()) {
    if (StepsByWhole(OptimizerNamed(name))) continue;
    for (const bool options : {false, true}) {
      for (const uint32_t dim : {1u, 3u, 8u, 33u, 300u}) {
        SCOPED_TRACE(absl::StrCat(name, options ? " with options" : "", ", dim ", dim));
        v1::TableSpec table;
        table.set_name("t");
        table.set_dim(dim);
        *table.mutable_optimizer() = Spec(name, options);
        const CardOptimizer on_card(table.optimizer(), dim);
        const auto optimizer = ps::NewRowOptimizer(table, 1);
        ASSERT_TRUE(optimizer.ok()) << optimizer.status();
        const ps::RowLayout& layout = (*optimizer)->layout();
        const uint32_t states = layout.slot_floats();
        ASSERT_EQ(on_card.states(), states);

        // The rows of a ps, and the same in slots; slots that no row of the batch has stay.
        std::vector<float> rows = Normals(1, kSlots * dim, 1);
        std::vector<float> state = Normals(2, kSlots * states, 1);
        for (float& s : state) s = std::fabs(s);
        std::vector<std::vector<std::max_align_t>> blocks(kSlots);
        std::vector<ps::Row*> all;
        for (uint32_t s = 0; s < kSlots; ++s) {
          blocks[s].resize(layout.block_bytes() / sizeof(std::max_align_t) + 1);
          all.push_back(new (blocks[s].data()) ps::Row{});
          std::copy_n(&rows[s * dim], dim, layout.Embedding(all[s]));
          std::copy_n(state.data() + s * states, states, layout.Slots(all[s]));
        }
        GuardedOnCard card_rows = ToCard(rows), card_state = ToCard(state);
        for (uint64_t step = 0; step < 3; ++step) {
          // Rows 1 and 4 of the batch are none that the card trains.
          const std::vector<uint32_t> at = {3, kSlots, 0, 6, kSlots + 1, 2};
          const std::vector<float> gradients = Normals(10 + step, at.size() * dim, 1);
          std::vector<ps::Row*> moved;
          std::vector<const float*> of_rows;
          for (size_t r = 0; r < at.size(); ++r) {
            if (at[r] >= kSlots) continue;
            moved.push_back(all[at[r]]);
            of_rows.push_back(&gradients[r * dim]);
          }
          (*optimizer)->Apply(moved, of_rows, 0.5, step);
          const GuardedOnCard card_gradients = ToCard(gradients), card_at = ToCard(at);
          on_card.Train(
              *stream_,
              {.dim = dim, .states = states, .rows = card_rows.data(), .state = card_state.data()},
              {.gradients = card_gradients.data(),
               .at = card_at.words(),
               .rows = static_cast<int64_t>(at.size()),
               .slots = kSlots},
              0.5);
          ASSERT_TRUE(stream_->Synchronize().ok()) << stream_->status();
        }
        for (uint32_t s = 0; s < kSlots; ++s) {
          std::copy_n(layout.Embedding(all[s]), dim, &rows[s * dim]);
          std::copy_n(layout.Slots(all[s]), states, state.data() + s * states);
        }
        EXPECT_THAT(FromCard(card_rows), ::testing::Pointwise(::testing::FloatNear(1e-6f), rows));
        EXPECT_THAT(FromCard(card_state), ::testing::Pointwise(::testing::FloatNear(2e-6f), state));
      }
    }
  }
}

TEST_F(CardOptimizerOnCuda, TakesWhatHasChangedAndPutsRowsBesideIt) {
  constexpr int64_t kDim = 3, kStates = 2, kFloats = kDim + kStates;
  const std::vector<float> rows = Normals(1, kSlots * kDim, 1);
  const std::vector<float> state = Normals(2, kSlots * kStates, 1);
  const std::vector<float> at_ps = Normals(3, kSlots * kFloats, 1);
  const GuardedOnCard card_rows = ToCard(rows), card_state = ToCard(state),
                      card_at_ps = ToCard(at_ps);
  const cuda::TrainedRows trained = {.dim = kDim,
                                     .states = kStates,
                                     .rows = card_rows.data(),
                                     .state = card_state.data(),
                                     .at_ps = card_at_ps.data()};
  const std::vector<uint32_t> written = {5, 2, 3};
  const auto number = [&](uint32_t slot, int64_t i) {
    return i < kDim ? rows[slot * kDim + i] : state[slot * kStates + i - kDim];
  };
  std::vector<float> expected;
  for (const uint32_t slot : written) {
    for (int64_t i = 0; i < kFloats; ++i) {
      expected.push_back(number(slot, i) - at_ps[slot * kFloats + i]);
    }
  }
  const GuardedOnCard slots = ToCard(written);
  const GuardedOnCard changes = ToCard(std::vector<float>(written.size() * kFloats, 99.0f));
  for (const bool again : {false, true}) {
    cuda::TakeChanges(*stream_, trained, slots.words(), static_cast<int64_t>(written.size()),
                      changes.data());
    const std::vector<float> found = FromCard(changes);
    if (!again) {
      EXPECT_EQ(found, expected);
      continue;
    }
    // Once, but for what the ps' sum is rounded by.
    EXPECT_THAT(found, ::testing::Each(::testing::FloatNear(0, 1e-6f)));
    stream_->CopyToDevice(expected.data(), changes.data(), expected.size());
  }
  // Slot 2's row is pulled again, and keeps what was made of it here; slot 5 gets another's, and
  // slot 0, of which nothing was written.
  const std::vector<uint32_t> put = {2, 5, 0}, own = {1, cuda::kNoChange, cuda::kNoChange};
  const std::vector<float> whole = Normals(4, put.size() * kFloats, 1);
  const GuardedOnCard card_whole = ToCard(whole), card_put = ToCard(put), card_own = ToCard(own);
  cuda::PutRows(*stream_, trained, card_whole.data(), card_put.words(), card_own.words(),
                static_cast<int64_t>(put.size()), changes.data());
  const std::vector<float> new_rows = FromCard(card_rows);
  const std::vector<float> new_state = FromCard(card_state);
  const std::vector<float> new_at_ps = FromCard(card_at_ps);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const size_t p = std::find(put.begin(), put.end(), slot) - put.begin();
    const bool is_written = std::count(written.begin(), written.end(), slot) > 0;
    for (int64_t i = 0; i < kFloats; ++i) {
      float now = number(slot, i);
      float ps_has = is_written ? now : at_ps[slot * kFloats + i];
      if (p < put.size()) {
        now = whole[p * kFloats + i];
        if (own[p] != cuda::kNoChange) now += expected[own[p] * kFloats + i];
        ps_has = now;
      }
      EXPECT_EQ(i < kDim ? new_rows[slot * kDim + i] : new_state[slot * kStates + i - kDim], now);
      EXPECT_EQ(new_at_ps[slot * kFloats + i], ps_has);
    }
  }
}

// A sum is rounded by the larger of the two: of a number that falls a lot more is left at the ps
// than the card has, or nothing.
TEST_F(CardOptimizerOnCuda, WhatPsAddUpFallsBelowZeroInNoNumberThatDoesNot) {
  const GuardedOnCard row = ToCard(std::vector<float>{1}), at_ps = ToCard(std::vector<float>{1});
  const cuda::TrainedRows trained = {.dim = 1, .rows = row.data(), .at_ps = at_ps.data()};
  const GuardedOnCard slots = ToCard(std::vector<uint32_t>{0});
  const GuardedOnCard changes = ToCard(std::vector<float>{0});
  float sum = 1;
  for (const float now : {1e-9f, 5e-10f, 0.3f, 1e-12f, 1e-13f, 0.0f}) {
    stream_->CopyToDevice(&now, row.data(), 1);
    cuda::TakeChanges(*stream_, trained, slots.words(), 1, changes.data());
    sum += FromCard(changes)[0];
    EXPECT_GE(sum, 0) << now;
    EXPECT_NEAR(sum, now, 6e-8) << now;
  }
}

TEST_F(CardOptimizerOnCuda, GathersRowsAndTakesNone) {
  const std::vector<float> from = Normals(1, 5 * 3, 1);
  const GuardedOnCard card_from = ToCard(from), rows = ToCard(std::vector<uint32_t>{4, 0, 3});
  const GuardedOnCard to = ToCard(std::vector<float>(9, 99.0f));
  cuda::GatherRows(*stream_, card_from.data(), rows.words(), 0, 3, to.data());
  EXPECT_EQ(FromCard(to), std::vector<float>(9, 99.0f));
  cuda::GatherRows(*stream_, card_from.data(), rows.words(), 3, 3, to.data());
  std::vector<float> expected;
  for (const size_t row : {4, 0, 3}) {
    expected.insert(expected.end(), from.begin() + row * 3, from.begin() + (row + 1) * 3);
  }
  EXPECT_EQ(FromCard(to), expected);
}

}  // namespace
}  // namespace tessera::worker::testing
