#pragma once

#include <cstdint>
#include <string>

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
  bool spills = false;  // rows leave the memory of ps at any moment
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
  // The jobs of the seed, with copies where they have push logs: nothing fails, and they are scaled
  // and suspended all the time.
  static Scenario Calm(uint64_t seed);
  // The seed as a sync job whose rows expire, so that what is left shows which checkpoints were
  // cut. No disk fails.
  static Scenario Expiring(uint64_t seed);
  // The seed as a job whose keys get rows by a draw or, in sync, after sightings, where rows may
  // expire, too.
  static Scenario Admitting(uint64_t seed);
  // The seed with rows that leave memory for disk. Sync jobs may have admission and expiry.
  static Scenario Spilling(uint64_t seed);
  // So no job has a reason to return to a checkpoint.
  bool NothingFails() const;
  // The same job without faults, on one ps. Rows that expire need its checkpoints.
  Scenario Undisturbed() const;
  std::string ToString() const;
};

}  // namespace tessera::simulator
