// Pooling on a card, or an emulated one, against sums in double; nothing is written beside what it
// gives.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cuda/rows/pooling.h"
#include "tests/worker/rows_testing.h"

namespace tessera::worker::testing {
namespace {

// Row 0 is in every place but the first, which has none: so it is cut into chunks.
struct Entries {
  static constexpr uint32_t kPlaces = 70, kRows = 20, kSlots = 9;

  Entries() {
    for (uint32_t place = 0; place < kPlaces; ++place) {
      begins.push_back(static_cast<uint32_t>(rows.size()));
      for (uint32_t k = 0; place > 0 && k <= place % 4; ++k) {
        const uint64_t row = RandomBelow(5, rows.size(), kRows - 1) + 1;
        rows.push_back(k == 0 ? 0 : static_cast<uint32_t>(row));
        place_of.push_back(place);
      }
    }
    begins.push_back(static_cast<uint32_t>(rows.size()));
    factors = Normals(6, rows.size());
    for (uint32_t row = 0; row < kRows; ++row) {
      row_begins.push_back(static_cast<uint32_t>(order.size()));
      for (uint32_t entry = 0; entry < rows.size(); ++entry) {
        if (rows[entry] == row) order.push_back(entry);
      }
      const uint32_t n = static_cast<uint32_t>(order.size()) - row_begins.back();
      if (n <= cuda::kChunkEntries) continue;
      long_begins.push_back(static_cast<uint32_t>(long_of.size()));
      long_of.insert(long_of.end(), (n + cuda::kChunkEntries - 1) / cuda::kChunkEntries,
                     static_cast<uint32_t>(long_row.size()));
      long_row.push_back(row);
    }
    row_begins.push_back(static_cast<uint32_t>(order.size()));
    long_begins.push_back(static_cast<uint32_t>(long_of.size()));
    // Some are kept, in slots, the rest are fresh.
    uint32_t fresh = kSlots;
    for (uint32_t row = 0; row < kRows; ++row) at.push_back(row % 3 == 1 ? row / 3 : fresh++);
  }

  std::vector<uint32_t> begins, rows, place_of, row_begins, order, long_row, long_begins, long_of;
  std::vector<uint32_t> at;
  std::vector<float> factors;
};

class PoolingKernelsOnCuda : public RowKernels {
 protected:
  // Of `dim` numbers: test(rows, entries, both on the card, and an entry's value(entry, d)).
  template <typename Test>
  void Run(size_t dim, const Test& test) {
    SCOPED_TRACE(absl::StrCat("dim ", dim));
    const std::vector<float> kept_rows = Normals(1, Entries::kSlots * dim);
    const std::vector<float> fresh_rows = Normals(2, Entries::kRows * dim);
    const GuardedOnCard kept = ToCard(kept_rows), fresh = ToCard(fresh_rows);
    const GuardedOnCard begins = ToCard(of_.begins), rows = ToCard(of_.rows);
    const GuardedOnCard place_of = ToCard(of_.place_of), row_begins = ToCard(of_.row_begins);
    const GuardedOnCard order = ToCard(of_.order), long_row = ToCard(of_.long_row);
    const GuardedOnCard long_begins = ToCard(of_.long_begins), long_of = ToCard(of_.long_of);
    const GuardedOnCard at = ToCard(of_.at), factors = ToCard(of_.factors);
    const cuda::BatchRows batch = {.kept = kept.data(),
                                   .slots = Entries::kSlots,
                                   .fresh = fresh.data(),
                                   .at = at.words(),
                                   .dim = static_cast<int64_t>(dim)};
    const cuda::PooledEntries entries = {.places = Entries::kPlaces,
                                         .begins = begins.words(),
                                         .rows = rows.words(),
                                         .factors = factors.data(),
                                         .place_of = place_of.words(),
                                         .batch_rows = Entries::kRows,
                                         .row_begins = row_begins.words(),
                                         .order = order.words(),
                                         .long_rows = static_cast<int64_t>(of_.long_row.size()),
                                         .chunks = static_cast<int64_t>(of_.long_of.size()),
                                         .long_row = long_row.words(),
                                         .long_begins = long_begins.words(),
                                         .long_of = long_of.words()};
    test(batch, entries, [&](uint32_t entry, size_t d) {
      const uint32_t where = of_.at[of_.rows[entry]];
      return of_.factors[entry] * (where < Entries::kSlots
                                       ? kept_rows[where * dim + d]
                                       : fresh_rows[(where - Entries::kSlots) * dim + d]);
    });
    EXPECT_EQ(FromCard(kept), kept_rows);
    EXPECT_EQ(FromCard(fresh), fresh_rows);
    EXPECT_EQ(FromCard(factors), of_.factors);
  }
  static void ExpectNear(const std::vector<float>& found, const std::vector<double>& expected) {
    const std::vector<float> floats(expected.begin(), expected.end());
    EXPECT_THAT(found, ::testing::Pointwise(::testing::FloatNear(2e-5f), floats));
  }

