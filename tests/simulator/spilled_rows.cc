#include "tests/simulator/spilled_rows.h"

#include <stdlib.h>

#include <filesystem>
#include <system_error>

#include "common/status_macros.h"

namespace tessera::simulator {

absl::StatusOr<std::unique_ptr<SpilledRows>> SpilledRows::New() {
  // Opening a store takes longer than training, if it waits for a disk.
  std::error_code ignored;
  const std::filesystem::path memory = "/dev/shm";
  std::string folder =
      (std::filesystem::exists(memory, ignored) ? memory : std::filesystem::temp_directory_path()) /
      "tessera-simulator-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return absl::UnavailableError("no folder " + folder);
  auto rows = std::unique_ptr<SpilledRows>(new SpilledRows(folder));
  ps::Spill::Options options;
  options.folder = folder;
  options.memory_bytes = uint64_t{32} << 20;
  options.page_cache = true;
  options.reader_threads = 1;
  TESSERA_ASSIGN_OR_RETURN(rows->spill_, ps::Spill::Open(options));
  return rows;
}

SpilledRows::~SpilledRows() {
  spill_ = nullptr;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

absl::Status SpilledRows::Evict(uint64_t bytes) {
  TESSERA_ASSIGN_OR_RETURN(const uint64_t evicted, spill_->evictor().EvictNow(bytes));
  evicted_bytes_ += evicted;
  return absl::OkStatus();
}

}  // namespace tessera::simulator
