#include "client/data_generator.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/common/fault_file_system.h"

namespace tessera::client {
namespace {

using testing::HasSubstr;

class DataGeneratorTest : public testing::Test {
 protected:
  DataGeneratorTest()
      : base_(absl::StrCat(testing::TempDir(), "/tessera-generator-", ::getpid(), "-",
                           testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(base_);
  }
  ~DataGeneratorTest() override { std::filesystem::remove_all(base_); }

  ClickDataOptions Small(const std::string& folder, uint64_t seed) const {
    ClickDataOptions options;
    options.folder = base_ + "/" + folder;
    options.train = 20000;
    options.validation = 3000;
    options.test = 4000;
    options.model.seed = seed;
    return options;
  }
  static std::string Read(const std::string& path) {
    auto text = ReadWholeFile(PosixFileSystem(), path);
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }
  static void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  static absl::Status Generate(const ClickDataOptions& options) {
    return GenerateClickData(options, PosixFileSystem(), nullptr).status();
  }

  const std::string base_;
};

constexpr const char* kFiles[] = {"train.csv", "validation.csv", "test.csv", "truth.json"};

// Of all pairs of a click and a non-click: by sorting, in double, apart from the code under test.
double Auc(std::vector<std::pair<double, bool>> samples) {
  std::sort(samples.begin(), samples.end());
  double below = 0, pairs = 0, clicks = 0;
  for (const auto& [logit, clicked] : samples) {
    if (clicked) {
      ++clicks;
      pairs += below;
    } else {
      ++below;
    }
  }
  return pairs / (clicks * below);
}

TEST_F(DataGeneratorTest, TheSameSeedGivesTheSameBytesAndAnotherDoesNot) {
  ASSERT_TRUE(Generate(Small("a", 7)).ok());
  ASSERT_TRUE(Generate(Small("b", 7)).ok());
  ASSERT_TRUE(Generate(Small("c", 8)).ok());
  for (const char* file : kFiles) {
    const std::string a = Read(base_ + "/a/" + file);
    EXPECT_EQ(a, Read(base_ + "/b/" + file)) << file;
    EXPECT_NE(a, Read(base_ + "/c/" + file)) << file;
  }
}

TEST_F(DataGeneratorTest, MoreSamplesBeginWithTheSameOnes) {
  ClickDataOptions more = Small("more", 7);
  more.train += 500;
  ASSERT_TRUE(Generate(Small("a", 7)).ok());
  ASSERT_TRUE(Generate(more).ok());
  const std::string few = Read(base_ + "/a/train.csv");
  EXPECT_EQ(Read(base_ + "/more/train.csv").substr(0, few.size()), few);
}

// Every number of truth.json, from what the files hold and the model's logits of it.
TEST_F(DataGeneratorTest, TheTruthIsWhatTheFilesAndTheLogitsGive) {
  const ClickDataOptions options = Small("a", 3);
  auto splits = GenerateClickData(options, PosixFileSystem(), nullptr);
  ASSERT_TRUE(splits.ok()) << splits.status();
  const ClickModel model(options.model);
  const auto truth = nlohmann::json::parse(Read(base_ + "/a/truth.json"));
  EXPECT_EQ(truth["seed"], 3);
  ASSERT_EQ(splits->size(), 3u);
  std::map<std::string, uint64_t> wanted = {{"train", 20000}, {"validation", 3000}, {"test", 4000}};
  for (const ClickSplit& split : *splits) {
    SCOPED_TRACE(split.name);
    const std::vector<std::string> lines =
        absl::StrSplit(Read(split.path), '\n', absl::SkipEmpty());
    ASSERT_EQ(lines.size(), wanted[split.name] + 1);
    EXPECT_EQ(lines[0], "label,d0,d1,d2,d3,c0,c1,c2,c3,c4,c5,c6,c7");
    std::vector<std::pair<double, bool>> samples;
    double loss = 0, expected_clicks = 0;
    uint64_t clicks = 0;
    for (size_t i = 1; i < lines.size(); ++i) {
      const std::vector<std::string> fields = absl::StrSplit(lines[i], ',');
      ASSERT_EQ(fields.size(), 1u + 4u + 8u) << lines[i];
      std::vector<double> dense(4);
      std::vector<uint32_t> ids(8);
      for (size_t k = 0; k < 4; ++k) ASSERT_TRUE(absl::SimpleAtod(fields[1 + k], &dense[k]));
      uint32_t first = 0;
      for (size_t f = 0; f < 8; ++f) {
        ASSERT_TRUE(absl::SimpleAtoi(fields[5 + f], &ids[f]));
        ASSERT_GE(ids[f], first);
        first += options.model.vocabulary[f];
        ASSERT_LT(ids[f], first);
      }
      const bool clicked = fields[0] == "1";
      const double logit = model.Logit(dense, ids);
      samples.emplace_back(logit, clicked);
      loss += std::log1p(std::exp(clicked ? -logit : logit));
      expected_clicks += 1 / (1 + std::exp(-logit));
      clicks += clicked ? 1 : 0;
    }
    const double n = static_cast<double>(samples.size());
    const auto& said = truth["splits"][split.name];
    EXPECT_EQ(said["samples"], samples.size());
    EXPECT_EQ(said["clicks"], clicks);
    EXPECT_EQ(split.clicks, clicks);
    // Logits are rounded to float before they are ranked.
    EXPECT_NEAR(said["best_auc"].get<double>(), Auc(samples), 1e-5);
    EXPECT_EQ(said["best_auc"].get<double>(), split.best_auc);
    EXPECT_NEAR(said["best_logloss"].get<double>(), loss / n, 1e-5);
    EXPECT_GT(split.best_auc, 0.78);
    EXPECT_LT(split.best_auc, 0.88);
    // The labels follow the logits: clicks are within five standard deviations (each below 1/2).
    EXPECT_NEAR(static_cast<double>(clicks), expected_clicks, 2.5 * std::sqrt(n));
  }
}

TEST_F(DataGeneratorTest, FrequentIdsAreAsFrequentAsZipfSays) {
  ClickModelOptions options;
  options.vocabulary = {3};
  options.zipf = 1;
  options.dense = 0;
  const ClickModel model(options);
  std::vector<double> counts(3);
  ClickModel::Sample sample;
  for (uint64_t i = 0; i < 60000; ++i) {
    model.Draw(0, i, &sample);
    ++counts[sample.ids[0]];
  }
  std::sort(counts.rbegin(), counts.rend());
  // 1 : 1/2 : 1/3, within six standard deviations.
  EXPECT_NEAR(counts[0], 60000 * 6 / 11.0, 750);
  EXPECT_NEAR(counts[1], 60000 * 3 / 11.0, 750);
  EXPECT_NEAR(counts[2], 60000 * 2 / 11.0, 750);
}

TEST_F(DataGeneratorTest, ProgressIsToldUpToTheTotal) {
  std::vector<std::pair<uint64_t, uint64_t>> told;
  ClickDataOptions options = Small("a", 1);
  options.test = 7000;
  auto splits = GenerateClickData(options, PosixFileSystem(), [&](uint64_t done, uint64_t total) {
    told.emplace_back(done, total);
  });
  ASSERT_TRUE(splits.ok());
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told.front(), (std::pair<uint64_t, uint64_t>(10000, 30000)));
  EXPECT_EQ(told.back(), (std::pair<uint64_t, uint64_t>(30000, 30000)));
}

TEST_F(DataGeneratorTest, ItsOwnFilesAreReplaced) {
  ASSERT_TRUE(Generate(Small("a", 1)).ok());
  ASSERT_TRUE(Generate(Small("a", 2)).ok());
  ASSERT_TRUE(Generate(Small("b", 2)).ok());
  for (const char* file : kFiles) {
    EXPECT_EQ(Read(base_ + "/a/" + file), Read(base_ + "/b/" + file));
  }
  // Also what is left of an interrupted run.
  std::filesystem::remove(base_ + "/a/test.csv");
  Write(base_ + "/a/train.csv.tmp", "half");
  EXPECT_TRUE(Generate(Small("a", 3)).ok());
  EXPECT_FALSE(std::filesystem::exists(base_ + "/a/train.csv.tmp"));
}

TEST_F(DataGeneratorTest, WhereverItEndedItGoesOnWithItsOwnFiles) {
  const ClickDataOptions first = Small("a", 1);
  for (uint64_t renames = 0; renames < 4; ++renames) {
    FaultFileSystem files;
    ASSERT_TRUE(GenerateClickData(first, files, nullptr).ok());
    files.FailRenamesAfter(renames);
    const ClickDataOptions second = Small("a", 2);
    EXPECT_FALSE(GenerateClickData(second, files, nullptr).ok()) << renames;
    files.Repair();
    const auto again = GenerateClickData(second, files, nullptr);
    EXPECT_TRUE(again.ok()) << renames << ": " << again.status();
  }
}

TEST_F(DataGeneratorTest, FilesOfOthersAreKeptUnlessForced) {
  for (const char* file : kFiles) {
    SCOPED_TRACE(file);
    ClickDataOptions options = Small(absl::StrCat("of-", file), 1);
    const std::string path = options.folder + "/" + file;
    Write(path, "mine");
    const absl::Status status = Generate(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_THAT(std::string(status.message()), HasSubstr("--force"));
    EXPECT_EQ(Read(path), "mine");
    options.force = true;
    EXPECT_TRUE(Generate(options).ok());
    EXPECT_NE(Read(path), "mine");
  }
}

TEST_F(DataGeneratorTest, FilesThatWereChangedAreKeptUnlessForced) {
  ASSERT_TRUE(Generate(Small("a", 1)).ok());
  const std::string path = base_ + "/a/validation.csv";
  std::string text = Read(path);
  text[text.size() - 2] ^= 1;
  Write(path, text);
  const absl::Status status = Generate(Small("a", 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("was changed since"));
  EXPECT_EQ(Read(path), text);
}

TEST_F(DataGeneratorTest, OptionsOutOfRangeAreRefused) {
  const auto code = [&](auto change) {
    ClickDataOptions options = Small("a", 1);
    change(options);
    return Generate(options).code();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](ClickDataOptions& o) { o.train = 0; }), invalid);
  EXPECT_EQ(code([](ClickDataOptions& o) { o.test = 1'000'000'000; }), invalid);
  EXPECT_EQ(code([](ClickDataOptions& o) { o.model.vocabulary = {}; }), invalid);
  EXPECT_EQ(code([](ClickDataOptions& o) { o.model.vocabulary = {10, 1}; }), invalid);
  EXPECT_EQ(code([](ClickDataOptions& o) {
              o.model.vocabulary = {4000000000, 4000000000};
            }),
            invalid);
  EXPECT_EQ(code([](ClickDataOptions& o) { o.model.dense = 5000; }), invalid);
  EXPECT_EQ(code([](ClickDataOptions& o) { o.model.zipf = -1; }), invalid);
  EXPECT_EQ(code([](ClickDataOptions& o) { o.model.zipf = std::nan(""); }), invalid);
  EXPECT_EQ(code([](ClickDataOptions& o) { o.folder = ""; }), invalid);
  EXPECT_FALSE(std::filesystem::exists(base_ + "/a"));
}

}  // namespace
}  // namespace tessera::client