  const Entries of_;
};

TEST_F(PoolingKernelsOnCuda, SumPlacesAndGiveEachRowItsGradient) {
  ASSERT_EQ(of_.long_row, std::vector<uint32_t>{0});
  for (const size_t dim : {1, 3, 8}) {
    Run(dim, [&](const cuda::BatchRows& rows, const cuda::PooledEntries& entries, auto value) {
      std::vector<double> sums(Entries::kPlaces * dim), gradients(Entries::kRows * dim);
      const std::vector<float> dy = Normals(3, sums.size());
      for (uint32_t entry = 0; entry < of_.rows.size(); ++entry) {
        for (size_t d = 0; d < dim; ++d) {
          const size_t to = of_.place_of[entry] * dim + d;
          sums[to] += value(entry, d);
          gradients[of_.rows[entry] * dim + d] += double{of_.factors[entry]} * dy[to];
        }
      }
      const GuardedOnCard y = ToCard(std::vector<float>(sums.size(), NAN)), card_dy = ToCard(dy);
      cuda::PoolSums(*stream_, rows, entries, y.data());
      ExpectNear(FromCard(y), sums);
      const GuardedOnCard of_rows = ToCard(std::vector<float>(gradients.size(), NAN));
      cuda::UnpoolSums(*stream_, entries, rows.dim, card_dy.data(), of_rows.data(), false);
      ExpectNear(FromCard(of_rows), gradients);
      cuda::UnpoolSums(*stream_, entries, rows.dim, card_dy.data(), of_rows.data(), true);
      for (double& gradient : gradients) gradient *= 2;
      ExpectNear(FromCard(of_rows), gradients);
    });
  }
}

TEST_F(PoolingKernelsOnCuda, FindTheLargestOfPlacesAndGiveItTheGradient) {
  for (const size_t dim : {1, 3, 8}) {
    Run(dim, [&](const cuda::BatchRows& rows, const cuda::PooledEntries& entries, auto value) {
      // The first place has no entry, and stays.
      std::vector<double> largest(Entries::kPlaces * dim, 99), gradients(Entries::kRows * dim);
      const std::vector<float> dy = Normals(3, largest.size());
      for (size_t i = dim; i < largest.size(); ++i) {
        const size_t place = i / dim, d = i % dim;
        uint32_t first = of_.begins[place];
        for (uint32_t entry = first + 1; entry < of_.begins[place + 1]; ++entry) {
          if (value(entry, d) > value(first, d)) first = entry;
        }
        largest[i] = value(first, d);
        gradients[of_.rows[first] * dim + d] += double{of_.factors[first]} * dy[i];
      }
      const GuardedOnCard y = ToCard(std::vector<float>(largest.size(), 99)), card_dy = ToCard(dy);
      cuda::PoolLargest(*stream_, rows, entries, y.data());
      ExpectNear(FromCard(y), largest);
      const GuardedOnCard of_rows = ToCard(std::vector<float>(gradients.size(), NAN));
      cuda::UnpoolLargest(*stream_, rows, entries, card_dy.data(), of_rows.data(), false);
      ExpectNear(FromCard(of_rows), gradients);
    });
  }
}

TEST_F(PoolingKernelsOnCuda, KeepRowsInTheirSlots) {
  for (const size_t dim : {1, 3, 8}) {
    SCOPED_TRACE(absl::StrCat("dim ", dim));
    const std::vector<uint32_t> from = {4, 0, 2}, slots = {0, 6, 3};
    const std::vector<float> rows = Normals(1, 5 * dim);
    std::vector<float> expected = Normals(2, 7 * dim);
    const GuardedOnCard fresh = ToCard(rows), kept = ToCard(expected);
    const GuardedOnCard card_from = ToCard(from), card_slots = ToCard(slots);
    cuda::KeepRows(*stream_, fresh.data(), card_from.words(), card_slots.words(), 3,
                   static_cast<int64_t>(dim), kept.data());
    for (size_t i = 0; i < from.size(); ++i) {
      std::copy_n(&rows[from[i] * dim], dim, &expected[slots[i] * dim]);
    }
    EXPECT_EQ(FromCard(kept), expected);
    EXPECT_EQ(FromCard(fresh), rows);
  }
}

}  // namespace
}  // namespace tessera::worker::testing
