#include <deque>
#include <utility>

#include "master/plan/plan_parts.h"

namespace tessera::master {
namespace {

class SyncPlan final : public TrainingPlan {
 public:
  SyncPlan(const PlanOptions& options, std::vector<v1::FileRecords> files,
           const WindowShapes& shapes, const v1::Position& start, const v1::PlanState* state)
      : options_(options),
        cache_(std::move(files), shapes),
        size_(options),
        step_(start.step()),
        samples_(start.samples()),
        next_(options.workers, 0),
        done_(options.workers, 0) {
    tip_.epoch = start.epoch();
    tip_.step = start.step();
    tip_.window = start.next_window();
    if (start.open_size() > 0) {
      tip_.window = start.open(0).window();
      tip_.batch = start.open(0).next_batch();
    }
    total_steps_ = TotalSteps();
    EnterNextWindow();
    if (IsFinished(options_, tip_.epoch, tip_.step)) due_.finished = true;
    if (state != nullptr) Restore(*state);
  }

  std::optional<v1::Train> Next(Rank rank) override {
    const uint64_t next = next_[rank.value()];
    if (next == first_ + units_.size()) {
      if (IsAny(due_)) return std::nullopt;
      Extend();
    }
    next_[rank.value()] = next + 1;
    return Unit(rank, units_[next - first_]);
  }

  void Done(Rank rank, const v1::UnitResult& result) override {
    const Cut& unit = units_[done_[rank.value()] - first_];
    done_[rank.value()] += 1;
    samples_ += result.samples();
    size_.Measured(unit.end - unit.begin.batch, result.train_seconds());
    const uint64_t all = *std::min_element(done_.begin(), done_.end());
    for (; first_ < all; ++first_) {
      step_ = units_.front().begin.step + (units_.front().end - units_.front().begin.batch);
      units_.pop_front();
    }
  }

  void RequestBarrier() override { due_.requested = true; }
  void RequestBarrierBetweenWindows() override {
    between_windows_ = true;
    if (tip_.batch == 0) due_.requested = true;
  }
  bool BarrierDue() const override { return IsAny(due_); }
  bool AtBarrier() const override { return IsAny(due_) && units_.empty(); }
  Due due() const override { return due_; }
  void Pass() override {
    due_ = Due();
    if (tip_.batch == 0) between_windows_ = false;
  }
  uint64_t total_steps() const override { return total_steps_; }

  v1::PlanState Save() const override {
    v1::PlanState state;
    state.set_step(step_);
    state.set_samples(samples_);
    *state.mutable_due() = ToProto(due_);
    v1::SyncPlanState& sync = *state.mutable_sync();
    *sync.mutable_tip() = SavedPlace(tip_);
    for (const Cut& unit : units_) {
      v1::PlanUnit& out = *sync.add_units();
      *out.mutable_begin() = SavedPlace(unit.begin);
      out.set_end(unit.end);
    }
    sync.set_first(first_);
    sync.set_between_windows(between_windows_);
    *sync.mutable_next() = {next_.begin(), next_.end()};
    *sync.mutable_done() = {done_.begin(), done_.end()};
    return state;
  }

  uint64_t epoch() const override {
    return units_.empty() ? tip_.epoch : units_.front().begin.epoch;
  }

  v1::Position position() const override {
    v1::Position position;
    position.set_epoch(static_cast<uint32_t>(tip_.epoch));
    position.set_next_window(tip_.window + (tip_.batch > 0 ? 1 : 0));
    if (tip_.batch > 0) {
      v1::OpenWindow* open = position.add_open();
      open->set_window(tip_.window);
      open->set_next_batch(tip_.batch);
    }
    position.set_step(step_);
    position.set_next_push(step_);
    position.set_samples(samples_);
    cache_.shapes().Describe(tip_.epoch, position);
    return position;
  }

 private:
  // A place in the order of training, before the batch that it names.
  struct Place {
    uint64_t epoch = 0;
    uint64_t window = 0;
    uint64_t batch = 0;
    uint64_t step = 0;
  };
  // A unit, the same for all ranks: batches [begin.batch, end) of its window.
  struct Cut {
    Place begin;
    uint64_t end = 0;
  };

  static v1::PlanPlace SavedPlace(const Place& place) {
    v1::PlanPlace out;
    out.set_epoch(place.epoch);
    out.set_window(place.window);
    out.set_batch(place.batch);
    out.set_step(place.step);
    return out;
  }
  static Place PlaceOf(const v1::PlanPlace& place) {
    return {place.epoch(), place.window(), place.batch(), place.step()};
  }

  void Restore(const v1::PlanState& state) {
    const v1::SyncPlanState& sync = state.sync();
    step_ = state.step();
    samples_ = state.samples();
    due_ = FromProto(state.due());
    tip_ = PlaceOf(sync.tip());
    for (const v1::PlanUnit& unit : sync.units()) {
      units_.push_back({PlaceOf(unit.begin()), unit.end()});
    }
    first_ = sync.first();
    between_windows_ = sync.between_windows();
    next_ = {sync.next().begin(), sync.next().end()};
    done_ = {sync.done().begin(), sync.done().end()};
  }

