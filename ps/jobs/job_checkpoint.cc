#include "ps/jobs/job_checkpoint.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/row_file_format.h"
#include "common/checkpoint/row_file_writer.h"
#include "common/failpoint.h"
#include "common/status_macros.h"
#include "ps/jobs/sightings_file.h"
#include "ps/rows/row_records.h"

namespace tessera::ps {
namespace {

// Records that are made and written together: they stay in the cache.
constexpr size_t kRecordsAtOnce = 256;

// Writes rows as records of the open block.
absl::Status WriteRows(RowFileWriter& writer, const RowLayout& layout,
                       absl::Span<const Row* const> rows) {
  std::vector<char> records;
  const size_t record_bytes = row_file::RecordBytes(layout.floats());
  for (size_t begin = 0; begin < rows.size(); begin += kRecordsAtOnce) {
    const absl::Span<const Row* const> some = rows.subspan(begin, kRecordsAtOnce);
    records.resize(some.size() * record_bytes);
    StoreRecords(layout, some, records.data());
    TESSERA_RETURN_IF_ERROR(writer.AddRecords({records.data(), records.size()}));
  }
  return absl::OkStatus();
}

// Writes keys as a block without numbers.
absl::Status WriteGone(RowFileWriter& writer, TableIndex index, PartitionId partition,
                       absl::Span<const uint64_t> gone) {
  TESSERA_RETURN_IF_ERROR(writer.BeginBlock(index, partition, gone.size(), 0));
  for (const uint64_t key : gone) TESSERA_RETURN_IF_ERROR(writer.AddRow(key, 0, 0, {}));
  return writer.EndBlock();
}

using WritePartition = absl::FunctionRef<absl::Status(RowFileWriter& writer, TableIndex index,
                                                      Table& table, PartitionId partition)>;

// Writes what the cut has of a partition in memory.
absl::Status WriteMemory(RowFileWriter& writer, TableIndex index, Table& table,
                         PartitionId partition) {
  const RowLayout& layout = table.store().layout();
  const auto begin = [&](uint64_t rows, absl::Span<const uint64_t> gone) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(WriteGone(writer, index, partition, gone));
    return writer.BeginBlock(index, partition, rows, layout.floats());
  };
  const auto write = [&](absl::Span<const Row* const> rows) {
    return WriteRows(writer, layout, rows);
  };
  TESSERA_RETURN_IF_ERROR(table.store().VisitCut(partition, begin, write));
  return writer.EndBlock();
}

// Writes what the cut has of a partition on disk.
absl::Status WriteBelow(RowFileWriter& writer, TableIndex index, Table& table,
                        PartitionId partition) {
  const auto write = [&](absl::Span<const uint64_t> gone,
                         absl::Span<const Row* const> rows) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(WriteGone(writer, index, partition, gone));
    const RowLayout& layout = table.store().layout();
    TESSERA_RETURN_IF_ERROR(writer.BeginBlock(index, partition, rows.size(), layout.floats()));
    TESSERA_RETURN_IF_ERROR(WriteRows(writer, layout, rows));
    return writer.EndBlock();
  };
  return table.VisitCutBelow(partition, write);
}

// The tables of each file of rows in memory, in the order in which they are written: those whose
// rows all change at every step first, as their copies fill the room for them soonest. No group is
// empty.
std::vector<std::vector<TableIndex>> GroupsOf(const Tables& tables) {
  std::vector<std::vector<TableIndex>> groups(2);
  for (uint32_t t = 0; t < tables.size(); ++t) {
    groups[tables[t]->may_spill() ? 1 : 0].push_back(TableIndex(t));
  }
  std::erase_if(groups, [](const auto& group) { return group.empty(); });
  return groups;
}

absl::StatusOr<v1::CheckpointFile> WriteFile(FileSystem& files, const std::string& path,
                                             uint32_t layer, absl::Span<const TableIndex> group,
                                             const PartitionSet& partitions, const Tables& tables,
                                             KeepGoing keep_going, WritePartition write) {
  TESSERA_RETURN_IF_ERROR(keep_going());
  // A file left by an earlier try may be a link, whose target must not be overwritten.
  TESSERA_RETURN_IF_ERROR(files.Remove(path));
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<RowFileWriter> writer,
      RowFileWriter::Create(files, path, partitions.partition_count(), tables.size()));
  for (const TableIndex table : group) {
    for (const PartitionId partition : partitions.owned()) {
      TESSERA_RETURN_IF_ERROR(keep_going());
      TESSERA_RETURN_IF_ERROR(write(*writer, table, *tables[table.value()], partition));
    }
  }
  TESSERA_ASSIGN_OR_RETURN(v1::CheckpointFile file, writer->Finish());
  file.set_layer(layer);
  return file;
}

