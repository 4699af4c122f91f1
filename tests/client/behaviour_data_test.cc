#include "client/behaviour_data.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/data_generator.h"
#include "gtest/gtest.h"
#include "tests/common/fault_file_system.h"

namespace tessera::client {
namespace {

struct Folder {
  explicit Folder(const std::string& name)
      : path(absl::StrCat(testing::TempDir(), "/tessera-behaviour-", name, "-", ::getpid())) {
    std::filesystem::remove_all(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string Read(const std::string& file) const {
    std::stringstream text;
    text << std::ifstream(path + "/" + file).rdbuf();
    return text.str();
  }
  absl::Status Generate(uint64_t seed, bool force = false) const {
    return GenerateBehaviourData({.folder = path,
                                  .train = 3000,
                                  .validation = 100,
                                  .test = 50,
                                  .seed = seed,
                                  .force = force},
                                 PosixFileSystem());
  }
  const std::string path;
};

TEST(BehaviourData, IsTheSameForTheSameSeedAndAnotherForAnother) {
  const Folder a("a"), b("b"), c("c");
  ASSERT_TRUE(a.Generate(1).ok());
  ASSERT_TRUE(b.Generate(1).ok());
  ASSERT_TRUE(c.Generate(2).ok());
  EXPECT_EQ(a.Read("train.csv"), b.Read("train.csv"));
  EXPECT_NE(a.Read("train.csv"), c.Read("train.csv"));
  EXPECT_NE(a.Read("train.csv").substr(0, 2000), a.Read("validation.csv").substr(0, 2000));
}

TEST(BehaviourData, HoldsWhatItSays) {
  const Folder folder("said");
  ASSERT_TRUE(folder.Generate(1).ok());
  const std::vector<std::string> lines =
      absl::StrSplit(folder.Read("train.csv"), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 3001u);
  // Clicks by whether the last behaviour was of the item's category.
  double clicks[2] = {}, samples[2] = {};
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> f = absl::StrSplit(lines[i], ',');
    ASSERT_EQ(f.size(), 10u) << lines[i];
    const std::vector<std::string> history = absl::StrSplit(f[8], '|', absl::SkipEmpty());
    const std::vector<std::string> categories = absl::StrSplit(f[9], '|', absl::SkipEmpty());
    ASSERT_EQ(history.size(), categories.size());
    EXPECT_LE(history.size(), 8u);
    int item = 0, last = 0;
    ASSERT_TRUE(absl::SimpleAtoi(f[6], &item));
    EXPECT_EQ(f[7], absl::StrCat(item % 10));
    if (history.empty()) continue;
    ASSERT_TRUE(absl::SimpleAtoi(history.back(), &last));
    EXPECT_EQ(categories.back(), absl::StrCat(last % 10));
    EXPECT_FALSE(f[1] == "1" && f[0] == "0") << "bought and not clicked";
    const size_t match = last % 10 == item % 10;
    clicks[match] += f[0] == "1";
    samples[match] += 1;
  }
  EXPECT_GT(clicks[1] / samples[1], clicks[0] / samples[0] + 0.3);
}

TEST(BehaviourData, OverwritesNothingUnlessForced) {
  const Folder folder("kept");
  ASSERT_TRUE(folder.Generate(1).ok());
  EXPECT_EQ(folder.Generate(2).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(folder.Generate(2, true).ok());
}

TEST(BehaviourData, ASplitIsBounded) {
  FaultFileSystem disk;
  for (uint64_t BehaviourDataOptions::*split :
       {&BehaviourDataOptions::train, &BehaviourDataOptions::validation,
        &BehaviourDataOptions::test}) {
    BehaviourDataOptions options = {.folder = "/data"};
    options.*split = kMostSamples + 1;
    EXPECT_EQ(GenerateBehaviourData(options, disk).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(GenerateBehaviourData({.folder = "/data", .train = 0}, disk).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(disk.Files().empty());
}

TEST(BehaviourData, AFullDiskIsLeftAsItWas) {
  FaultFileSystem disk;
  disk.SetCapacity(1000);
  EXPECT_EQ(GenerateBehaviourData({.folder = "/data"}, disk).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(disk.Files().empty());
}

}  // namespace
}  // namespace tessera::client
