#include "client/behaviour_data.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/data_generator.h"
#include "common/random.h"
#include "common/status_macros.h"

namespace tessera::client {
namespace {

constexpr int kCategories = 10;
constexpr int kItems = 200;
constexpr int kMostBehaviours = 8;
constexpr char kHeader[] = "click,buy,stars,kind,weight,user,item,category,history,categories\n";

int CategoryOf(int item) { return item % kCategories; }

// The draws of one sample.
class Draws {
 public:
  explicit Draws(uint64_t key) : key_(key) {}
  double Uniform() { return RandomUniformDouble(key_, next_++); }
  int Below(int n) { return static_cast<int>(Uniform() * n); }
  int ItemOf(int category) { return category + kCategories * Below(kItems / kCategories); }

 private:
  const uint64_t key_;
  uint64_t next_ = 0;
};

void AppendSample(uint64_t seed, uint64_t split, uint64_t i, std::string* text) {
  Draws draws(StreamKey(RandomFor::kGenerator, seed, split, i, 1));
  const int likes[] = {draws.Below(kCategories), draws.Below(kCategories)};
  std::vector<int> history(static_cast<size_t>(draws.Below(kMostBehaviours + 1)));
  for (int& item : history) item = draws.ItemOf(likes[draws.Below(2)]);
  const int item = draws.ItemOf(draws.Below(2) == 0 ? likes[0] : draws.Below(kCategories));
  double logit = item % 2 == 1 ? -0.5 : -2;
  double recency = 2;
  for (auto it = history.rbegin(); it != history.rend(); ++it, recency *= 0.75) {
    if (CategoryOf(*it) == CategoryOf(item)) logit += recency;
  }
  const bool click = draws.Uniform() < 1 / (1 + std::exp(-logit));
  const bool buy = click && draws.Uniform() < (item % 3 == 0 ? 0.8 : 0.2);
  std::vector<int> categories;
  for (const int behaviour : history) categories.push_back(CategoryOf(behaviour));
  absl::StrAppend(text, click ? 1 : 0, ",", buy ? 1 : 0, ",", (click ? 1 : 0) + (buy ? 1 : 0), ",",
                  item % 7, ",", click ? "2" : "0.5", ",", i / 10, ",");
  absl::StrAppend(text, item, ",", CategoryOf(item), ",", absl::StrJoin(history, "|"), ",",
                  absl::StrJoin(categories, "|"), "\n");
}

absl::Status WriteSplit(const BehaviourDataOptions& options, FileSystem& fs, uint64_t split,
                        const std::string& path, uint64_t samples) {
  constexpr size_t kBlockBytes = 1 << 20;
  const std::string temporary = path + ".tmp";
  absl::Cleanup remove = [&] { fs.Remove(temporary).IgnoreError(); };
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, fs.Create(temporary));
  std::string text = kHeader;
  for (uint64_t i = 0; i < samples; ++i) {
    AppendSample(options.seed, split, i, &text);
    if (text.size() < kBlockBytes) continue;
    TESSERA_RETURN_IF_ERROR(file->Append(text));
    text.clear();
  }
  TESSERA_RETURN_IF_ERROR(file->Append(text));
  TESSERA_RETURN_IF_ERROR(file->Close());
  TESSERA_RETURN_IF_ERROR(fs.Rename(temporary, path));
  std::move(remove).Cancel();
  return absl::OkStatus();
}

}  // namespace

absl::Status GenerateBehaviourData(const BehaviourDataOptions& options, FileSystem& fs) {
  if (options.folder.empty()) return absl::InvalidArgumentError("no folder to write to");
  for (const uint64_t samples : {options.train, options.validation, options.test}) {
    if (samples <= kMostSamples) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a split of ", samples, " samples; expected at most ", kMostSamples));
  }
  if (options.train == 0) return absl::InvalidArgumentError("no samples to train on");
  TESSERA_RETURN_IF_ERROR(fs.CreateFolder(options.folder));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> there, fs.List(options.folder));
  const std::pair<const char*, uint64_t> splits[] = {{"train.csv", options.train},
                                                     {"validation.csv", options.validation},
                                                     {"test.csv", options.test}};
  for (const auto& [name, samples] : splits) {
    if (options.force || std::find(there.begin(), there.end(), name) == there.end()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        options.folder, "/", name, ": is there already; choose another folder, or say --force"));
  }
  uint64_t number = 0;
  for (const auto& [name, samples] : splits) {
    TESSERA_RETURN_IF_ERROR(
        WriteSplit(options, fs, number++, absl::StrCat(options.folder, "/", name), samples));
  }
  return absl::OkStatus();
}

}  // namespace tessera::client
