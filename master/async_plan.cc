#include <utility>

#include "master/plan_parts.h"

namespace tessera::master {
namespace {

class AsyncPlan final : public TrainingPlan {
 public:
  AsyncPlan(const PlanOptions& options, std::vector<v1::FileRecords> files,
            const WindowShapes& shapes, const v1::Position& start, const v1::PlanState* state)
      : options_(options),
        cache_(std::move(files), shapes),
        size_(options),
        ranks_(options.workers),
        epoch_(start.epoch()),
        next_window_(start.next_window()),
        handed_out_(start.step()),
        step_(start.step()),
        samples_(start.samples()) {
    for (const v1::OpenWindow& open : start.open()) lost_.push_back(OpenOf(open));
    total_steps_ = TotalSteps();
    EndEpochIfDone();
    due_ = Due();
    if (IsFinished(options_, epoch_, step_)) due_.finished = true;
    if (state != nullptr) Restore(*state);
  }

  std::optional<v1::Train> Next(Rank rank) override {
    if (IsAny(due_)) return std::nullopt;
    Ranked& r = ranks_[rank.value()];
    if (!r.window.has_value() && !Take(r)) return std::nullopt;
    const uint64_t to_barrier = NextBarrierStep(options_, handed_out_) - handed_out_;
    r.batches =
        std::min({size_.batches(), Batches(r.window->window) - r.window->next_batch, to_barrier});
    v1::Train unit = Unit(r);
    r.pushes += r.batches;
    handed_out_ += r.batches;
    due_ = due_ | DueAtStep(options_, handed_out_);
    return unit;
  }

  void Done(Rank rank, const v1::UnitResult& result) override {
    Ranked& r = ranks_[rank.value()];
    step_ += r.batches;
    samples_ += result.samples();
    size_.Measured(r.batches, result.train_seconds());
    r.window->next_batch += std::exchange(r.batches, 0);
    if (r.window->next_batch == Batches(r.window->window)) r.window.reset();
    EndEpochIfDone();
  }

  void RequestBarrier() override { due_.requested = true; }
  bool BarrierDue() const override { return IsAny(due_); }
  bool AtBarrier() const override {
    return IsAny(due_) && std::none_of(ranks_.begin(), ranks_.end(),
                                       [](const Ranked& r) { return r.batches > 0; });
  }
  Due due() const override { return due_; }
  void Pass() override { due_ = Due(); }
  uint64_t total_steps() const override { return total_steps_; }

  v1::PlanState Save() const override {
    v1::PlanState state;
    state.set_step(step_);
    state.set_samples(samples_);
    *state.mutable_due() = ToProto(due_);
    v1::AsyncPlanState& async = *state.mutable_async();
    async.set_epoch(epoch_);
    async.set_next_window(next_window_);
    async.set_handed_out(handed_out_);
    for (const Open& window : lost_) *async.add_lost() = SavedOpen(window);
    for (const Ranked& r : ranks_) {
      v1::AsyncPlanRank& out = *async.add_ranks();
      if (r.window.has_value()) *out.mutable_window() = SavedOpen(*r.window);
      out.set_batches(r.batches);
      out.set_pushes(r.pushes);
    }
    return state;
  }

  v1::Position position() const override {
    v1::Position position;
    position.set_epoch(static_cast<uint32_t>(epoch_));
    position.set_next_window(next_window_);
    std::vector<Open> open = lost_;
    for (const Ranked& r : ranks_) {
      if (r.window.has_value()) open.push_back(*r.window);
    }
    std::sort(open.begin(), open.end(),
              [](const Open& a, const Open& b) { return a.window < b.window; });
    for (const Open& window : open) *position.add_open() = SavedOpen(window);
    position.set_step(step_);
    position.set_samples(samples_);
    cache_.shapes().Describe(epoch_, position);
    return position;
  }

 private:
  struct Open {
    uint64_t window = 0;
    uint64_t next_batch = 0;  // done below
  };
  struct Ranked {
    std::optional<Open> window;
    uint64_t batches = 0;  // of the unit that it has; 0: none
    uint64_t pushes = 0;   // of this generation
  };

