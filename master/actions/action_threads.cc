#include "master/actions/action_threads.h"

#include <utility>

#include "common/process/no_thread.h"

namespace tessera::master {

absl::Status ActionThreads::Begin(std::shared_ptr<const Action> action) {
  std::vector<std::thread> ended;
  absl::Status begun;
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return absl::OkStatus();
    for (auto it = doing_.begin(); it != doing_.end();) {
      if (!it->second.done) {
        ++it;
        continue;
      }
      ended.push_back(std::move(it->second.thread));
      it = doing_.erase(it);
    }
    Doing& doing = doing_[action->id];
    doing.runner = std::make_unique<ActionRunner>(channels_, files_, checkpoint_root_, starts_);
    begun = OrNoThread("an action of the master", [&]() -> absl::Status {
      doing.thread = std::thread([this, runner = doing.runner.get(), action] {
        ActionResult result = runner->Run(*action);
        done_(action->id, std::move(result));
        absl::MutexLock done_lock(&mu_);
        doing_.at(action->id).done = true;
      });
      return absl::OkStatus();
    });
    if (!begun.ok()) doing_.erase(action->id);
  }
  for (std::thread& thread : ended) thread.join();
  return begun;
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
