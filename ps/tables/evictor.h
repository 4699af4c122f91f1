#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ps/memory/memory_beside.h"
#include "ps/memory/memory_budget.h"

namespace tessera::ps {

class TableTier;

// The thread of a ps that keeps it within a MemoryBudget: it goes round the tables with a tier,
// lets rows leave, and gives back the memory of a table whose rows have made way for another's. How
// much a table's rows are used decides its share of memory. Thread-safe.
class Evictor {
 public:
  // The resident bytes of the process, all of which the budget then covers. Null: it covers rows
  // and their tier.
  using Resident = std::function<uint64_t()>;
  // `budget` is borrowed and outlives the evictor.
  explicit Evictor(MemoryBudget* budget, Resident resident = nullptr);
  ~Evictor();  // no table may be left
  Evictor(const Evictor&) = delete;
  Evictor& operator=(const Evictor&) = delete;

  void Add(TableTier* table) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns when nobody works on the table any more: after a batch of its rows, however long the
  // disk takes.
  void Remove(TableTier* table) ABSL_LOCKS_EXCLUDED(mu_);
  // For tests: lets rows leave that the budget has room for, at most `bytes` of each table and a
  // little. Returns the bytes that left. Only while the budget has room for all rows, so that the
  // thread does nothing.
  absl::StatusOr<uint64_t> EvictNow(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  // Tells the budget how much of it other memory takes.
  void Weigh(absl::Duration now) ABSL_LOCKS_EXCLUDED(mu_);
  // Evicts from one table after another, each its share of the excess. False: no row could leave.
  bool Round() ABSL_LOCKS_EXCLUDED(mu_);
  // Has a table give back some of what its rows have left, if there are more pages than the budget
  // has for rows. False: there are not.
  bool GiveBack() ABSL_LOCKS_EXCLUDED(mu_);

  MemoryBudget& budget_;
  const Resident resident_;
  bool warned_ = false;  // used by thread_ alone
  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<TableTier*> tables_ ABSL_GUARDED_BY(mu_);
  TableTier* busy_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool fails_ ABSL_GUARDED_BY(mu_) = false;  // some table's rows could not leave in the last round
  MemoryBeside beside_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace tessera::ps
