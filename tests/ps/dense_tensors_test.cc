// LAMB over dense parameters: a step is as long as the tensor that it moves, wherever its blocks
// are, against the same in double precision.
#include <cmath>
#include <random>

#include "common/job/dense_layout.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

constexpr uint32_t kRanks = 2;
constexpr uint64_t kSteps = 4;
constexpr double kRate = 0.05, kDecay = 0.02, kL2 = 0.01, kEpsilon = 1e-6;

// Of one block, of several, of whole ones, of a block and one float.
const std::vector<uint64_t> kTensors = {3, 2500, 1024, 1, 5000, 1025};

using Numbers = std::vector<double>;

v1::OpenJobRequest LambJob(v1::Consistency consistency) {
  v1::PsTable table = DenseTable("dense", kDenseBlockFloats, consistency);
  v1::OptimizerSpec& optimizer = *table.mutable_spec()->mutable_optimizer();
  optimizer.set_learning_rate(kRate);
  optimizer.set_weight_decay(kDecay);
  optimizer.set_l2(kL2);
  optimizer.mutable_lamb();
  return Job({table}, kRanks);
}

const DenseLayout& Layout() {
  static const DenseLayout layout = DenseLayout::ByTensor(kTensors);
  return layout;
}

// Numbers whose size differs from block to block, so that a block's ratio is not its tensor's.
std::vector<float> Uneven(uint64_t seed, float size) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (uint64_t i = 0; i < Layout().floats(); ++i) {
    values.push_back(size * static_cast<float>(1 + i / 700 % 5) * normal(random));
  }
  return values;
}
std::vector<float> Weights() { return Uneven(1, 0.1f); }
std::vector<float> Gradient(uint32_t rank, uint64_t step) {
  return Uneven(100 * step + rank + 2, rank == 0 ? 0.01f : 3.0f);
}

Block Rows(const std::vector<float>& flat) {
  Block rows;
  for (const DenseLayout::Block& block : Layout().blocks()) {
    rows.keys.push_back(block.key);
    rows.values.insert(rows.values.end(), flat.begin() + block.begin,
                       flat.begin() + block.begin + block.floats);
    rows.values.resize(rows.keys.size() * kDenseBlockFloats, 0.0f);
  }
  return rows;
}

// What the rows of a checkpoint hold; behind a tensor's end must be zeros.
Numbers FlatOf(const SavedRows& rows) {
  Numbers flat;
  for (const DenseLayout::Block& block : Layout().blocks()) {
    const std::vector<float>& floats = rows.at({0, block.key}).floats;
    flat.insert(flat.end(), floats.begin(), floats.begin() + block.floats);
    for (uint32_t i = block.floats; i < kDenseBlockFloats; ++i) EXPECT_EQ(floats[i], 0.0f);
  }
  return flat;
}

// The weights after steps with these gradients; `wholes`, the sizes of what has one ratio.
Numbers Expected(const std::vector<Numbers>& gradients, const std::vector<uint64_t>& wholes,
                 double scale) {
  const std::vector<float> start = Weights();
  Numbers w(start.begin(), start.end()), m(w.size()), v(w.size()), r(w.size());
  for (size_t t = 1; t <= gradients.size(); ++t) {
    size_t begin = 0;
    for (const uint64_t floats : wholes) {
      double squared_w = 0, squared_r = 0;
      for (size_t i = begin; i < begin + floats; ++i) {
        const double g = gradients[t - 1][i] + kL2 * w[i];
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.999 * v[i] + 0.001 * g * g;
        const double power = static_cast<double>(t);
        r[i] = m[i] / (1 - std::pow(0.9, power)) /
                   (std::sqrt(v[i] / (1 - std::pow(0.999, power))) + kEpsilon) +
               kDecay * w[i];
        squared_w += w[i] * w[i];
        squared_r += r[i] * r[i];
      }
      for (size_t i = begin; i < begin + floats; ++i) {
        w[i] -= kRate * scale * std::sqrt(squared_w / squared_r) * r[i];
      }
      begin += floats;
    }
  }
  return w;
}

double LargestDifference(const Numbers& a, const Numbers& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::fabs(a[i] - b[i]));
  }
  return largest;
}

std::vector<uint64_t> Blocks() {
  std::vector<uint64_t> sizes;
  for (const DenseLayout::Block& block : Layout().blocks()) {
    sizes.push_back(block.floats);
  }
  return sizes;
}

