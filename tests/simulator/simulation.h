#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/simulator/counting_job.h"

namespace tessera::simulator {

// What one run is: a cluster, a job, and what happens to them. Drawn from the seed, so that a seed
// is all that it takes to repeat a run.
struct Scenario {
  uint64_t seed = 0;
  uint32_t ps = 1;       // of the job at its start
  uint32_t all_ps = 1;   // of the cluster
  uint32_t workers = 1;  // of the job
  uint32_t all_workers = 1;
  uint32_t jobs = 1;  // all alike, but for their priorities
  uint32_t partitions = 64;
  CountingJob::Options job;

  // Faults come until then, on average so far apart; zero: none of the kind.
  absl::Duration until;
  absl::Duration kills;
  absl::Duration stops;     // a process stands still
  absl::Duration leaves;    // a ps is told to stop
  absl::Duration cuts;      // of the way between two processes
  absl::Duration scales;    // a job gets other ps
  absl::Duration suspends;  // a job is suspended, and resumed a while later
  absl::Duration rescales;  // a job gets another number of workers
  absl::Duration full;      // the disk has no room for a while
  absl::Duration broken;    // no sync and no rename works for a while
  absl::Duration jumps;     // of the wall clock
  absl::Duration power;     // all die, and what was not synced is lost
  double lost = 0;          // of messages
  double repeated = 0;
  double slow = 0;
  Mistake mistake = Mistake::kNone;  // of the workers
  double danger = 0;                 // that a process dies at a call of its disk

  static Scenario Of(uint64_t seed);
  // That of the seed with several jobs, with copies where it has push logs, and with every kind of
  // fault, twice as often and for twice as long.
  static Scenario Harsh(uint64_t seed);
  // The same job without faults, on one ps.
  Scenario Undisturbed() const;
  std::string ToString() const;
};

struct Outcome {
  absl::Status status;  // what is wrong
  uint64_t digest = 0;  // of all that happened
  uint64_t events = 0;
  absl::Duration took;  // in virtual time
  uint64_t restarts = 0;
  uint64_t kills = 0;
  uint64_t set_aside = 0;                  // samples
  uint64_t lost_steps = 0;                 // of a ps, by partial recovery
  std::vector<CountingJob::Model> models;  // the jobs' results
};

// Runs it to its end. Not OK: a sample was lost or counted twice, a job failed, or they did not end
// within three minutes a job (nine with poison) after the last fault, or, in `sync`, the result
// differs in a bit from the undisturbed run's. `told`: a line for everything of note; null: nobody
// listens. Not thread-safe.
Outcome Simulate(const Scenario& scenario, std::function<void(const std::string&)> told = nullptr);

}  // namespace tessera::simulator
