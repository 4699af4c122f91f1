// Part of job_checkpoint.h: restores a checkpoint.
#include <algorithm>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "common/partition.h"
#include "common/status_macros.h"
#include "common/task_pool.h"
#include "ps/jobs/job_checkpoint.h"
#include "ps/jobs/sightings_file.h"

namespace tessera::ps {
namespace {

// Our table for each of the checkpoint's tables; null: not wanted.
absl::StatusOr<std::vector<Table*>> MatchTables(const v1::CheckpointManifest& manifest,
                                                const std::string& folder, bool warm,
                                                const Tables& tables) {
  std::vector<Table*> match(manifest.tables_size(), nullptr);
  for (const auto& table : tables) {
    bool found = false;
    for (int i = 0; i < manifest.tables_size(); ++i) {
      const v1::CheckpointTable& saved = manifest.tables(i);
      if (saved.spec().name() != table->name()) continue;
      if (found) {
        return absl::DataLossError(
            absl::StrCat(folder, ": damaged: two tables of its manifest are called ", table->name(),
                         "; go on from an earlier checkpoint"));
      }
      found = true;
      match[i] = table.get();
      if (saved.spec().dim() != table->dim()) {
        return absl::FailedPreconditionError(
            absl::StrCat(folder, ": table ", table->name(), " has dim ", saved.spec().dim(),
                         " in the checkpoint and ", table->dim(), " in the job"));
      }
      if (!warm && saved.rows() > 0 &&
          saved.slot_floats() != table->store().layout().slot_floats()) {
        return absl::FailedPreconditionError(absl::StrCat(
            folder, ": table ", table->name(), " has ", saved.slot_floats(),
            " optimizer floats a row in the checkpoint and ", table->store().layout().slot_floats(),
            " in the job; to go on with another optimizer, start warm (start.warm: true)"));
      }
    }
    if (!found && !warm) {
      return absl::FailedPreconditionError(
          absl::StrCat(folder, ": the checkpoint has no table ", table->name(),
                       "; to start with the tables that it has, start warm (start.warm: true)"));
    }
  }
  return match;
}

// Calls work(0), ..., work(count - 1) in several threads, which ask `keep_going` one at a time. The
// first error ends it, and so does std::bad_alloc in any thread.
absl::Status InParallel(size_t count, KeepGoing keep_going,
                        absl::FunctionRef<absl::Status(size_t)> work) {
  constexpr unsigned kMostThreads = 8;
  absl::Mutex mu;
  absl::Status status;
  std::exception_ptr thrown;
  const size_t threads =
      std::min<size_t>(count, std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads));
  TaskPool pool(std::max(static_cast<int>(threads) - 1, 0));
  pool.RunAll(count, [&](size_t i) {
    {
      absl::MutexLock lock(&mu);
      if (!status.ok() || thrown != nullptr) return;
      if (status = keep_going(); !status.ok()) return;
    }
    try {
      const absl::Status done = work(i);
      absl::MutexLock lock(&mu);
      status.Update(done);
    } catch (const std::bad_alloc&) {
      absl::MutexLock lock(&mu);
      thrown = std::current_exception();
    }
  });
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return status;
}

// How the metadata of rows changes.
struct Marks {
  // The new last step of a row that was updated; the largest number stays (Expiry::Takes).
  uint32_t LastStep(uint32_t last_step, uint32_t frequency) const {
    if (warm) return 0;
    constexpr uint64_t kLast = std::numeric_limits<uint32_t>::max();
    if (frequency == 0) return last_step;
    return static_cast<uint32_t>(std::min(last_step + later, kLast));
  }
  bool warm = false;
  uint64_t later = 0;  // added to the last step of rows
};

RowRecord RecordOf(const PartitionRows& rows, uint64_t i, const Marks& marks, uint32_t dim) {
  return {.key = rows.key(i),
          .last_step = marks.LastStep(rows.last_step(i), rows.frequency(i)),
          .frequency = marks.warm ? 0 : rows.frequency(i),
          .floats = marks.warm ? rows.values(i).first(dim) : rows.values(i)};
}

// Of `rows` those that this ps owns.
absl::Status RestoreRows(const PartitionRows& rows, const Marks& marks,
                         const PartitionSet& partitions, Table& table) {
  // In pieces: between them a table that does not fit into memory can spill.
  constexpr size_t kRestoreRows = 1 << 14;
  std::vector<RowRecord> records;
  for (uint64_t i = 0; i < rows.rows(); ++i) {
    if (partitions.IndexOf(PartitionOf(rows.key(i), partitions.partition_count())) ==
        PartitionSet::kNotOwned) {
      continue;
    }
    records.push_back(RecordOf(rows, i, marks, table.dim()));
    if (records.size() < kRestoreRows) continue;
    TESSERA_RETURN_IF_ERROR(table.Restore(records));
    records.clear();
  }
  return table.Restore(records);
}

}  // namespace

absl::Status RestoreTables(FileSystem& files, const std::string& folder, bool warm,
                           uint64_t first_push, const PartitionSet& partitions,
                           const Tables& tables, KeepGoing keep_going) {
  TESSERA_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, ReadManifest(files, folder));
  const v1::Position& position = manifest.position();
  const Marks marks = {.warm = warm,
                       .later = position.has_next_push() && position.next_push() < first_push
                                    ? first_push - position.next_push()
                                    : 0};
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Table*> match,
                           MatchTables(manifest, folder, warm, tables));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader,
                           CheckpointReader::Open(files, folder, std::move(manifest)));
  const bool same_partitions = reader->partition_count() == partitions.partition_count();
  struct Piece {
    uint32_t table;
    uint32_t partition;
  };
  std::vector<Piece> pieces;
  for (uint32_t t = 0; t < match.size(); ++t) {
    if (match[t] == nullptr) continue;
    for (uint32_t p = 0; p < reader->partition_count(); ++p) {
      if (partitions.SharesKeysWith(PartitionId(p), reader->partition_count())) {
        pieces.push_back({t, p});
      }
    }
  }
  TESSERA_RETURN_IF_ERROR(InParallel(pieces.size(), keep_going, [&](size_t i) -> absl::Status {
    Table& table = *match[pieces[i].table];
    const PartitionId partition(pieces[i].partition);
    TESSERA_ASSIGN_OR_RETURN(const PartitionRows rows,
                             reader->Read(TableIndex(pieces[i].table), partition));
    if (!same_partitions || table.spills() || table.dense()) {
      return RestoreRows(rows, marks, partitions, table);
    }
    const auto read = [&](uint64_t first, absl::Span<RowRecord> records) {
      for (RowRecord& record : records) record = RecordOf(rows, first++, marks, table.dim());
    };
    return table.Fill(partition, rows.rows(), read);
  }));
  if (warm) return absl::OkStatus();
  for (const v1::CheckpointFile& file : reader->manifest().sightings()) {
    TESSERA_RETURN_IF_ERROR(ReadSightings(files, absl::StrCat(folder, "/", file.name()), partitions,
                                          match, keep_going));
  }
  return absl::OkStatus();
}

}  // namespace tessera::ps