class DenseTensors : public testing::Test {
 protected:
  // The weights start where they do; `push` makes the steps.
  template <typename Push>
  SavedRows Train(v1::Consistency consistency, uint32_t ps, const Push& push) {
    FaultFileSystem files;
    ShardedJob job(LambJob(consistency), ps, files, clock_);
    EXPECT_OK(job.status());
    job.Assign({Rows(Weights())});
    push(job);
    return job.Rows(kSteps);
  }
  HandClock clock_;
};

TEST_F(DenseTensors, MoveByTheRatioOfTheWholeTensorAndToTheSameBitsOnAnyNumberOfPs) {
  std::vector<Numbers> sums;
  for (uint64_t step = 0; step < kSteps; ++step) {
    const std::vector<float> a = Gradient(0, step), b = Gradient(1, step);
    Numbers& sum = sums.emplace_back();
    for (size_t i = 0; i < a.size(); ++i) sum.push_back(static_cast<double>(a[i]) + b[i]);
  }
  const auto push = [&](ShardedJob& job) {
    for (uint64_t step = 0; step < kSteps; ++step) {
      for (const uint32_t rank : {1u, 0u}) job.Push(rank, step, {Rows(Gradient(rank, step))});
    }
  };
  const SavedRows one = Train(v1::SYNC, 1, push);
  // float32 weights of size up to 2, moved a few times by about a twentieth.
  EXPECT_LT(LargestDifference(FlatOf(one), Expected(sums, kTensors, 1)), 3e-6);
  // By blocks they would be elsewhere: this test can tell.
  EXPECT_GT(LargestDifference(FlatOf(one), Expected(sums, Blocks(), 1)), 1e-2);
  EXPECT_EQ(Train(v1::SYNC, 3, push), one);
  EXPECT_EQ(Train(v1::SYNC, 7, push), one);
}

TEST_F(DenseTensors, MoveSoInAsyncJobsTooAndByTheScaledRate) {
  constexpr double kScale = 0.5;
  std::vector<Numbers> gradients;
  for (uint64_t step = 0; step < kSteps; ++step) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const std::vector<float> gradient = Gradient(rank, step);
      gradients.emplace_back(gradient.begin(), gradient.end());
    }
  }
  const SavedRows rows = Train(v1::ASYNC, 3, [&](ShardedJob& job) {
    for (uint64_t step = 0; step < kSteps; ++step) {
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        for (size_t i = 0; i < job.size(); ++i) {
          v1::PushRequest push = PushOf(rank, step, job.PartFor(i, {Rows(Gradient(rank, step))}));
          push.set_learning_rate_scale(kScale);
          EXPECT_OK(job.shard(i).Push(CallOf(push)));
        }
        job.ConfirmAt(rank, step + 1);
      }
    }
  });
  EXPECT_LT(LargestDifference(FlatOf(rows), Expected(gradients, kTensors, kScale)), 3e-6);
}

TEST_F(DenseTensors, AreNotTakenFromACheckpointThatCutThemOtherwise) {
  const v1::OpenJobRequest lamb = LambJob(v1::SYNC);
  v1::OpenJobRequest sgd = lamb;
  sgd.mutable_tables(0)->mutable_spec()->mutable_optimizer()->mutable_sgd();
  Block flat = {.table = 0, .keys = {0, 1, 2}, .values = {}};
  flat.values.assign(3 * kDenseBlockFloats, 0.5f);
  for (const bool to_lamb : {false, true}) {
    FaultFileSystem files;
    ShardedJob job(to_lamb ? sgd : lamb, 1, files, clock_);
    job.Assign({to_lamb ? flat : Rows(Weights())});
    ASSERT_OK(job.Checkpoint(0, "c"));
    for (const bool same : {true, false}) {
      v1::OpenJobRequest next = Whole(to_lamb == same ? sgd : lamb);
      next.set_checkpoint("c");
      next.set_warm(true);
      const auto opened =
          JobShard::Open(next, {.clock = &clock_, .files = &files, .checkpoint_root = "root"});
      if (same) {
        EXPECT_OK(opened.status());
      } else {
        EXPECT_FAILS(opened.status(), absl::StatusCode::kFailedPrecondition,
                     to_lamb ? "cut without regard to tensors, and lamb needs them"
                             : "cut by tensors, for lamb");
      }
    }
  }
}

}  // namespace
}  // namespace tessera::ps
