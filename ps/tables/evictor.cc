#include "ps/tables/evictor.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "ps/tables/table_tier.h"

namespace tessera::ps {
namespace {

// Time between looks at what the tier takes, and between tries while the disk refuses.
constexpr absl::Duration kLook = absl::Milliseconds(200);
constexpr uint64_t kLeastBytes = 4096;
// Time between tries while a checkpoint waits for every row in memory.
constexpr absl::Duration kAllAwaited = absl::Milliseconds(2);
// Time between givings back of memory that calls have freed: malloc keeps megabytes of it for each
// thread, which would count against the budget.
constexpr absl::Duration kTidy = absl::Seconds(1);
// Memory that is given back before the next look at rows that have to leave.
constexpr uint64_t kGivenBackBeforeNextLook = 16 << 20;

// What the pages of a table take beside the rows that they have had: free ends of slabs and pages,
// room in maps. What is more comes from memory that cannot be given back, and does not count: rows
// that leave would make it larger, and more rows leave.
uint64_t OverheadOf(const TableTier& table) {
  const uint64_t held = table.held_bytes();
  const uint64_t pages = table.page_bytes();
  constexpr uint64_t kOfOne = 8 << 20;
  return held > pages ? std::min(held - pages, pages / 8 + kOfOne) : 0;
}

}  // namespace

Evictor::Evictor(MemoryBudget* budget, Resident resident)
    : budget_(*budget),
      resident_(std::move(resident)),
      beside_(budget->bytes()),
      thread_([this] { Work(); }) {}

Evictor::~Evictor() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  budget_.Wake();
  thread_.join();
}

void Evictor::Add(TableTier* table) {
  absl::MutexLock lock(&mu_);
  tables_.push_back(table);
}

void Evictor::Remove(TableTier* table) {
  absl::MutexLock lock(&mu_);
  tables_.erase(std::remove(tables_.begin(), tables_.end(), table), tables_.end());
  const auto is_free = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return busy_ != table; };
  mu_.Await(absl::Condition(&is_free));
}

void Evictor::Work() {
  absl::Duration tidied = SystemClock().Monotonic();
  absl::Duration weighed = tidied;
  Weigh(weighed);
  while (true) {
    const bool pressed = budget_.WaitForPressure(kLook);
    const absl::Duration now = SystemClock().Monotonic();
    if (now - tidied >= kTidy) {
      ::malloc_trim(0);
      tidied = now;
    }
    if (now - weighed >= kLook) {
      Weigh(now);
      weighed = now;
    }
    {
      absl::MutexLock lock(&mu_);
      if (stopping_) return;
    }
    if (!pressed) continue;
    const bool rows_left = Round();
    const bool gave_back = GiveBack();
    absl::MutexLock lock(&mu_);
    const auto stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_; };
    if (rows_left || gave_back) continue;
    mu_.AwaitWithTimeout(absl::Condition(&stopping), fails_ ? kLook : kAllAwaited);
  }
}

void Evictor::Weigh(absl::Duration now) {
  uint64_t others = 0;
  uint64_t measured = 0;
  bool guessed = false;
  {
    absl::MutexLock lock(&mu_);
    uint64_t held = 0;
    uint64_t overhead = 0;
    for (const TableTier* table : tables_) {
      others += table->tier_bytes();
      held += table->held_bytes();
      overhead += OverheadOf(*table);
    }
    measured = others;
    if (resident_) {
      beside_.Measure(resident_(), held + others, now);
      measured += beside_.measured() + overhead;
      guessed = beside_.guessed();
      others += beside_.bytes() + overhead;
    }
  }
  budget_.SetOthers(others);
  if (others <= budget_.bytes() / 2 || std::exchange(warned_, true)) return;
  SPDLOG_WARN(
      "--memory is small: rows get half of its {} MiB, though the rest of this process is put at "
      "{} MiB, {} ({} MiB are measured now): it may exceed --memory, give it more",
      budget_.bytes() >> 20, others >> 20,
      guessed ? "a first guess for a ps at work" : "with some to spare", measured >> 20);
}

bool Evictor::Round() {
  std::vector<TableTier*> tables;
  uint64_t rows = 0;  // bytes of the rows of all tables
  {
    absl::MutexLock lock(&mu_);
    tables = tables_;
    for (const TableTier* table : tables) rows += table->row_bytes();
  }
  const uint64_t excess = budget_.Excess();
  uint64_t freed = 0;
  bool fails = false;
  for (size_t i = 0; i < tables.size(); ++i) {
    {
      absl::MutexLock lock(&mu_);
      if (std::find(tables_.begin(), tables_.end(), tables[i]) == tables_.end()) continue;
      busy_ = tables[i];
    }
    // The table's part of the excess is its share of the rows in memory, and a little at least.
    const double part = double(tables[i]->row_bytes()) / double(std::max<uint64_t>(rows, 1));
    const uint64_t share = uint64_t(double(excess) * part) + kLeastBytes;
    if (budget_.Excess() > 0) {
      const absl::StatusOr<uint64_t> of_table = tables[i]->Evict(share);
      fails = fails || !of_table.ok();
      freed += of_table.value_or(0);
    }
    absl::MutexLock lock(&mu_);
    busy_ = nullptr;
  }
  absl::MutexLock lock(&mu_);
  fails_ = fails;
  return freed > 0;
}

absl::StatusOr<uint64_t> Evictor::EvictNow(uint64_t bytes) {
  std::vector<TableTier*> tables;
  {
    absl::MutexLock lock(&mu_);
    tables = tables_;
  }
  uint64_t freed = 0;
  for (TableTier* const table : tables) {
    TESSERA_ASSIGN_OR_RETURN(const uint64_t of_table, table->Evict(bytes));
    freed += of_table;
  }
  return freed;
}

bool Evictor::GiveBack() {
  const uint64_t excess = budget_.ExcessPages();
  if (excess == 0) return false;
  TableTier* table = nullptr;
  {
    absl::MutexLock lock(&mu_);
    // The table with the largest part to give back moves the fewest rows for it.
    double largest = 0;
    for (TableTier* one : tables_) {
      const double part = one->idle_part();
      if (part <= largest) continue;
      largest = part;
      table = one;
    }
    if (table == nullptr) return false;
    busy_ = table;
  }
  table->GiveBack(std::min(excess, kGivenBackBeforeNextLook));
  absl::MutexLock lock(&mu_);
  busy_ = nullptr;
  return true;
}

}  // namespace tessera::ps
