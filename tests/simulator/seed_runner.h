#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulator/simulation.h"

namespace tessera::simulator {

// Simulates seeds in processes of their own, several at a time. One that dies of a seed, or is
// killed since the seed does not end, is that seed's outcome, and another takes its place. Not
// thread-safe; the process that makes it has no threads yet, since it forks.
class SeedRunner {
 public:
  using Simulate = std::function<Outcome(uint64_t seed)>;

  // A seed that takes longer than `limit` does not end: most take less than a second.
  SeedRunner(int processes, Simulate simulate, absl::Duration limit = absl::Minutes(5));
  ~SeedRunner();  // ends them
  SeedRunner(const SeedRunner&) = delete;
  SeedRunner& operator=(const SeedRunner&) = delete;

  // Takes seeds from `next` until it has none, and tells `done` of each as it ends, in any order.
  // Of an outcome only the numbers and the status arrive.
  void Run(const std::function<std::optional<uint64_t>()>& next,
           const std::function<void(uint64_t seed, const Outcome&)>& done);

 private:
  struct Process {
    pid_t pid = -1;
    int to = -1;    // seeds
    int from = -1;  // outcomes
    std::optional<uint64_t> seed;
    absl::Time begin;  // of the seed
    std::string text;  // of its outcome, so far
  };

  void Start(Process& process);
  static std::string End(Process& process);  // how it ended
  [[noreturn]] void Serve(int from, int to) const;

  const Simulate simulate_;
  const absl::Duration limit_;
  std::vector<Process> processes_;
};

}  // namespace tessera::simulator
