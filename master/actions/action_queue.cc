#include "master/actions/action_queue.h"

namespace tessera::master {

void ActionQueue::Clear() {
  for (std::optional<Work>& work : waiting_) work.reset();
  drop_.reset();
  telling_.reset();
  pruning_.reset();
}

std::optional<Work> ActionQueue::Take(Lane lane, May may) {
  if (lane == Lane::kBackground && drop_.has_value()) {
    Begin(lane, Purpose::kDrop);
    return std::exchange(drop_, std::nullopt);
  }
  if (lane == Lane::kBackground && telling_.has_value()) {
    Begin(lane, Purpose::kTellCommitted);
    return std::exchange(telling_, std::nullopt);
  }
  if (lane == Lane::kBackground && may.prune && pruning_.has_value()) {
    Begin(lane, Purpose::kPrune);
    return std::exchange(pruning_, std::nullopt);
  }
  if (Wants<CopyPartitions>(lane) && !may.copy) return std::nullopt;
  Begin(lane, Wants<CopyPartitions>(lane) ? Purpose::kCopy : Purpose::kOther);
  return std::exchange(Waiting(lane), std::nullopt);
}

}  // namespace tessera::master
