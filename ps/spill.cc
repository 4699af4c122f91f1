#include "ps/spill.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::ps {
namespace {

constexpr char kPrefix[] = "job-";

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
      evictor_(&budget_),
      readers_(options_.reader_threads) {}

std::string Spill::NewFolder() {
  return absl::StrCat(options_.folder, "/", kPrefix, folders_.fetch_add(1));
}

}  // namespace tessera::ps
