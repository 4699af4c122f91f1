#include "worker/prediction_file.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

std::string Written(bool logits, const std::vector<float>& outputs,
                    const std::vector<float>& labels) {
  const std::string folder =
      absl::StrCat(testing::TempDir(), "/tessera-prediction-test-", ::getpid());
  const std::string path = folder + "/predictions.csv";
  auto file = PredictionFile::Create(PosixFileSystem(), path, logits);
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return "";
  EXPECT_TRUE((*file)->Append(outputs, labels).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE((*file)->Finish().ok());
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove_all(folder);
  return text.str();
}

TEST(PredictionFile, GivesProbabilitiesOfLogits) {
  // log(3): odds of 3 to 1.
  EXPECT_EQ(Written(true, {0, 200, -200}, {1, 1, 0}),
            absl::StrCat("label,prediction\n1,0.5\n1,1\n0,1.38389653e-87\n"));
}

TEST(PredictionFile, GivesTheOutputsOfARegressionAsTheyAre) {
  EXPECT_EQ(Written(false, {0.5f, -1234567.25f}, {3.25f, 1234567.5f}),
            "label,prediction\n3.25,0.5\n1234567.5,-1234567.25\n");
}

}  // namespace
}  // namespace tessera::worker
