#pragma once

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/random.h"

namespace tessera {

// Users with histories of items of ten kinds, and an item shown to each: a user clicks more often
// on a kind that lies in the history, the more so the more often it does, and on odd items, and
// buys some of what was clicked. "kind" of seven classes is a function of the item. Deterministic.
// Writes train.csv and test.csv with the header click,buy,kind,stars,weight,user,item,history.
inline void WriteBehaviourData(const std::string& folder, int train, int test) {
  constexpr int kKinds = 10, kItems = 200;
  uint64_t draw = 0;
  const auto uniform = [&draw] { return RandomUniform(20260, draw++); };
  const auto item = [&](int kind) {
    return kind + kKinds * static_cast<int>(uniform() * (kItems / kKinds));
  };
  const auto any_kind = [&] { return static_cast<int>(uniform() * kKinds); };
  for (const auto& [name, rows] : {std::pair("train.csv", train), std::pair("test.csv", test)}) {
    std::ofstream file(folder + "/" + name);
    file << "click,buy,kind,stars,weight,user,item,history\n";
    for (int i = 0; i < rows; ++i) {
      const int favourites[] = {any_kind(), any_kind()};
      std::vector<int> history(static_cast<size_t>(uniform() * 9));
      for (int& h : history) h = item(favourites[uniform() < 0.5f ? 0 : 1]);
      const int shown = item(uniform() < 0.5f ? favourites[0] : any_kind());
      int matches = 0;
      for (const int h : history) matches += h % kKinds == shown % kKinds;
      const bool click = uniform() < 1 / (1 + std::exp(2.0f - 1.2f * matches - 1.5f * (shown % 2)));
      const bool buy = click && uniform() < (shown % 3 == 0 ? 0.8f : 0.2f);
      file << absl::StrCat(click ? 1 : 0, ",", buy ? 1 : 0, ",", shown % 7, ",",
                           (click ? 1 : 0) + (buy ? 1 : 0), ",", click ? "2" : "0.5", ",", i / 10,
                           ",", shown, ",", absl::StrJoin(history, "|"), "\n");
    }
  }
}

}  // namespace tessera
