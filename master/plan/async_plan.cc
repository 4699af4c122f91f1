#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "master/plan/plan_parts.h"

namespace tessera::master {
namespace {

class AsyncPlan final : public TrainingPlan {
 public:
  AsyncPlan(const PlanOptions& options, std::vector<v1::FileRecords> files,
            const WindowShapes& shapes, const v1::Position& start, const v1::PlanState* state)
      : options_(options),
        cache_(std::move(files), shapes),
        ranks_(options.workers, Ranked(options)),
        epoch_(start.epoch()),
        next_window_(start.next_window()),
        handed_out_(start.step()),
        step_(start.step()),
        samples_(start.samples()) {
    for (const v1::OpenWindow& open : start.open()) free_.push_back(PartOf(open));
    for (Ranked& r : ranks_) r.pushes = start.next_push();
    total_steps_ = TotalSteps();
    EndEpochIfDone();
    due_ = Due();
    if (IsFinished(options_, epoch_, step_)) due_.finished = true;
    if (state != nullptr) Restore(*state);
  }

  std::optional<v1::Train> Next(Rank rank) override {
    if (IsAny(due_)) return std::nullopt;
    Ranked& r = ranks_[rank.value()];
    if (!r.part.has_value() && !Take(r)) return std::nullopt;
    const uint64_t to_barrier = NextBarrierStep(options_, handed_out_) - handed_out_;
    r.batches = std::min({r.size.batches(), r.part->end - r.part->next, to_barrier});
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
    r.size.Measured(r.batches, result.train_seconds());
    r.part->next += std::exchange(r.batches, 0);
    if (r.part->next == r.part->end) r.part.reset();
    EndEpochIfDone();
  }

  void Yield(Rank rank) override {
    Ranked& r = ranks_[rank.value()];
    if (Rest(r) > 0) free_.push_back(Cut(r, Rest(r)));
  }

  void RequestBarrier() override { due_.requested = true; }
  bool BarrierDue() const override { return IsAny(due_); }
  bool AtBarrier() const override {
    return IsAny(due_) && std::none_of(ranks_.begin(), ranks_.end(),
                                       [](const Ranked& r) { return r.batches > 0; });
  }
  Due due() const override { return due_; }
  void Pass() override { due_ = Due(); }
  std::vector<uint64_t> pushes() const override {
    std::vector<uint64_t> pushes;
    for (const Ranked& r : ranks_) pushes.push_back(r.pushes);
    return pushes;
  }
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
    for (const Part& part : free_) *async.add_lost() = Saved(part);
    for (const Ranked& r : ranks_) {
      v1::AsyncPlanRank& out = *async.add_ranks();
      if (r.part.has_value()) *out.mutable_window() = Saved(*r.part);
      out.set_batches(r.batches);
      out.set_pushes(r.pushes);
    }
    return state;
  }

  v1::Position position() const override {
    v1::Position position;
    position.set_epoch(static_cast<uint32_t>(epoch_));
    position.set_next_window(next_window_);
    std::vector<Part> open = free_;
    for (const Ranked& r : ranks_) {
      if (r.part.has_value()) open.push_back(*r.part);
    }
    for (const Part& part : Joined(std::move(open))) *position.add_open() = Saved(part);
    position.set_step(step_);
    uint64_t next_push = 0;
    for (const Ranked& r : ranks_) next_push = std::max(next_push, r.pushes);
    position.set_next_push(next_push);
    position.set_samples(samples_);
    cache_.shapes().Describe(epoch_, position);
    return position;
  }

 private:
  // The rest of a window, or of a part of one: batches next to end - 1.
  struct Part {
    uint64_t window = 0;
    uint64_t next = 0;
    uint64_t end = 0;
    uint64_t batches = 0;  // of the whole window
  };
  struct Ranked {
    explicit Ranked(const PlanOptions& options) : size(options) {}

    std::optional<Part> part;
    uint64_t batches = 0;  // of its unit, the first ones of its part; 0: no unit
    uint64_t pushes = 0;   // number of the next push
    UnitSize size;         // by the rank's own speed
  };

