#include "master/plan/prediction_parts.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tessera::master {
namespace {

std::vector<v1::FileRecords> TenRecords() {
  std::vector<v1::FileRecords> files(2);
  files[0].set_path("a");
  files[0].set_records(4);
  files[1].set_path("b");
  files[1].set_records(6);
  return files;
}

TEST(PredictionParts, HoldEveryRecordOnceInOrder) {
  PredictionParts parts(3);
  std::string ranges, outputs;
  while (!parts.handed_out()) {
    const v1::Predict part = parts.Next(TenRecords(), "out");
    for (const v1::RecordRange& range : part.ranges()) {
      ranges += range.path() + std::to_string(range.begin()) + "-" + std::to_string(range.end());
      ranges += " ";
    }
    outputs += part.output() + " ";
    EXPECT_FALSE(parts.done());
    parts.PartDone();
  }
  EXPECT_EQ(ranges, "a0-3 a3-4 b0-2 b2-6 ");
  EXPECT_EQ(outputs, "out-00000-of-00003 out-00001-of-00003 out-00002-of-00003 ");
  EXPECT_TRUE(parts.done());
}

TEST(PredictionParts, TheOnlyOneIsWrittenToTheOutputItself) {
  PredictionParts parts(1);
  EXPECT_EQ(parts.Next(TenRecords(), "out").output(), "out");
  EXPECT_TRUE(parts.handed_out());
}

}  // namespace
}  // namespace tessera::master
