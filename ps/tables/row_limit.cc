#include "ps/tables/row_limit.h"

#include <malloc.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ps/memory/or_exhausted.h"
#include "ps/tables/table.h"

namespace tessera::ps {
namespace {

// Looks between givings back of memory: malloc's, and what rows have left.
constexpr int kLooksToTidy = 5;
constexpr uint64_t kGivenBackAtOnce = 64 << 20;
// Room has come when there is more by this part of the limit.
constexpr uint64_t kPartThatIsRoom = 64;
// Nobody lacks room any more who has not asked for so long; callers come again within seconds.
constexpr absl::Duration kForgotten = absl::Seconds(30);
// Memory of a table that is closed has gone after so long, mostly: of rows, maps, filters and
// files.
constexpr absl::Duration kGone = absl::Seconds(10);

// Bytes of what a table has.
struct Memory {
  explicit Memory(const Table& table) : sightings(table.sighting_bytes()) {
    (table.tier() != nullptr ? spilling : rows) = table.store().bytes();
    if (table.tier() == nullptr) return;
    tier = table.tier()->tier_bytes();
    coming = table.tier()->coming_bytes();
  }
  uint64_t staying() const { return rows + tier + coming + sightings; }
  uint64_t there() const { return rows + spilling + tier + sightings; }

