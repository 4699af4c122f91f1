#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "ps/memory_beside.h"
#include "ps/memory_budget.h"

namespace tessera::ps {

class TableTier;

// The thread of a ps that keeps a MemoryBudget: it goes round the tables with a tier and lets rows
// leave. A table's share of memory follows from how much its rows are used. Thread-safe.
class Evictor {
 public:
  // What the process has resident: the budget is for all of that. Null: for rows and their tier.
  using Resident = std::function<uint64_t()>;
  // `budget` is borrowed and outlives the evictor.
  explicit Evictor(MemoryBudget* budget, Resident resident = nullptr);
  ~Evictor();  // no table may be left
  Evictor(const Evictor&) = delete;
  Evictor& operator=(const Evictor&) = delete;

  void Add(TableTier* table) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns when the table is not being worked on: after a batch of its rows, however long the disk
  // takes.
  void Remove(TableTier* table) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  // Tells the budget what it has for rows.
  void Weigh(absl::Duration now) ABSL_LOCKS_EXCLUDED(mu_);
  // One table after another, each a share of what is too much. False: no row could leave.
  bool Round() ABSL_LOCKS_EXCLUDED(mu_);

  MemoryBudget& budget_;
  const Resident resident_;
  bool warned_ = false;  // of thread_
  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<TableTier*> tables_ ABSL_GUARDED_BY(mu_);
  TableTier* busy_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool fails_ ABSL_GUARDED_BY(mu_) = false;  // in the last round some table's rows could not leave
  MemoryBeside beside_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace tessera::ps
