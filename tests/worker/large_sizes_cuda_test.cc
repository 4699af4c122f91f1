// Sizes that a card's grid of threads does not cover at once (cuda/launch.h), on a card or an
// emulated one. But for softmax, sums are of small whole numbers, so they are exact in any order.
#include <cmath>
#include <vector>

#include "cuda/dense/accumulate.h"
#include "cuda/dense/bias.h"
#include "cuda/dense/softmax.h"
#include "cuda/memory.h"
#include "tests/worker/dense_testing.h"

namespace tessera::worker::testing {
namespace {

using cuda::Memory;

class LargeSizesOnCuda : public CardTest {
 protected:
  void SetUp() override {
    CardTest::SetUp();
    if (!IsSkipped()) stream_ = Stream();
  }
  // Floats i of the card are value(i).
  template <typename F>
  Memory OnCard(int64_t n, F value) {
    std::vector<float> floats(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) floats[static_cast<size_t>(i)] = static_cast<float>(value(i));
    Memory memory(*stream_, Memory::Where::kDevice, floats.size());
    stream_->CopyToDevice(floats.data(), memory.data(), floats.size());
    stream_->Synchronize();
    return memory;
  }
  // The first float of the card that is not value(i); n: there is none.
  template <typename F>
  int64_t FirstOther(const float* of_card, int64_t n, F value) {
    std::vector<float> floats(static_cast<size_t>(n));
    stream_->CopyToHost(of_card, floats.data(), floats.size());
    EXPECT_TRUE(stream_->status().ok()) << stream_->status();
    int64_t i = 0;
    while (i < n && floats[static_cast<size_t>(i)] == static_cast<float>(value(i))) ++i;
    return i;
  }

  std::unique_ptr<cuda::Stream> stream_;
};

// One float of a thread, because the addresses are odd.
TEST_F(LargeSizesOnCuda, AddEveryElement) {
  constexpr int64_t kN = (1 << 24) + 3;
  const Memory from = OnCard(kN + 1, [](int64_t i) { return i % 1001; });
  const Memory to = OnCard(kN + 1, [](int64_t i) { return i % 7; });
  cuda::Accumulate(*stream_, from.data() + 1, to.data() + 1, kN);
  EXPECT_EQ(FirstOther(to.data() + 1, kN, [](int64_t i) { return (i + 1) % 1001 + (i + 1) % 7; }),
            kN);
}

TEST_F(LargeSizesOnCuda, GoThroughEveryRowAndColumn) {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>((1 << 22) + 3, 3), {3, 70001}}) {
    const Memory x = OnCard(rows * width, [](int64_t i) { return i % 1001; });
    const Memory bias = OnCard(width, [](int64_t i) { return 2 * i; });
    cuda::AddBias(*stream_, x.data(), bias.data(), x.data(), rows, width);
    const auto sum = [w = width](int64_t i) { return i % 1001 + 2 * (i % w); };
    EXPECT_EQ(FirstOther(x.data(), rows * width, sum), rows * width);
  }
}

TEST_F(LargeSizesOnCuda, SumEveryRowOfAColumn) {
  constexpr int64_t kRows = 150001, kWidth = 5;
  const Memory dy = OnCard(kRows * kWidth, [](int64_t i) { return i / kWidth % 9 + i % kWidth; });
  const Memory sum = OnCard(kWidth, [](int64_t) { return -1; });
  cuda::BiasGradient(*stream_, dy.data(), sum.data(), kRows, kWidth);
  int64_t first = 0;
  for (int64_t row = 0; row < kRows; ++row) first += row % 9;
  EXPECT_EQ(FirstOther(sum.data(), kWidth, [=](int64_t i) { return first + i * kRows; }), kWidth);
}

// Rows (0, k, 2k) for k in 0, 1, 2: the probabilities are those of k.
TEST_F(LargeSizesOnCuda, SumEveryColumnOfARow) {
  constexpr int64_t kRows = 600001, kWidth = 3;
  const auto probability = [](int64_t i) {
    const double k = static_cast<double>(i / kWidth % 3);
    return std::exp(k * static_cast<double>(i % kWidth)) / (1 + std::exp(k) + std::exp(2 * k));
  };
  const Memory x = OnCard(kRows * kWidth, [](int64_t i) { return i / kWidth % 3 * (i % kWidth); });
  cuda::Softmax(*stream_, x.data(), x.data(), kRows, kWidth, /*inner=*/1);
  std::vector<float> y(kRows * kWidth);
  stream_->CopyToHost(x.data(), y.data(), y.size());
  ASSERT_TRUE(stream_->status().ok()) << stream_->status();
  double farthest = 0;
  for (int64_t i = 0; i < kRows * kWidth; ++i) {
    const double away = std::fabs(static_cast<double>(y[static_cast<size_t>(i)]) - probability(i));
    farthest = std::fmax(farthest, away);
  }
  EXPECT_LT(farthest, 1e-6);
}

}  // namespace
}  // namespace tessera::worker::testing
