#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/simulator/counting_job.h"
#include "tests/simulator/scenario.h"

namespace tessera::simulator {

// How much happened in a simulation, or in several.
struct Happened {
  absl::Duration took;  // in virtual time
  uint64_t events = 0;
  uint64_t restarts = 0;
  uint64_t kills = 0;
  uint64_t moves = 0;          // of partitions, to the end
  uint64_t suspensions = 0;    // after which the job was resumed
  uint64_t rescales = 0;       // that gave a job another number of workers
  uint64_t set_aside = 0;      // samples
  uint64_t lost_steps = 0;     // of a ps, by partial recovery
  uint64_t evicted_bytes = 0;  // of rows, that left memory for disk
  uint64_t evaluations = 0;    // that were held against the counts of the data
  uint64_t compared = 0;       // models, with that of an undisturbed run

  Happened& operator+=(const Happened& more) {
    took += more.took;
    events += more.events;
    restarts += more.restarts;
    kills += more.kills;
    moves += more.moves;
    suspensions += more.suspensions;
    rescales += more.rescales;
    set_aside += more.set_aside;
    lost_steps += more.lost_steps;
    evicted_bytes += more.evicted_bytes;
    evaluations += more.evaluations;
    compared += more.compared;
    return *this;
  }
};

struct Outcome : Happened {
  absl::Status status;                     // what is wrong
  uint64_t digest = 0;                     // of all that happened
  std::vector<CountingJob::Model> models;  // the jobs' results
};

// Runs it to its end. Not OK: a sample was lost or counted twice, an evaluation has not seen the
// model of its step, a job failed, or they did not end within three minutes a job (nine with
// poison) after the last fault, or, in `sync`, the result or an evaluation differs in a bit from
// the undisturbed run's. `told`: a line for everything of note; null: nobody
// listens. Not thread-safe.
Outcome Simulate(const Scenario& scenario, std::function<void(const std::string&)> told = nullptr);

}  // namespace tessera::simulator
