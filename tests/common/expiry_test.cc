#include "common/expiry.h"

#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

v1::ExpirySpec Spec(uint64_t after_steps, uint32_t min_frequency, float min_norm,
                    uint64_t grace_steps = 0) {
  v1::ExpirySpec spec;
  spec.set_after_steps(after_steps);
  spec.set_min_frequency(min_frequency);
  spec.set_min_norm(min_norm);
  spec.set_grace_steps(grace_steps);
  return spec;
}

// Whether a row whose embedding is {w, 0} goes at a cut after so many steps.
bool Takes(const v1::ExpirySpec& spec, uint64_t last_step, uint32_t frequency, float w = 1,
           uint64_t applied_steps = 10) {
  return Expiry::New(spec, "t")->Takes(last_step, frequency, applied_steps, [w] {
    return EmbeddingNorm({w, 0});
  });
}

TEST(Expiry, TakesRowsByTheStepsSinceTheirLastUpdate) {
  EXPECT_FALSE(Takes(Spec(3, 0, 0), 9, 1));
  EXPECT_FALSE(Takes(Spec(3, 0, 0), 7, 1));
  EXPECT_TRUE(Takes(Spec(3, 0, 0), 6, 1));
  EXPECT_TRUE(Takes(Spec(3, 0, 0), 0, 0)) << "pulled and never updated";
  EXPECT_FALSE(Takes(Spec(3, 0, 0), 12, 1)) << "another rank is further";
  EXPECT_FALSE(Takes(Spec(3, 9, 0), UINT32_MAX, 1, 1, uint64_t{1} << 33)) << "its mark is full";
}

TEST(Expiry, TakesRareRowsOnceTheirGraceHasPassed) {
  EXPECT_TRUE(Takes(Spec(0, 5, 0), 8, 4));
  EXPECT_FALSE(Takes(Spec(0, 5, 0), 8, 5));
  EXPECT_FALSE(Takes(Spec(0, 5, 0), 9, 4)) << "updated by the last step";
  EXPECT_FALSE(Takes(Spec(0, 5, 0, 5), 5, 4));
  EXPECT_TRUE(Takes(Spec(0, 5, 0, 5), 4, 4));
}

TEST(Expiry, TakesRowsOfASmallNormOnceAStepHasPassed) {
  EXPECT_TRUE(Takes(Spec(0, 0, 0.5f), 8, 9, -0.4f));
  EXPECT_FALSE(Takes(Spec(0, 0, 0.5f), 8, 9, -0.5f));
  EXPECT_FALSE(Takes(Spec(0, 0, 0.5f), 9, 9, 0));
  EXPECT_FALSE(Takes(Spec(0, 0, 0.5f), 8, 9, 1e30f)) << "whose square no float holds";
  EXPECT_FALSE(Takes(Spec(0, 0, 0.5f, 5), 5, 9, 0)) << "its grace has not passed";
}

TEST(Expiry, TakesWhatAnyOfItsRulesNames) {
  const v1::ExpirySpec all = Spec(8, 5, 0.5f, 2);
  EXPECT_FALSE(Takes(all, 4, 9, 1)) << "young, frequent, large";
  EXPECT_TRUE(Takes(all, 1, 9, 1)) << "old alone";
  EXPECT_TRUE(Takes(all, 7, 4, 1)) << "rare alone";
  EXPECT_TRUE(Takes(all, 7, 9, 0.1f)) << "small alone";
  EXPECT_FALSE(Takes(all, 8, 4, 0.1f)) << "rare and small, within its grace";
}

TEST(Expiry, TakesAtEveryLaterStepWhatItTakesAtOne) {
  std::mt19937_64 random(11);
  const auto up_to = [&](uint32_t most) { return static_cast<uint32_t>(random() % (most + 1)); };
  int taken = 0;
  for (int n = 0; n < 2000; ++n) {
    const auto expiry = Expiry::New(
        Spec(up_to(20), up_to(4), static_cast<float>(up_to(2)), /*grace_steps=*/up_to(12)), "t");
    ASSERT_TRUE(expiry.ok()) << expiry.status();
    const uint32_t last_step = up_to(30), frequency = up_to(5), norm = up_to(3);
    bool before = false;
    for (uint64_t step = 0; step < 80; ++step) {
      const bool takes = expiry->Takes(last_step, frequency, step, [&] { return norm; });
      ASSERT_TRUE(takes || !before) << "step " << step << " of row " << n;
      before = takes;
    }
    taken += before;
  }
  EXPECT_GT(taken, 500);
  EXPECT_LT(taken, 1990);
}

TEST(Expiry, TakesNothingWithoutARuleAndNamesWhatIsWrong) {
  EXPECT_FALSE(Expiry::New({}, "t")->active());
  EXPECT_FALSE(Takes({}, 0, 0, 0));
  for (const auto& [norm, text] : {std::pair(-1.0f, "-1"), std::pair(std::nanf(""), "nan")}) {
    const absl::Status status = Expiry::New(Spec(0, 0, norm), "t").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(),
                testing::HasSubstr(absl::StrCat("table t: expiry.min_norm is ", text)));
  }
  EXPECT_TRUE(Expiry::New(Spec(0, 16777215, 0), "t").ok());
  const absl::Status status = Expiry::New(Spec(0, 16777216, 0), "t").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "table t: expiry.min_frequency is 16777216, expected at most 16777215");
}

}  // namespace
}  // namespace tessera
