#include "ps/tables/spill.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/process/resident.h"
#include "common/status_macros.h"

namespace tessera::ps {
namespace {

constexpr char kPrefix[] = "job-";
constexpr uint64_t kLeastEvictionBytes = 1 << 20;
constexpr int kDiskReaders = 16;

int Readers(const Spill::Options& options) {
  if (options.reader_threads > 0) return options.reader_threads;
  if (!options.page_cache) return kDiskReaders;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Spill>> Spill::Open(Options options) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<FolderLock> lock, FolderLock::Take(options.folder));
  FileSystem& disk = PosixFileSystem();
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, disk.List(options.folder));
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, kPrefix)) continue;
    TESSERA_RETURN_IF_ERROR(disk.Remove(absl::StrCat(options.folder, "/", name)));
  }
  return std::unique_ptr<Spill>(new Spill(std::move(options), std::move(lock)));
}

Spill::Spill(Options options, std::unique_ptr<FolderLock> lock)
    : options_(std::move(options)),
      lock_(std::move(lock)),
      budget_(options_.memory_bytes),
      evictor_(&budget_,
               options_.of_process ? [] { return ResidentBytes(); } : Evictor::Resident()),
      readers_(Readers(options_)) {}

std::string Spill::NewFolder() {
  return absl::StrCat(options_.folder, "/", kPrefix, folders_.fetch_add(1));
}

absl::StatusOr<std::shared_ptr<ColdStore>> Spill::Attach(
    const std::vector<std::unique_ptr<Table>>& tables, std::shared_ptr<ColdStore> shared) {
  std::vector<ColdTable> specs;
  for (const auto& table : tables) {
    if (!table->may_spill()) continue;
    specs.push_back(
        {.name = table->name(), .record_bytes = TableTier::RecordBytes(table->store().layout())});
  }
  if (specs.empty()) return nullptr;
  TableTier::Options tier;
  tier.shares_cold = shared != nullptr;
  std::shared_ptr<ColdStore> cold = std::move(shared);
  if (cold == nullptr) {
    ColdStore::Options options;
    options.folder = NewFolder();
    options.max_bytes = options_.max_job_bytes;
    options.page_cache = options_.page_cache;
    options.readers = &readers_;
    absl::StatusOr<std::unique_ptr<ColdStore>> opened = ColdStore::Open(options, std::move(specs));
    if (!opened.ok()) {
      // A full disk may have had room for the folder and its lock, and for nothing else.
      PosixFileSystem().Remove(options.folder).IgnoreError();
      return opened.status();
    }
    cold = *std::move(opened);
  }
  tier.cold = cold.get();
  tier.budget = &budget_;
  tier.evictor = &evictor_;
  tier.room_limit = options_.room_limit;
  // A batch is small beside the memory that it frees.
  tier.eviction_bytes = std::clamp(budget_.bytes() / 32, kLeastEvictionBytes, tier.eviction_bytes);
  for (const auto& table : tables) {
    if (!table->may_spill()) continue;
    table->Attach(tier);
    ++tier.cold_table;
  }
  return cold;
}

}  // namespace tessera::ps
