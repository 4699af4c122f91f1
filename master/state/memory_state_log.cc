#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "master/state/state_log.h"

namespace tessera::master {
namespace {

class MemoryStateLog final : public StateLog {
 public:
  absl::Status Apply(const std::vector<Write>& batch) override {
    absl::MutexLock lock(&mu_);
    for (const Write& write : batch) {
      if (write.value.has_value()) {
        content_[write.key] = *write.value;
      } else {
        content_.erase(write.key);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(const std::string& key) override {
    absl::MutexLock lock(&mu_);
    auto it = content_.find(key);
    if (it == content_.end()) {
      return absl::NotFoundError(absl::StrCat("state log: no key ", key));
    }
    return it->second;
  }

  absl::StatusOr<std::map<std::string, std::string>> Scan(const std::string& prefix) override {
    absl::MutexLock lock(&mu_);
    std::map<std::string, std::string> found;
    for (auto it = content_.lower_bound(prefix);
         it != content_.end() && absl::StartsWith(it->first, prefix); ++it) {
      found.insert(*it);
    }
    return found;
  }

 private:
  absl::Mutex mu_;
  std::map<std::string, std::string> content_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<StateLog> NewMemoryStateLog() { return std::make_unique<MemoryStateLog>(); }

}  // namespace tessera::master