  uint64_t rows = 0;      // those that stay
  uint64_t spilling = 0;  // those that may leave
  uint64_t tier = 0;
  uint64_t coming = 0;  // TableTier::coming_bytes
  uint64_t sightings = 0;
};

}  // namespace

RowLimit::RowLimit(Options options)
    : options_(std::move(options)), beside_(options_.bytes, MemoryBeside::Rows::kStay) {
  Weigh();
  thread_ = std::thread([this] { Work(); });
}

RowLimit::~RowLimit() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

std::optional<RowLimit::Room> RowLimit::Take(uint64_t bytes) {
  const uint64_t before = taken_.fetch_add(bytes, std::memory_order_relaxed);
  if (measured_.load(std::memory_order_relaxed) + before + bytes > ForRows()) {
    taken_.fetch_sub(bytes, std::memory_order_relaxed);
    return std::nullopt;
  }
  return Room(this, bytes);
}

void RowLimit::Return(uint64_t bytes, uint64_t used) {
  taken_.fetch_sub(bytes - used, std::memory_order_relaxed);
  used_.fetch_add(used, std::memory_order_relaxed);
}

absl::Status RowLimit::Refuse(const std::string& job, absl::string_view what, bool may_last) {
  const absl::Duration now = options_.clock->Monotonic();
  bool lasts = false;
  std::string of_rows;
  {
    absl::MutexLock lock(&mu_);
    if (below_ > 0) {
      of_rows = absl::StrCat(", ", below_, " of them for filters and indices of rows on disk");
    }
    if (sightings_ > 0) {
      absl::StrAppend(&of_rows, ", ", sightings_, " of them for sightings of keys without a row");
    }
    lacks_ = true;
    std::erase_if(refused_, [now](const auto& of) { return now - of.second.at > kForgotten; });
    if (refused_.empty()) least_room_ = options_.bytes;  // the next look lowers it
    const auto [it, is_new] = refused_.try_emplace(job);
    Refusals& refusals = it->second;
    if (is_new) refusals.since = now;
    refusals.at = now;
    refusals.may_last = refusals.may_last || may_last;
    lasts = may_last && Lasts(job, now);
  }
  const bool spills = options_.spilling_bytes > 0;
  const std::string message = absl::StrCat(
      what, spills ? ": what stays in the memory of this ps takes " : ": the rows of this ps take ",
      rows(), " bytes", of_rows, " and ", others(), " are kept for all else, of ", bytes(),
      " (--memory)",
      lasts ? absl::StrCat(", and no room has come for ", absl::FormatDuration(options_.patience))
            : "",
      "; give tessera-ps more --memory, ", spills ? "" : "a --spill-dir for rows to leave to, ",
      "or use more ps");
  return lasts ? absl::FailedPreconditionError(message) : absl::ResourceExhaustedError(message);
}

bool RowLimit::Lasts(const std::string& job, absl::Duration now) {
  Refusals& refusals = refused_[job];
  if (refusals.told) return true;
  if (now - refusals.since < options_.patience) return false;
  const uint64_t bytes = BytesOf(job);
  for (const auto& [other, of] : refused_) {
    if (of.may_last && !of.told && BytesOf(other) > bytes) return false;
  }
  refusals.told = true;
  for (auto& [other, of] : refused_) {
    if (!of.told) of.since = now;
  }
  return true;
}

uint64_t RowLimit::BytesOf(const std::string& job) const {
  uint64_t bytes = 0;
  for (const OfJob& of : tables_) {
    if (of.job == job) bytes += Memory(*of.table).staying();
  }
  return bytes;
}

void RowLimit::Add(const std::string& job, Table* table) {
  absl::MutexLock lock(&mu_);
  tables_.push_back({job, table});
}

void RowLimit::Remove(Table* table) {
  absl::MutexLock lock(&mu_);
  leaving_.push_back({.bytes = Memory(*table).there(), .at = options_.clock->Monotonic()});
  std::erase_if(tables_, [table](const OfJob& of) { return of.table == table; });
}

void RowLimit::Weigh() {
  const absl::Duration now = options_.clock->Monotonic();
  absl::MutexLock lock(&mu_);
  const uint64_t used = used_.load(std::memory_order_relaxed);
  // First: what tables grow by meanwhile is not to be taken for what is beside them, for hours.
  const uint64_t resident = options_.resident ? options_.resident() : 0;
  uint64_t staying = 0;
  uint64_t counted = 0;
  uint64_t copies = 0;
  uint64_t others = options_.spilling_bytes;
  below_ = sightings_ = 0;
  for (const OfJob& of : tables_) {
    const Memory memory(*of.table);
    staying += memory.staying();
    counted += memory.there();
    copies += of.table->store().copied_bytes();
    below_ += memory.tier + memory.coming;
    sightings_ += memory.sightings;
    others += of.table->sighting_bytes_of_a_cut();
  }
  std::erase_if(leaving_, [now](const Leaving& of) { return now - of.at > kGone; });
  for (const Leaving& of : leaving_) counted += of.bytes;
  if (options_.resident) {
    beside_.Measure(resident, counted + copies, now);
    others += beside_.bytes() + std::max(copies, options_.copy_bytes);
  }
  others_.store(others, std::memory_order_relaxed);
  measured_.store(staying, std::memory_order_relaxed);
  used_.fetch_sub(used, std::memory_order_relaxed);
  taken_.fetch_sub(used, std::memory_order_relaxed);
  if (refused_.empty()) return;
  const uint64_t room = ForRows() - std::min(staying, ForRows());
  if (room > least_room_ && room - least_room_ > options_.bytes / kPartThatIsRoom) {
    refused_.clear();
  }
  least_room_ = std::min(least_room_, room);
}

void RowLimit::Work() {
  for (int look = 1;; ++look) {
    {
      absl::MutexLock lock(&mu_);
      if (mu_.AwaitWithTimeout(absl::Condition(&stopping_), options_.look)) return;
    }
    if (look % kLooksToTidy == 0) {
      GiveBack();
      if (options_.resident) ::malloc_trim(0);
    }
    Weigh();
  }
}

void RowLimit::GiveBack() {
  absl::MutexLock lock(&mu_);
  if (!std::exchange(lacks_, false)) return;
  for (const OfJob& of : tables_) {
    if (of.table->spills()) continue;  // the evictor does that
    const auto give = [&of]() -> absl::StatusOr<uint64_t> {
      return of.table->store().GiveBack(kGivenBackAtOnce);
    };
    // Without memory to move rows they stay where they are.
    if (OrExhausted("rows that move", give).value_or(0) >= kGivenBackAtOnce) return;
  }
}

}  // namespace tessera::ps
