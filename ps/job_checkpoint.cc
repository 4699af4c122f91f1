#include "ps/job_checkpoint.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_file_reader.h"
#include "common/checkpoint/row_file_writer.h"
#include "common/partition.h"
#include "common/status_macros.h"

namespace tessera::ps {
namespace {

absl::Status WritePartition(RowFileWriter& writer, TableIndex index, const Table& table,
                            PartitionId partition) {
  const RowLayout& layout = table.store().layout();
  absl::Status status;
  table.store().VisitPartition(partition, [&](absl::Span<const Row* const> rows) {
    status = [&]() -> absl::Status {
      TESSERA_RETURN_IF_ERROR(writer.BeginBlock(index, partition, rows.size(), layout.floats()));
      for (const Row* row : rows) {
        TESSERA_RETURN_IF_ERROR(
            writer.AddRow(row->key, row->frequency, row->last_step, layout.Floats(row)));
      }
      return writer.EndBlock();
    }();
  });
  return status;
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

void RestoreBlock(const RowBlock& block, bool warm, bool all_owned, const PartitionSet& partitions,
                  Table& table) {
  std::vector<RowRecord> records;
  for (uint64_t i = 0; i < block.rows(); ++i) {
    const uint64_t key = block.key(i);
    if (!all_owned && partitions.IndexOf(PartitionOf(key, partitions.partition_count())) ==
                          PartitionSet::kNotOwned) {
      continue;
    }
    records.push_back({.key = key,
                       .last_step = warm ? 0 : block.last_step(i),
                       .frequency = warm ? 0 : block.frequency(i),
                       .floats = warm ? block.values(i).first(table.dim()) : block.values(i)});
  }
  table.store().Insert(records);
}

absl::Status RestoreFile(FileSystem& files, const std::string& folder,
                         const v1::CheckpointFile& file, bool warm,
                         const v1::CheckpointManifest& manifest, const std::vector<Table*>& match,
                         const PartitionSet& partitions, KeepGoing keep_going) {
  TESSERA_ASSIGN_OR_RETURN(const std::string path, PathBelow(folder, file.name()));
  absl::StatusOr<std::unique_ptr<RowFileReader>> reader = RowFileReader::Open(files, path);
  if (absl::IsNotFound(reader.status())) {
    return absl::DataLossError(absl::StrCat(path,
                                            ": missing, but the manifest names it; go on "
                                            "from an earlier checkpoint"));
  }
  TESSERA_RETURN_IF_ERROR(reader.status());
  const bool same_partitions = (*reader)->partition_count() == partitions.partition_count();
  std::vector<uint64_t> rows(manifest.tables_size(), 0);
  for (const row_file::IndexEntry& entry : (*reader)->blocks()) {
    if (entry.table >= match.size()) {
      return absl::DataLossError(absl::StrCat(path, ": has rows of table ", entry.table,
                                              ", the manifest has ", match.size(), " tables"));
    }
    rows[entry.table] += entry.rows;
    Table* const table = match[entry.table];
    if (table == nullptr) continue;
    if (same_partitions &&
        partitions.IndexOf(PartitionId(entry.partition)) == PartitionSet::kNotOwned) {
      continue;
    }
    const uint32_t expected = table->dim() + manifest.tables(entry.table).slot_floats();
    if (entry.floats_per_row != expected) {
      return absl::DataLossError(absl::StrCat(path, ": table ", table->name(), " has ",
                                              entry.floats_per_row,
                                              " floats a row, the manifest says ", expected));
    }
    TESSERA_RETURN_IF_ERROR(keep_going());
    TESSERA_ASSIGN_OR_RETURN(const RowBlock block, (*reader)->Read(entry));
    RestoreBlock(block, warm, same_partitions, partitions, *table);
  }
  for (int t = 0; t < file.rows_size() && t < manifest.tables_size(); ++t) {
    if (file.rows(t) == rows[t]) continue;
    return absl::DataLossError(absl::StrCat(path, ": has ", rows[t], " rows of table ",
                                            manifest.tables(t).spec().name(),
                                            ", the manifest says ", file.rows(t)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::CheckpointFile> WriteTables(FileSystem& files, const std::string& folder,
                                               const CheckpointPart& part,
                                               const PartitionSet& partitions, const Tables& tables,
                                               KeepGoing keep_going) {
  TESSERA_RETURN_IF_ERROR(keep_going());
  TESSERA_RETURN_IF_ERROR(files.CreateFolder(folder));
  const std::string path =
      absl::StrFormat("%s/rows-g%d-%05d-of-%05d", folder, part.generation, part.part, part.parts);
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<RowFileWriter> writer,
      RowFileWriter::Create(files, path, partitions.partition_count(), tables.size()));
  for (uint32_t t = 0; t < tables.size(); ++t) {
    for (const PartitionId partition : partitions.owned()) {
      TESSERA_RETURN_IF_ERROR(keep_going());
      TESSERA_RETURN_IF_ERROR(WritePartition(*writer, TableIndex(t), *tables[t], partition));
    }
  }
  return writer->Finish();
}

absl::Status RestoreTables(FileSystem& files, const std::string& folder, bool warm,
                           const PartitionSet& partitions, const Tables& tables,
                           KeepGoing keep_going) {
  TESSERA_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, ReadManifest(files, folder));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Table*> match,
                           MatchTables(manifest, folder, warm, tables));
  for (const v1::CheckpointFile& file : manifest.files()) {
    TESSERA_RETURN_IF_ERROR(
        RestoreFile(files, folder, file, warm, manifest, match, partitions, keep_going));
  }
  return absl::OkStatus();
}

}  // namespace tessera::ps
