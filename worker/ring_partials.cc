#include "worker/ring_partials.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::worker {

void RingPartials::Begin(Seat seat) {
  End();
  absl::MutexLock lock(&mu_);
  seat_ = std::move(seat);
}

void RingPartials::End() {
  Due due;
  {
    absl::MutexLock lock(&mu_);
    seat_.reset();
    callers_.clear();
    first_step_ = taken_below_ = 0;
    step_.reset();
    offered_.clear();
    due = TakeAll(absl::UnavailableError("this worker's assignment has ended"));
  }
  Give(std::move(due));
}

void RingPartials::ResumeAt(uint64_t step) {
  Due due;
  {
    absl::MutexLock lock(&mu_);
    first_step_ = std::max(first_step_, step);
    taken_below_ = std::max(taken_below_, step);
    due = TakeDue();
  }
  Give(std::move(due));
}

void RingPartials::BeginStep(uint64_t step) {
  Due due;
  {
    absl::MutexLock lock(&mu_);
    if (step_ == step) return;
    offered_.clear();
    step_ = first_step_ = step;
    taken_below_ = std::max(taken_below_, step);
    due = TakeDue();
  }
  Give(std::move(due));
}

void RingPartials::Offer(uint32_t share, uint32_t piece, grpc::ByteBuffer sums) {
  Due due;
  {
    absl::MutexLock lock(&mu_);
    offered_[{share, piece}] = std::move(sums);
    due = TakeDue();
  }
  Give(std::move(due));
}

void RingPartials::SetTaken() {
  Due due;
  {
    absl::MutexLock lock(&mu_);
    if (step_.has_value()) taken_below_ = std::max(taken_below_, *step_ + 1);
    due = TakeDue();
  }
  Give(std::move(due));
}

uint64_t RingPartials::Take(const v1::TakePartialRequest& request, Answer answer) {
  return Call(request.header(), {.step = request.step(),
                                 .place = Place(request.share(), request.piece()),
                                 .answer = std::move(answer)});
}

uint64_t RingPartials::AwaitTaken(const v1::AwaitTakenRequest& request, Answer answer) {
  return Call(request.header(),
              {.step = request.step(), .place = std::nullopt, .answer = std::move(answer)});
}

uint64_t RingPartials::Call(const v1::RingHeader& header, Waiting call) {
  std::optional<absl::StatusOr<grpc::ByteBuffer>> found;
  {
    absl::MutexLock lock(&mu_);
    if (absl::Status wrong = Check(header, call.place.has_value()); !wrong.ok()) {
      found = std::move(wrong);
    } else if (found = Find(call.step, call.place); !found.has_value()) {
      if (waiting_.size() < kMaxWaiting) {
        waiting_.emplace(++last_call_, std::move(call));
        return last_call_;
      }
      found = absl::ResourceExhaustedError(
          absl::StrCat(kMaxWaiting, " calls wait here; call again later"));
    }
  }
  std::move(call.answer)(*std::move(found));
  return 0;
}

void RingPartials::Withdraw(uint64_t call) {
  Due due;
  {
    absl::MutexLock lock(&mu_);
    const auto found = waiting_.find(call);
    if (found == waiting_.end()) return;
    due.emplace_back(std::move(found->second.answer),
                     absl::CancelledError("the caller has hung up"));
    waiting_.erase(found);
  }
  Give(std::move(due));
}

absl::Status RingPartials::Check(const v1::RingHeader& header, bool from_behind) {
  if (!seat_.has_value() || seat_->job_id != header.job_id()) {
    return absl::UnavailableError(
        absl::StrCat("this worker has no rank of job ", header.job_id(), " now"));
  }
  if (header.generation() < seat_->generation) {
    return absl::AbortedError(absl::StrCat("generation ", header.generation(), " of job ",
                                           header.job_id(), " is over; this worker is of ",
                                           seat_->generation));
  }
  if (header.generation() > seat_->generation) {
    return absl::UnavailableError(absl::StrCat("this worker is of generation ", seat_->generation,
                                               ", and has not begun ", header.generation(),
                                               " yet"));
  }
  if (header.to_rank() != seat_->rank) {
    return absl::UnavailableError(
        absl::StrCat("this worker has rank ", seat_->rank, " now, expected ", header.to_rank()));
  }
  const uint32_t neighbour = (seat_->rank + (from_behind ? 1 : seat_->ranks - 1)) % seat_->ranks;
  if (header.rank() != neighbour) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", header.rank(), " calls rank ",
                                                   seat_->rank, " of ", seat_->ranks,
                                                   ", expected rank ", neighbour));
  }
  uint64_t& last = callers_[header.rank()];
  if (header.incarnation() < last) {
    return absl::AbortedError(absl::StrCat("rank ", header.rank(),
                                           " is another worker's: ", "incarnation ", last,
                                           " has called, and this is ", header.incarnation()));
  }
  last = header.incarnation();
  return absl::OkStatus();
}

std::optional<absl::StatusOr<grpc::ByteBuffer>> RingPartials::Find(
    uint64_t step, const std::optional<Place>& place) const {
  if (!place.has_value()) {
    if (step >= taken_below_) return std::nullopt;
    return grpc::ByteBuffer();
  }
  if (step < first_step_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", seat_->rank, " is at step ", first_step_, ", and the partial sums of step ", step,
        " went with the worker that had the rank before"));
  }
  if (step_ != step) return std::nullopt;
  const auto found = offered_.find(*place);
  if (found == offered_.end()) return std::nullopt;
  return found->second;
}

RingPartials::Due RingPartials::TakeDue() {
  Due due;
  if (!seat_.has_value()) return due;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    std::optional<absl::StatusOr<grpc::ByteBuffer>> found = Find(it->second.step, it->second.place);
    if (!found.has_value()) {
      ++it;
      continue;
    }
    due.emplace_back(std::move(it->second.answer), *std::move(found));
    it = waiting_.erase(it);
  }
  return due;
}

RingPartials::Due RingPartials::TakeAll(const absl::Status& status) {
  Due due;
  for (auto& [call, waiting] : waiting_) due.emplace_back(std::move(waiting.answer), status);
  waiting_.clear();
  return due;
}

void RingPartials::Give(Due due) {
  for (auto& [answer, result] : due) std::move(answer)(std::move(result));
}

}  // namespace tessera::worker
