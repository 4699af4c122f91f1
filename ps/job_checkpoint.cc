#include "ps/job_checkpoint.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_file_writer.h"
#include "common/partition.h"
#include "common/status_macros.h"

namespace tessera::ps {
namespace {

// Writes what RowStore::TakeChanges hands out. Returns how many rows the partition has.
absl::StatusOr<uint64_t> WritePartition(RowFileWriter& writer, TableIndex index, Table& table,
                                        PartitionId partition, bool all) {
  const RowLayout& layout = table.store().layout();
  absl::Status status;
  uint64_t written = 0;
  const auto write = [&](absl::Span<const Row* const> rows, absl::Span<const uint64_t> gone) {
    written = rows.size();
    status = [&]() -> absl::Status {
      TESSERA_RETURN_IF_ERROR(writer.BeginBlock(index, partition, gone.size(), 0));
      for (const uint64_t key : gone) TESSERA_RETURN_IF_ERROR(writer.AddRow(key, 0, 0, {}));
      TESSERA_RETURN_IF_ERROR(writer.EndBlock());
      TESSERA_RETURN_IF_ERROR(writer.BeginBlock(index, partition, rows.size(), layout.floats()));
      for (const Row* row : rows) {
        TESSERA_RETURN_IF_ERROR(
            writer.AddRow(row->key, row->frequency, row->last_step, layout.Floats(row)));
      }
      return writer.EndBlock();
    }();
  };
  if (table.spills()) {
    // All rows, each time: what has changed since the last cut may have left memory.
    TESSERA_RETURN_IF_ERROR(table.VisitPartition(
        partition, [&](absl::Span<const Row* const> rows) { write(rows, {}); }));
    TESSERA_RETURN_IF_ERROR(status);
    return written;
  }
  const uint64_t rows = table.store().TakeChanges(partition, all, write);
  TESSERA_RETURN_IF_ERROR(status);
  return rows;
}

// Number of each of the checkpoint's tables among ours; null: not wanted.
absl::StatusOr<std::vector<Table*>> MatchTables(const v1::CheckpointManifest& manifest,
                                                const std::string& folder, bool warm,
                                                const Tables& tables) {
  std::vector<Table*> match(manifest.tables_size(), nullptr);
  for (const auto& table : tables) {
    bool found = false;
    for (int i = 0; i < manifest.tables_size(); ++i) {
      const v1::CheckpointTable& saved = manifest.tables(i);
      if (saved.spec().name() != table->name()) continue;
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

absl::Status RestoreRows(const PartitionRows& rows, bool warm, bool all_owned,
                         const PartitionSet& partitions, Table& table) {
  // In pieces, between which a table that does not fit into memory can spill.
  constexpr size_t kRestoreRows = 1 << 14;
  std::vector<RowRecord> records;
  for (uint64_t i = 0; i < rows.rows(); ++i) {
    const uint64_t key = rows.key(i);
    if (!all_owned && partitions.IndexOf(PartitionOf(key, partitions.partition_count())) ==
                          PartitionSet::kNotOwned) {
      continue;
    }
    records.push_back({.key = key,
                       .last_step = warm ? 0 : rows.last_step(i),
                       .frequency = warm ? 0 : rows.frequency(i),
                       .floats = warm ? rows.values(i).first(table.dim()) : rows.values(i)});
    if (records.size() < kRestoreRows) continue;
    TESSERA_RETURN_IF_ERROR(table.Restore(records));
    records.clear();
  }
  return table.Restore(records);
}

// The files of `base` under their names in `folder` too.
absl::Status LinkFiles(FileSystem& files, const WrittenPart& base, const std::string& folder) {
  for (const v1::CheckpointFile& file : base.files) {
    TESSERA_RETURN_IF_ERROR(files.Link(absl::StrCat(base.folder, "/", file.name()),
                                       absl::StrCat(folder, "/", file.name())));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsIncrementWorth(const WrittenPart& base, const Tables& tables) {
  uint64_t whole = 0;
  uint64_t increments = 0;
  for (const auto& table : tables) {
    if (table->spills()) return false;
    if (table->every_row() || table->dense()) {
      increments += table->store().rows() * table->store().layout().block_bytes();
    }
  }
  for (const v1::CheckpointFile& file : base.files) {
    (file.layer() == 0 ? whole : increments) += file.bytes();
  }
  return !base.files.empty() && base.files.size() <= kMaxLayers && increments < whole / 2;
}

absl::StatusOr<WrittenPart> WriteTables(FileSystem& files, const std::string& folder,
                                        const CheckpointPart& part, const WrittenPart* base,
                                        const PartitionSet& partitions, const Tables& tables,
                                        KeepGoing keep_going) {
  TESSERA_RETURN_IF_ERROR(keep_going());
  TESSERA_RETURN_IF_ERROR(files.CreateFolder(folder));
  WrittenPart written = {
      .folder = folder, .files = {}, .rows = std::vector<uint64_t>(tables.size(), 0)};
  std::string name =
      absl::StrFormat("rows-g%d-%05d-of-%05d", part.generation, part.part, part.parts);
  if (base != nullptr) {
    TESSERA_RETURN_IF_ERROR(LinkFiles(files, *base, folder));
    written.files = base->files;
    absl::StrAppend(&name, "-layer-", written.files.size());
  }
  const std::string path = absl::StrCat(folder, "/", name);
  // A name left by an earlier try may be a link: what it leads to must not be written over.
  TESSERA_RETURN_IF_ERROR(files.Remove(path));
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<RowFileWriter> writer,
      RowFileWriter::Create(files, path, partitions.partition_count(), tables.size()));
  for (uint32_t t = 0; t < tables.size(); ++t) {
    for (const PartitionId partition : partitions.owned()) {
      TESSERA_RETURN_IF_ERROR(keep_going());
      TESSERA_ASSIGN_OR_RETURN(
          const uint64_t rows,
          WritePartition(*writer, TableIndex(t), *tables[t], partition, base == nullptr));
      written.rows[t] += rows;
    }
  }
  TESSERA_ASSIGN_OR_RETURN(v1::CheckpointFile file, writer->Finish());
  file.set_layer(static_cast<uint32_t>(written.files.size()));
  written.files.push_back(std::move(file));
  return written;
}

absl::Status RestoreTables(FileSystem& files, const std::string& folder, bool warm,
                           const PartitionSet& partitions, const Tables& tables,
                           KeepGoing keep_going) {
  TESSERA_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, ReadManifest(files, folder));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Table*> match,
                           MatchTables(manifest, folder, warm, tables));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader,
                           CheckpointReader::Open(files, folder, std::move(manifest)));
  const bool same_partitions = reader->partition_count() == partitions.partition_count();
  for (uint32_t t = 0; t < match.size(); ++t) {
    if (match[t] == nullptr) continue;
    for (uint32_t p = 0; p < reader->partition_count(); ++p) {
      if (same_partitions && partitions.IndexOf(PartitionId(p)) == PartitionSet::kNotOwned) {
        continue;
      }
      TESSERA_RETURN_IF_ERROR(keep_going());
      TESSERA_ASSIGN_OR_RETURN(const PartitionRows rows,
                               reader->Read(TableIndex(t), PartitionId(p)));
      TESSERA_RETURN_IF_ERROR(RestoreRows(rows, warm, same_partitions, partitions, *match[t]));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::ps