  uint64_t Steps(const JoinedRanges& window) const {
    return SyncSteps(window.records(), options_.batch_size, options_.workers);
  }

  uint64_t TotalSteps() {
    if (options_.epochs == 0) return options_.steps;
    uint64_t steps = tip_.step;
    if (tip_.epoch < options_.epochs) {
      const Windows& windows = cache_.Of(tip_.epoch);
      for (uint64_t w = tip_.window; w < windows.size(); ++w) steps += Steps(windows[w]);
      steps -= tip_.batch;
    }
    if (const uint64_t later = tip_.epoch + 1; later < options_.epochs) {
      // Another epoch of the same shape has about as many steps.
      uint64_t each = 0;
      const bool alike = cache_.shapes().Of(tip_.epoch).begin == 0;
      for (const auto& window : cache_.Of(alike ? tip_.epoch : later)) each += Steps(window);
      steps += each * (options_.epochs - later);
    }
    return options_.steps > 0 ? std::min(steps, options_.steps) : steps;
  }

  // Cuts one more unit at the tip.
  void Extend() {
    const uint64_t steps = Steps(cache_.Of(tip_.epoch)[tip_.window]);
    const uint64_t to_barrier = NextBarrierStep(options_, tip_.step) - tip_.step;
    const uint64_t batches = std::min({size_.batches(), steps - tip_.batch, to_barrier});
    units_.push_back({tip_, tip_.batch + batches});
    tip_.batch += batches;
    tip_.step += batches;
    due_ = due_ | DueAtStep(options_, tip_.step);
    if (EnterNextWindow()) due_ = due_ | DueAtEpochEnd(options_, tip_.epoch);
    if (between_windows_ && tip_.batch == 0) due_.requested = true;
  }

  // Moves a tip that stands at the end of its window or epoch to the start of the next one. True:
  // the epoch has ended.
  bool EnterNextWindow() {
    const Windows& windows = cache_.Of(tip_.epoch);
    if (tip_.window < windows.size()) {
      if (tip_.batch < Steps(windows[tip_.window])) return false;
      tip_.batch = 0;
      tip_.window += 1;
    }
    if (tip_.window < windows.size()) return false;
    tip_.window = 0;
    tip_.epoch += 1;
    return true;
  }

  std::vector<v1::RecordRange> RankRanges(const JoinedRanges& window, Rank rank) {
    const Part part = EvenPart(window.records(), rank.value(), options_.workers);
    return window.Slice(part.begin, part.end);
  }

  v1::Train Unit(Rank rank, const Cut& cut) {
    const JoinedRanges& window = cache_.Of(cut.begin.epoch)[cut.begin.window];
    v1::Train unit;
    unit.set_epoch(static_cast<uint32_t>(cut.begin.epoch));
    unit.set_window(cut.begin.window);
    for (v1::RecordRange& range : RankRanges(window, rank)) *unit.add_ranges() = std::move(range);
    unit.set_batch_begin(cut.begin.batch);
    unit.set_batch_end(cut.end);
    unit.set_batch_size(static_cast<uint32_t>(
        EvenPart(options_.batch_size, rank.value(), options_.workers).size()));
    unit.set_first_step(cut.begin.step);
    unit.set_schedule_step(cut.begin.step);
    unit.set_window_records(window.records());
    const bool last = cut.begin.window + 1 == cache_.Of(cut.begin.epoch).size();
    if (!last || options_.epochs == 0 || cut.begin.epoch + 1 < options_.epochs) {
      const Windows& after = cache_.Of(cut.begin.epoch + (last ? 1 : 0));
      const auto ahead = RankRanges(after[last ? 0 : cut.begin.window + 1], rank);
      for (const v1::RecordRange& range : ahead) *unit.add_next_ranges() = range;
    }
    return unit;
  }

  const PlanOptions options_;
  EpochWindowCache cache_;
  UnitSize size_;
  uint64_t total_steps_ = 0;
  Place tip_;              // where the next unit will begin
  std::deque<Cut> units_;  // units that not all ranks have done
  uint64_t first_ = 0;     // number of units_.front()
  uint64_t step_;          // done by all ranks
  uint64_t samples_;
  // By rank: the number of its next unit, and how many it has done.
  std::vector<uint64_t> next_;
  std::vector<uint64_t> done_;
  Due due_;
  bool between_windows_ = false;  // a barrier is wanted as soon as no window is open
};

}  // namespace

std::unique_ptr<TrainingPlan> NewSyncPlan(const PlanOptions& options,
                                          std::vector<v1::FileRecords> files,
                                          const WindowShapes& shapes, const v1::Position& start,
                                          const v1::PlanState* state) {
  return std::make_unique<SyncPlan>(options, std::move(files), shapes, start, state);
}

}  // namespace tessera::master
