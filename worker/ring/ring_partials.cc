#include "worker/ring/ring_partials.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/wire/message_bytes.h"

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
    resumed_ = false;
    pushed_end_ = incarnation_before_ = 0;
    most_summed_ = 0;
    due = TakeAll(absl::UnavailableError("this worker's assignment has ended"));
  }
  Give(std::move(due));
}

void RingPartials::ResumeAt(uint64_t step, uint64_t pushed_end) {
  Due due;
  {
    absl::MutexLock lock(&mu_);
    resumed_ = true;
    pushed_end_ = std::max(pushed_end_, pushed_end);
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
    most_summed_ = 0;
    step_ = first_step_ = step;
    taken_below_ = std::max(taken_below_, step);
    due = TakeDue();
  }
  Give(std::move(due));
}

absl::Status RingPartials::MarkTaken(uint32_t summed, uint64_t incarnation) {
  absl::MutexLock lock(&mu_);
  if (incarnation < incarnation_before_) {
    return absl::UnavailableError(absl::StrCat("partial sums are from incarnation ", incarnation,
                                               ", and incarnation ", incarnation_before_,
                                               " has its rank now"));
  }
  most_summed_ = std::max(most_summed_, summed);
  return absl::OkStatus();
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

uint64_t RingPartials::TakePartial(const v1::TakePartialRequest& request, Answer answer) {
  return Call(request.header(), {.method = Method::kTakePartial,
                                 .step = request.step(),
                                 .place = Place(request.share(), request.piece()),
                                 .answer = std::move(answer)});
}

uint64_t RingPartials::AwaitTaken(const v1::AwaitTakenRequest& request, Answer answer) {
  return Call(request.header(),
              {.method = Method::kAwaitTaken, .step = request.step(), .answer = std::move(answer)});
}

uint64_t RingPartials::TraceGradients(const v1::TraceGradientsRequest& request, Answer answer) {
  return Call(request.header(), {.method = Method::kTraceGradients,
                                 .step = request.step(),
                                 .rank = request.header().rank(),
                                 .incarnation_before = request.incarnation_before(),
                                 .answer = std::move(answer)});
}

uint64_t RingPartials::Call(const v1::RingHeader& header, Waiting call) {
  std::optional<absl::StatusOr<grpc::ByteBuffer>> found;
  {
    absl::MutexLock lock(&mu_);
    if (absl::Status wrong = Check(header, call.method); !wrong.ok()) {
      found = std::move(wrong);
    } else {
      incarnation_before_ = std::max(incarnation_before_, call.incarnation_before);
      found = Find(call);
    }
    if (!found.has_value()) {
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

absl::Status RingPartials::Check(const v1::RingHeader& header, Method method) {
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
  TESSERA_RETURN_IF_ERROR(CheckCaller(header.rank(), method));
  uint64_t& last = callers_[header.rank()];
  if (header.incarnation() < last) {
    return absl::AbortedError(
        absl::StrCat("rank ", header.rank(), " is another worker's: ", "incarnation ", last,
                     " has called here, and this call is from incarnation ", header.incarnation()));
  }
  last = header.incarnation();
  return absl::OkStatus();
}

absl::Status RingPartials::CheckCaller(uint32_t rank, Method method) const {
  std::string expected = "another rank";
  if (method == Method::kTraceGradients) {
    if (rank != seat_->rank && rank < seat_->ranks) return absl::OkStatus();
  } else {
    const bool from_behind = method == Method::kTakePartial;
    const uint32_t neighbour = (seat_->rank + (from_behind ? 1 : seat_->ranks - 1)) % seat_->ranks;
    if (rank == neighbour) return absl::OkStatus();
    expected = absl::StrCat("rank ", neighbour);
  }
  return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " calls rank ", seat_->rank, " of ",
                                                 seat_->ranks, ", expected ", expected));
}

std::optional<absl::StatusOr<grpc::ByteBuffer>> RingPartials::Find(const Waiting& call) const {
  if (call.method == Method::kAwaitTaken) {
    if (call.step >= taken_below_) return std::nullopt;
    return grpc::ByteBuffer();
  }
  if (call.method == Method::kTraceGradients) {
    if (!resumed_) return std::nullopt;
    v1::TraceGradientsResponse response;
    response.set_taken(MayHave(call.rank, call.step));
    response.set_incarnation(seat_->incarnation);
    return wire::ToBytes(response);
  }
  if (call.step < first_step_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", seat_->rank, " is at step ", first_step_, ", and the partial sums of step ",
        call.step, " were lost with the worker that had the rank before"));
  }
  if (step_ != call.step) return std::nullopt;
  const auto found = offered_.find(call.place);
  if (found == offered_.end()) return std::nullopt;
  return found->second;
}

bool RingPartials::MayHave(uint32_t rank, uint64_t step) const {
  if (step < pushed_end_) return true;
  if (!step_.has_value() || *step_ < step) return false;
  // If its own step is a later one, this rank does not know any more what it took: yes.
  const uint32_t hops = (seat_->rank + seat_->ranks - rank) % seat_->ranks;
  return *step_ > step || most_summed_ >= hops;
}

RingPartials::Due RingPartials::TakeDue() {
  Due due;
  if (!seat_.has_value()) return due;
  due.reserve(waiting_.size());  // now: no call moved there is lost if memory runs out
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    std::optional<absl::StatusOr<grpc::ByteBuffer>> found = Find(it->second);
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
  due.reserve(waiting_.size());
  for (auto& [call, waiting] : waiting_) due.emplace_back(std::move(waiting.answer), status);
  waiting_.clear();
  return due;
}

void RingPartials::Give(Due due) {
  for (auto& [answer, result] : due) {
    // If one answer throws (no memory), the others are given all the same, and this thread goes on.
    try {
      std::move(answer)(std::move(result));
    } catch (const std::exception& thrown) {
      SPDLOG_ERROR("a call for partial sums is left without an answer: {}", thrown.what());
    }
  }
}

}  // namespace tessera::worker