  // A part of a window of the epoch under way.
  Part PartOf(const v1::OpenWindow& open) {
    Part part = WholeWindow(open.window());
    part.next = open.next_batch();
    if (open.end_batch() > 0) part.end = open.end_batch();
    return part;
  }
  static v1::OpenWindow Saved(const Part& part) {
    v1::OpenWindow out;
    out.set_window(part.window);
    out.set_next_batch(part.next);
    if (part.end < part.batches) out.set_end_batch(part.end);
    return out;
  }
  // The parts in the order of the epoch; parts that follow one another become one.
  static std::vector<Part> Joined(std::vector<Part> parts) {
    std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
      return std::tie(a.window, a.next) < std::tie(b.window, b.next);
    });
    std::vector<Part> joined;
    for (const Part& part : parts) {
      const bool follows =
          !joined.empty() && joined.back().window == part.window && joined.back().end == part.next;
      follows ? void(joined.back().end = part.end) : joined.push_back(part);
    }
    return joined;
  }

  void Restore(const v1::PlanState& state) {
    const v1::AsyncPlanState& async = state.async();
    step_ = state.step();
    samples_ = state.samples();
    due_ = FromProto(state.due());
    epoch_ = async.epoch();
    next_window_ = async.next_window();
    handed_out_ = async.handed_out();
    free_.clear();
    for (const v1::OpenWindow& open : async.lost()) free_.push_back(PartOf(open));
    for (int r = 0; r < async.ranks_size(); ++r) {
      const v1::AsyncPlanRank& in = async.ranks(r);
      Ranked& out = ranks_[static_cast<size_t>(r)];
      if (in.has_window()) out.part = PartOf(in.window());
      out.batches = in.batches();
      out.pushes = in.pushes();
    }
  }

  uint64_t Batches(uint64_t window) {
    const uint64_t records = cache_.Of(epoch_)[window].records();
    return (records + options_.batch_size - 1) / options_.batch_size;
  }

  Part WholeWindow(uint64_t window) {
    const uint64_t batches = Batches(window);
    return {.window = window, .next = 0, .end = batches, .batches = batches};
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
      for (const Part& part : free_) steps += part.end - part.next;
    }
    steps += step_;
    return options_.steps > 0 ? std::min(steps, options_.steps) : steps;
  }

  // Batches of the rank's part that it has not been handed.
  static uint64_t Rest(const Ranked& r) {
    return r.part.has_value() ? r.part->end - r.part->next - r.batches : 0;
  }

  // Takes the last `batches` of its rest from the rank.
  static Part Cut(Ranked& r, uint64_t batches) {
    Part cut = *r.part;
    cut.next = r.part->end -= batches;
    if (r.part->next == r.part->end) r.part.reset();
    return cut;
  }

  // Gives a part to a rank that has none: a free part of an open window, else the next window, else
  // at the end of the epoch some of the part that another rank would need longest for.
  bool Take(Ranked& r) {
    if (!free_.empty()) {
      r.part = free_.front();
      free_.erase(free_.begin());
      return true;
    }
    if (next_window_ < cache_.Of(epoch_).size()) {
      r.part = WholeWindow(next_window_++);
      return true;
    }
    const auto longest =
        std::max_element(ranks_.begin(), ranks_.end(), [](const Ranked& a, const Ranked& b) {
          return a.size.Units(Rest(a)) < b.size.Units(Rest(b));
        });
    // The rank that takes a part reads the window once more, so a rest of one unit is not divided.
    const uint64_t rest = Rest(*longest);
    if (rest == 0 || longest->size.Units(rest) <= 1) return false;
    // Divides the rest so that both ranks end together.
    const double own = r.size.Units(1);
    const double others = longest->size.Units(1);
    const double share = std::ceil(static_cast<double>(rest) * others / (own + others));
    r.part = Cut(*longest, std::clamp<uint64_t>(static_cast<uint64_t>(share), 1, rest));
    return true;
  }

  void EndEpochIfDone() {
    const bool open = std::any_of(ranks_.begin(), ranks_.end(),
                                  [](const Ranked& r) { return r.part.has_value(); });
    if (open || !free_.empty() || next_window_ < cache_.Of(epoch_).size()) return;
    epoch_ += 1;
    next_window_ = 0;
    due_ = due_ | DueAtEpochEnd(options_, epoch_);
  }

  v1::Train Unit(const Ranked& r) {
    const Windows& windows = cache_.Of(epoch_);
    v1::Train unit;
    unit.set_epoch(static_cast<uint32_t>(epoch_));
    unit.set_window(r.part->window);
    for (const v1::RecordRange& range : windows[r.part->window].ranges())
      *unit.add_ranges() = range;
    unit.set_batch_begin(r.part->next);
    unit.set_batch_end(r.part->next + r.batches);
    unit.set_batch_size(options_.batch_size);
    unit.set_first_step(r.pushes);
    unit.set_schedule_step(handed_out_);
    for (const v1::RecordRange& range : NextRanges(r, windows)) *unit.add_next_ranges() = range;
    return unit;
  }

  // Ranges of the window that the rank gets next if the ranks end their parts in the order of their
  // rests, so that each reads ahead another window. The rank of the next epoch's first window is
  // known only if there is one rank.
  std::vector<v1::RecordRange> NextRanges(const Ranked& r, const Windows& windows) {
    const auto ends_before = [&](const Ranked& other) {
      const double rest = other.size.Units(Rest(other)), own = r.size.Units(Rest(r));
      return &other != &r && (rest < own || (rest == own && &other < &r));
    };
    const uint64_t window = next_window_ + static_cast<uint64_t>(std::count_if(
                                               ranks_.begin(), ranks_.end(), ends_before));
    if (window < windows.size()) return windows[window].ranges();
    const bool is_last = options_.epochs > 0 && epoch_ + 1 >= options_.epochs;
    if (ranks_.size() > 1 || is_last) return {};
    return cache_.Of(epoch_ + 1)[0].ranges();
  }

  const PlanOptions options_;
  EpochWindowCache cache_;
  uint64_t total_steps_ = 0;
  std::vector<Ranked> ranks_;
  std::vector<Part> free_;  // parts of open windows that no rank has
  uint64_t epoch_;
  uint64_t next_window_;
  uint64_t handed_out_;  // steps handed out
  uint64_t step_;        // steps done
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
