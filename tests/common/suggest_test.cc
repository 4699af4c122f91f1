#include "common/suggest.h"

#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(SuggestTest, TheNearestNameIsFoundInSpiteOfSlips) {
  const std::vector<std::string> names = {"adam", "adagrad", "sgd", "ftrl", "batch_size"};
  EXPECT_EQ(NearestName("Adam", names), "adam");
  EXPECT_EQ(NearestName("adagad", names), "adagrad");
  EXPECT_EQ(NearestName("sdg", names), "sgd");
  EXPECT_EQ(NearestName("batchsize", names), "batch_size");
  EXPECT_EQ(NearestName("rmsprop", names), "");
  EXPECT_EQ(NearestName("x", names), "");
  EXPECT_EQ(NearestName("", names), "");
  EXPECT_EQ(NearestName(std::string(100000, 'a'), names), "");
}

TEST(SuggestTest, TheSentenceNamesTheNearestOrAllThatIsKnown) {
  EXPECT_EQ(SuggestName("adm", {"adam", "sgd"}), "did you mean \"adam\"?");
  EXPECT_EQ(SuggestName("zzz", {"adam", "sgd"}), "known are adam, sgd");
  EXPECT_EQ(SuggestName("zzz", {}), "there are none");
  EXPECT_EQ(SuggestName("zzz", std::vector<std::string>(11, "a")),
            "known are a, a, a, a, a, a, a, a, a, a, ...");
}

}  // namespace
}  // namespace tessera
