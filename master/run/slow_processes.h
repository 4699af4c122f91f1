#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tessera/v1/cluster.pb.h"

namespace tessera::master {

// Which ps and workers of a job keep the others waiting, from the paces in its workers' heartbeats.
// A process that is slow for a moment is not named. `now` is a time of the monotonic clock. Not
// thread-safe.
class SlowProcesses {
 public:
  // Figures cover so much time.
  static constexpr absl::Duration kWindow = absl::Seconds(4);
  // A process is named once it has been slow for so long: longer than kWindow, so that one long
  // call names nobody.
  static constexpr absl::Duration kNamedAfter = absl::Seconds(5);

  struct Process {
    std::string name;
    double seconds = 0;  // a call to the ps, or the worker's own part of a step
    bool slow = false;
  };

  void Heard(const std::string& worker, const v1::Pace& pace, absl::Duration now);
  // A line for each slow process.
  std::vector<std::string> Lines(absl::Duration now) const;
  // How many times as long as the others' (median) the worker's own part of a step takes; 0: not
  // known.
  double TimesTheOthers(const std::string& worker) const;
  // The processes that have figures; ps first.
  std::vector<Process> All(absl::Duration now) const;

 private:
  struct Sample {
    absl::Duration at;
    uint64_t count = 0;
    double seconds = 0;
  };
  // The figures of one process.
  struct Figures {
    std::deque<Sample> samples;
    double mean = 0;    // of the samples, in seconds; 0: none
    double others = 0;  // median of the others' means; 0: there are none
    bool is_slow = false;
    absl::Duration since;
  };
  using Group = std::map<std::string, Figures>;

  static void Add(Figures& figures, const Sample& sample);
  static void Forget(Group& group, absl::Duration now);
  static void Compare(Group& group);
  static void SetSlow(Figures& figures, bool is_slow, absl::Duration now);
  bool IsNamed(const Figures& figures, absl::Duration now) const;

  Group ps_;
  Group workers_;
  // The training time of all workers.
  struct Training {
    absl::Duration at;
    double seconds = 0;
    double ps_seconds = 0;  // the part spent pulling and pushing
  };
  std::deque<Training> training_;
  absl::Duration heard_;
};

}  // namespace tessera::master
