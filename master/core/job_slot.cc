#include "master/core/job_slot.h"

#include <algorithm>
#include <utility>

namespace tessera::master {

std::unique_ptr<JobRun> JobSlot::End() {
  for (UnderWay& under_way : under_way_) under_way.of_run = false;
  return std::exchange(run_, nullptr);
}

std::optional<Work> JobSlot::TakeAction(Lane which, uint64_t id) {
  UnderWay& mine = lane(which);
  if (mine.id != 0) return std::nullopt;
  if (which == Lane::kForeground && !close_.empty()) {
    Work work = std::move(close_.front());
    close_.pop_front();
    mine = {.id = id, .of_run = false, .close = true};
    return work;
  }
  if (run_ == nullptr || run_->end().has_value()) return std::nullopt;
  // An earlier run may still be writing the checkpoint that this one is about to look for.
  for (const UnderWay& other : under_way_) {
    if (other.id != 0 && !other.of_run && !other.close) return std::nullopt;
  }
  std::optional<Work> work = run_->TakeAction(which);
  if (work.has_value()) mine = {.id = id, .of_run = true, .close = false};
  return work;
}

bool JobSlot::Has(uint64_t action) const {
  return action != 0 && std::any_of(under_way_.begin(), under_way_.end(),
                                    [action](const UnderWay& one) { return one.id == action; });
}

void JobSlot::ActionDone(uint64_t action, ActionResult result, const Now& now) {
  for (const Lane which : kAllLanes) {
    if (action != lane(which).id) continue;
    const bool of_run = std::exchange(lane(which), {}).of_run;
    if (of_run && run_ != nullptr) run_->ActionDone(which, std::move(result), now);
    if (close_when_open_.has_value() && run_ != nullptr && run_->opened()) {
      close_.push_back(*std::exchange(close_when_open_, std::nullopt));
    }
    return;
  }
}

void JobSlot::AddUnwanted(std::vector<uint64_t>& ids) const {
  for (const Lane which : kAllLanes) {
    const UnderWay& under_way = lane(which);
    if (under_way.id == 0 || under_way.close) continue;
    const bool wanted = run_ == nullptr || !run_->CopyUnwanted(which);
    if (!under_way.of_run || !wanted) ids.push_back(under_way.id);
  }
}

void JobSlot::SetUnanswered(uint64_t action, std::vector<std::string> ps) {
  for (const Lane which : kAllLanes) {
    if (run_ == nullptr || action != lane(which).id || !lane(which).of_run) continue;
    return run_->SetUnanswered(which, std::move(ps));
  }
}

bool JobSlot::IsDoneWith(uint64_t ps, uint64_t generation) const {
  if (run_ == nullptr) return IsIdle();
  const bool closes = !close_.empty() || std::any_of(under_way_.begin(), under_way_.end(),
                                                     [](const UnderWay& one) { return one.close; });
  if (closes || !run_->opened() || generation >= run_->generation()) return false;
  const std::vector<RunNode> copied_to = run_->CopiedTo();
  return !run_->Uses(ps) && !run_->Follows(ps) && !run_->MovesTo(ps) &&
         std::none_of(copied_to.begin(), copied_to.end(),
                      [ps](const RunNode& node) { return node.incarnation == ps; });
}

bool JobSlot::IsIdle() const {
  if (run_ != nullptr || !close_.empty()) return false;
  return std::all_of(under_way_.begin(), under_way_.end(),
                     [](const UnderWay& one) { return one.id == 0; });
}

}  // namespace tessera::master
