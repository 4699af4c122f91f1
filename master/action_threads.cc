#include "master/action_threads.h"

#include <utility>

namespace tessera::master {

void ActionThreads::Begin(Action action) {
  std::vector<std::thread> ended;
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return;
    for (auto it = doing_.begin(); it != doing_.end();) {
      if (!it->second.done) {
        ++it;
        continue;
      }
      ended.push_back(std::move(it->second.thread));
      it = doing_.erase(it);
    }
    const uint64_t id = action.id;
    Doing& doing = doing_[id];
    doing.runner = std::make_unique<ActionRunner>(channels_, files_, checkpoint_root_, starts_);
    doing.thread = std::thread([this, runner = doing.runner.get(), action = std::move(action)] {
      ActionResult result = runner->Run(action.work);
      done_(action.id, std::move(result));
      absl::MutexLock done_lock(&mu_);
      doing_.at(action.id).done = true;
    });
  }
  for (std::thread& thread : ended) thread.join();
}

void ActionThreads::Cancel(const std::vector<uint64_t>& ids) {
  absl::MutexLock lock(&mu_);
  for (const uint64_t id : ids) {
    if (const auto it = doing_.find(id); it != doing_.end()) it->second.runner->Cancel();
  }
}

std::map<uint64_t, std::vector<std::string>> ActionThreads::Unanswered() const {
  absl::MutexLock lock(&mu_);
  std::map<uint64_t, std::vector<std::string>> unanswered;
  for (const auto& [id, doing] : doing_) {
    if (!doing.done) unanswered[id] = doing.runner->Unanswered();
  }
  return unanswered;
}

void ActionThreads::Stop() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    for (auto& [id, doing] : doing_) {
      doing.runner->Cancel();
      if (doing.thread.joinable()) threads.push_back(std::move(doing.thread));
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tessera::master