  static Open OpenOf(const v1::OpenWindow& window) {
    return {window.window(), window.next_batch()};
  }
  static v1::OpenWindow SavedOpen(const Open& window) {
    v1::OpenWindow out;
    out.set_window(window.window);
    out.set_next_batch(window.next_batch);
    return out;
  }

  void Restore(const v1::PlanState& state) {
    const v1::AsyncPlanState& async = state.async();
    step_ = state.step();
    samples_ = state.samples();
    due_ = FromProto(state.due());
    epoch_ = async.epoch();
    next_window_ = async.next_window();
    handed_out_ = async.handed_out();
    lost_.clear();
    for (const v1::OpenWindow& open : async.lost()) lost_.push_back(OpenOf(open));
    for (int r = 0; r < async.ranks_size(); ++r) {
      const v1::AsyncPlanRank& in = async.ranks(r);
      Ranked& out = ranks_[static_cast<size_t>(r)];
      if (in.has_window()) out.window = OpenOf(in.window());
      out.batches = in.batches();
      out.pushes = in.pushes();
    }
  }

  uint64_t Batches(uint64_t window) {
    const uint64_t records = CountRecords(cache_.Of(epoch_)[window]);
    return (records + options_.batch_size - 1) / options_.batch_size;
  }

  uint64_t TotalSteps() {
    if (options_.epochs == 0) return options_.steps;
    uint64_t steps = 0;
    for (uint64_t w = 0; w < cache_.Of(epoch_).size(); ++w) steps += Batches(w);
    const uint64_t left = options_.epochs > epoch_ ? options_.epochs - epoch_ : 0;
    steps *= left;
    if (left > 0) {
      for (uint64_t w = 0; w < next_window_ && w < cache_.Of(epoch_).size(); ++w) {
        steps -= Batches(w);
      }
      for (const Open& open : lost_) steps += Batches(open.window) - open.next_batch;
    }
    steps += step_;
    return options_.steps > 0 ? std::min(steps, options_.steps) : steps;
  }

  // A window for a rank without one: those that a position left open first.
  bool Take(Ranked& r) {
    if (!lost_.empty()) {
      r.window = lost_.front();
      lost_.erase(lost_.begin());
      return true;
    }
    if (next_window_ >= cache_.Of(epoch_).size()) return false;
    r.window = Open{next_window_++, 0};
    return true;
  }

  void EndEpochIfDone() {
    const bool open = std::any_of(ranks_.begin(), ranks_.end(),
                                  [](const Ranked& r) { return r.window.has_value(); });
    if (open || !lost_.empty() || next_window_ < cache_.Of(epoch_).size()) return;
    epoch_ += 1;
    next_window_ = 0;
    due_ = due_ | DueAtEpochEnd(options_, epoch_);
  }

  v1::Train Unit(const Ranked& r) {
    const Windows& windows = cache_.Of(epoch_);
    v1::Train unit;
    unit.set_epoch(static_cast<uint32_t>(epoch_));
    unit.set_window(r.window->window);
    for (const v1::RecordRange& range : windows[r.window->window]) *unit.add_ranges() = range;
    unit.set_batch_begin(r.window->next_batch);
    unit.set_batch_end(r.window->next_batch + r.batches);
    unit.set_batch_size(options_.batch_size);
    unit.set_first_step(r.pushes);
    unit.set_schedule_step(handed_out_);
    if (next_window_ < windows.size()) {
      for (const v1::RecordRange& range : windows[next_window_]) *unit.add_next_ranges() = range;
    }
    return unit;
  }

  const PlanOptions options_;
  EpochWindowCache cache_;
  UnitSize size_;
  uint64_t total_steps_ = 0;
  std::vector<Ranked> ranks_;
  std::vector<Open> lost_;
  uint64_t epoch_;
  uint64_t next_window_;
  uint64_t handed_out_;  // steps
  uint64_t step_;        // done
  uint64_t samples_;
  Due due_;
};

}  // namespace

std::unique_ptr<TrainingPlan> NewAsyncPlan(const PlanOptions& options,
                                           std::vector<v1::FileRecords> files,
                                           const WindowShapes& shapes, const v1::Position& start,
                                           const v1::PlanState* state) {
  return std::make_unique<AsyncPlan>(options, std::move(files), shapes, start, state);
}

}  // namespace tessera::master
