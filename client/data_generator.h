#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/click_model.h"
#include "common/file_system.h"

namespace tessera::client {

// The most samples of a split, also for GenerateBehaviourData.
inline constexpr uint64_t kMostSamples = 100'000'000;

struct ClickDataOptions {
  std::string folder;  // created if missing
  uint64_t train = 200000;
  uint64_t validation = 25000;
  uint64_t test = 25000;
  ClickModelOptions model;
  // Overwrites files of the same names even if they are not the generator's.
  bool force = false;
};

// A split as truth.json describes it.
struct ClickSplit {
  std::string name;  // "train", "validation", "test"
  std::string path;  // of its file
  uint64_t samples = 0;
  uint64_t clicks = 0;
  // AUC and log loss of the true logits against the labels drawn from them, which no model can beat
  // but by chance. NaN if all labels are alike.
  double best_auc = 0;
  double best_logloss = 0;  // in nats
};

// Called now and then with the samples written so far, and in all.
using GeneratorProgress = std::function<void(uint64_t done, uint64_t total)>;

// Writes train.csv, validation.csv and test.csv, samples of a ClickModel with the header
// label,d0,..,c0,.. (dense values, then ids), and truth.json, which says how well any model could
// do. The same options give the same bytes. Returns the three splits.
//   INVALID_ARGUMENT    an option is out of its range
//   FAILED_PRECONDITION without `force`: a file of that name exists that the generator did not
//                       write, or that was changed since
absl::StatusOr<std::vector<ClickSplit>> GenerateClickData(const ClickDataOptions& options,
                                                          FileSystem& fs,
                                                          const GeneratorProgress& progress);

}  // namespace tessera::client
