#include "master/actions/checkpoint_calls.h"

#include <vector>

#include "gtest/gtest.h"

namespace tessera::master {
namespace {

// Of a ps with so many rows, whose files have so many bytes in all, of which it has written some.
v1::WriteCheckpointResponse Part(uint64_t rows, uint64_t bytes, uint64_t written) {
  v1::WriteCheckpointResponse part;
  part.add_rows(0);
  part.add_rows(rows);
  part.add_files()->set_bytes(bytes - 10);
  part.add_files()->set_bytes(10);
  part.set_written_bytes(written);
  return part;
}

TEST(OutOfStep, IsWhereSomePsBeginAnewAndOthersDoNot) {
  const v1::WriteCheckpointResponse whole = Part(5, 100, 100);
  const v1::WriteCheckpointResponse increment = Part(5, 100, 10);
  EXPECT_FALSE(OutOfStep({whole}));
  EXPECT_FALSE(OutOfStep({increment}));
  EXPECT_FALSE(OutOfStep({whole, whole}));
  EXPECT_FALSE(OutOfStep({increment, increment}));
  EXPECT_TRUE(OutOfStep({whole, increment}));
  EXPECT_TRUE(OutOfStep({increment, increment, whole}));
}

TEST(OutOfStep, PsWithoutRowsAreOfNoMatter) {
  EXPECT_FALSE(OutOfStep({Part(0, 100, 100), Part(5, 100, 10)}));
  EXPECT_FALSE(OutOfStep({Part(0, 100, 10), Part(5, 100, 100)}));
}

}  // namespace
}  // namespace tessera::master
