#pragma once

#include <cstdint>

namespace tessera::master {

// Counts of events since this master started.
struct Counts {
  uint64_t units_handed_out = 0;
  uint64_t units_done = 0;
  uint64_t units_failed = 0;  // tries, of which the unit may have several
  uint64_t set_aside_batches = 0;
  uint64_t set_aside_records = 0;  // in those batches
  uint64_t restarts = 0;           // of jobs, those of the master's own start included
  uint64_t ps_recoveries = 0;      // from push logs
  uint64_t worker_takeovers = 0;   // of ranks whose worker was lost
  uint64_t checkpoints_committed = 0;
  uint64_t checkpoints_failed = 0;
};

}  // namespace tessera::master
