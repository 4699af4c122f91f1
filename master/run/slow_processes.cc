#include "master/run/slow_processes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::master {
namespace {

// A process is slow if it takes kTimes as long as the median of the others, and at least
// kLeastSeconds.
constexpr double kTimes = 4;
constexpr double kLeastSeconds = 0.05;
// A job's only ps is slow if its calls take at least so long, and so much of the workers' time.
constexpr double kLeastSecondsAlone = 0.1;
constexpr double kLeastShareAlone = 0.8;

std::string Ms(double seconds) {
  const double ms = 1000 * seconds;
  return ms < 10 ? absl::StrFormat("%.1f ms", ms) : absl::StrFormat("%.0f ms", ms);
}

}  // namespace

void SlowProcesses::Add(Figures& figures, const Sample& sample) {
  if (sample.count == 0 && sample.seconds == 0) return;
  if (figures.samples.empty() || figures.samples.back().count > 0) {
    return figures.samples.push_back(sample);
  }
  // Adds to a step that had begun by the last heartbeat.
  Sample& begun = figures.samples.back();
  begun = {sample.at, sample.count, begun.seconds + sample.seconds};
}

void SlowProcesses::Forget(Group& group, absl::Duration now) {
  for (auto it = group.begin(); it != group.end();) {
    std::deque<Sample>& samples = it->second.samples;
    while (!samples.empty() && now - samples.front().at >= kWindow) samples.pop_front();
    it = samples.empty() ? group.erase(it) : std::next(it);
  }
}

void SlowProcesses::Compare(Group& group) {
  for (auto& [name, figures] : group) {
    // The mean over samples, not over calls: thousands of earlier quick calls would hide for long
    // that calls have become slow and few.
    double sum = 0;
    double samples = 0;
    for (const Sample& sample : figures.samples) {
      if (sample.count == 0) continue;
      sum += sample.seconds / static_cast<double>(sample.count);
      samples += 1;
    }
    figures.mean = samples == 0 ? 0 : sum / samples;
  }
  std::vector<double> means;
  for (const auto& [name, figures] : group) {
    if (figures.mean > 0) means.push_back(figures.mean);
  }
  std::sort(means.begin(), means.end());
  for (auto& [name, figures] : group) {
    // The median of the means without the process's own.
    const size_t own = static_cast<size_t>(
        std::lower_bound(means.begin(), means.end(), figures.mean) - means.begin());
    const size_t others = means.size() - (figures.mean > 0 ? 1 : 0);
    const bool skips = figures.mean > 0 && own <= others / 2;
    figures.others = others == 0 ? 0 : means[others / 2 + (skips ? 1 : 0)];
  }
}

void SlowProcesses::SetSlow(Figures& figures, bool is_slow, absl::Duration now) {
  if (is_slow && !figures.is_slow) figures.since = now;
  figures.is_slow = is_slow;
}

void SlowProcesses::Heard(const std::string& worker, const v1::Pace& pace, absl::Duration now) {
  if (!(pace.seconds() > 0) && pace.calls().empty()) return;
  heard_ = now;
  for (Group* group : {&ps_, &workers_}) Forget(*group, now);
  for (const v1::PsCalls& calls : pace.calls()) {
    Add(ps_[calls.ps()], {now, calls.calls(), calls.seconds()});
  }
  Add(workers_[worker], {now, pace.steps(), pace.own_seconds()});
  training_.push_back({now, pace.seconds(), pace.ps_seconds()});
  while (now - training_.front().at >= kWindow) training_.pop_front();
  double seconds = 0;
  double ps_seconds = 0;
  for (const Training& training : training_) {
    seconds += training.seconds;
    ps_seconds += training.ps_seconds;
  }
  for (Group* group : {&ps_, &workers_}) {
    Compare(*group);
    for (auto& [name, figures] : *group) {
      const bool beside_others = figures.others > 0 && figures.mean >= kLeastSeconds &&
                                 figures.mean >= kTimes * figures.others;
      const bool alone = group == &ps_ && group->size() == 1 &&
                         figures.mean >= kLeastSecondsAlone &&
                         ps_seconds >= kLeastShareAlone * seconds;
      SetSlow(figures, beside_others || alone, now);
    }
  }
}

double SlowProcesses::TimesTheOthers(const std::string& worker) const {
  const auto found = workers_.find(worker);
  if (found == workers_.end() || found->second.others == 0) return 0;
  return found->second.mean / found->second.others;
}

bool SlowProcesses::IsNamed(const Figures& figures, absl::Duration now) const {
  return figures.is_slow && now - figures.since >= kNamedAfter && now - heard_ < 2 * kWindow;
}

std::vector<std::string> SlowProcesses::Lines(absl::Duration now) const {
  std::vector<std::string> lines;
  const auto add = [&](const Group& group, absl::string_view what, absl::string_view others) {
    for (const auto& [name, figures] : group) {
      if (!IsNamed(figures, now)) continue;
      lines.push_back(absl::StrCat(
          name, " is slow: ", what, " ", Ms(figures.mean), ", ",
          figures.others > 0 ? absl::StrCat(others, " ", Ms(figures.others), " (median), ")
                             : "most of the workers' time, ",
          absl::StrFormat("for %.0f s", absl::ToDoubleSeconds(now - figures.since))));
    }
  };
  add(ps_, "calls take", "those to the others");
  add(workers_, "its own part of a step takes", "that of the others");
  return lines;
}

std::vector<SlowProcesses::Process> SlowProcesses::All(absl::Duration now) const {
  std::vector<Process> all;
  if (now - heard_ >= 2 * kWindow) return all;
  for (const Group* group : {&ps_, &workers_}) {
    for (const auto& [name, figures] : *group) {
      if (figures.mean > 0) all.push_back({name, figures.mean, IsNamed(figures, now)});
    }
  }
  return all;
}

}  // namespace tessera::master