// Links the files of `base` under their names in `folder`.
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
    if (!table->store().keeps_left()) return false;
    if (!table->may_spill()) {
      increments += table->store().rows() * table->store().layout().block_bytes();
    }
  }
  for (size_t i = 0; i < base.files.size(); ++i) {
    (i < base.first_files ? whole : increments) += base.files[i].bytes();
  }
  return !base.files.empty() &&
         base.files.back().layer() < base.files[base.first_files - 1].layer() + kMaxLayers &&
         increments < whole / 2;
}

absl::StatusOr<PartCut> PrepareCut(FileSystem& files, const std::string& folder,
                                   const CheckpointPart& part, const WrittenPart* base) {
  TESSERA_RETURN_IF_ERROR(files.CreateFolder(folder));
  PartCut cut = {
      .all = true,
      .name = absl::StrFormat("g%d-%05d-of-%05d", part.generation, part.part, part.parts),
      .written = {.folder = folder, .files = {}, .rows = {}, .sightings = {}},
      .unused = {}};
  if (base == nullptr) return cut;
  const absl::Status linked = LinkFiles(files, *base, folder);
  if (absl::IsUnimplemented(linked) || absl::IsNotFound(linked)) {
    cut.unused = base->files;
    return cut;
  }
  TESSERA_RETURN_IF_ERROR(linked);
  cut.all = false;
  cut.written.files = base->files;
  cut.written.first_files = base->first_files;
  return cut;
}

void CutTables(const Tables& tables, PartCut& cut) {
  const auto begin = [&] {
    cut.written.rows.clear();
    for (const auto& table : tables) {
      const std::optional<uint64_t> rows = table->BeginCut(cut.all);
      if (!rows.has_value()) return false;
      cut.written.rows.push_back(*rows);
    }
    return true;
  };
  if (!begin()) {
    DropCut(tables);
    cut.all = true;
    cut.unused = std::exchange(cut.written.files, {});
    begin();
  }
  PassFailpoint("ps.checkpoint.cut");
}

absl::StatusOr<WrittenPart> WriteCut(FileSystem& files, PartCut cut, const PartitionSet& partitions,
                                     const Tables& tables, KeepGoing keep_going) {
  WrittenPart& written = cut.written;
  const bool spills =
      std::any_of(tables.begin(), tables.end(), [](const auto& table) { return table->spills(); });
  const auto write = [&]() -> absl::Status {
    for (const v1::CheckpointFile& file : cut.unused) {
      TESSERA_RETURN_IF_ERROR(files.Remove(absl::StrCat(written.folder, "/", file.name())));
    }
    const size_t below = written.files.size();
    const uint32_t lowest = below == 0 ? 0 : written.files.back().layer() + 1;
    const uint32_t upper = lowest + (spills ? 1 : 0);
    const auto path = [&](uint32_t layer, absl::string_view which) {
      return absl::StrCat(written.folder, "/rows-", cut.name, which,
                          layer == 0 ? "" : absl::StrCat("-layer-", layer));
    };
    std::vector<v1::CheckpointFile> memory;
    const std::vector<std::vector<TableIndex>> groups = GroupsOf(tables);
    for (const auto& group : groups) {
      const std::string of = path(upper, &group == &groups.back() ? "" : "-every-row");
      TESSERA_ASSIGN_OR_RETURN(memory.emplace_back(), WriteFile(files, of, upper, group, partitions,
                                                                tables, keep_going, WriteMemory));
    }
    if (spills) {
      TESSERA_ASSIGN_OR_RETURN(written.files.emplace_back(),
                               WriteFile(files, path(lowest, ""), lowest, groups.back(), partitions,
                                         tables, keep_going, WriteBelow));
    }
    std::move(memory.begin(), memory.end(), std::back_inserter(written.files));
    written.new_bytes = 0;
    for (size_t f = below; f < written.files.size(); ++f) {
      written.new_bytes += written.files[f].bytes();
    }
    TESSERA_ASSIGN_OR_RETURN(written.sightings, WriteSightings(files, written.folder,
                                                               absl::StrCat("sightings-", cut.name),
                                                               partitions, tables, keep_going));
    for (size_t t = 0; t < tables.size(); ++t) written.rows[t] -= tables[t]->cut_gone();
    if (cut.all) written.first_files = written.files.size();
    PassFailpoint("ps.checkpoint.written");
    return absl::OkStatus();
  };
  const absl::Status status = write();
  DropCut(tables);
  TESSERA_RETURN_IF_ERROR(status);
  return std::move(written);
}

void DropCut(const Tables& tables) {
  for (const auto& table : tables) table->DropCut();
}

}  // namespace tessera::ps
