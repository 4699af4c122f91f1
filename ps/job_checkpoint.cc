#include "ps/job_checkpoint.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/row_file_format.h"
#include "common/checkpoint/row_file_writer.h"
#include "common/failpoint.h"
#include "common/status_macros.h"

namespace tessera::ps {
namespace {

// Records that are made and written together: they stay in the cache.
constexpr size_t kRecordsAtOnce = 256;

// What the cut has of a partition; of a table that spills, all that it has now.
absl::Status WritePartition(RowFileWriter& writer, TableIndex index, Table& table,
                            PartitionId partition, uint64_t& spilled_rows) {
  const RowLayout& layout = table.store().layout();
  const auto begin = [&](uint64_t rows, absl::Span<const uint64_t> gone) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(writer.BeginBlock(index, partition, gone.size(), 0));
    for (const uint64_t key : gone) TESSERA_RETURN_IF_ERROR(writer.AddRow(key, 0, 0, {}));
    TESSERA_RETURN_IF_ERROR(writer.EndBlock());
    return writer.BeginBlock(index, partition, rows, layout.floats());
  };
  std::vector<char> records;
  std::vector<float> room;
  const size_t record_bytes = row_file::RecordBytes(layout.floats());
  const auto write = [&](absl::Span<const Row* const> rows) -> absl::Status {
    for (size_t begin = 0; begin < rows.size(); begin += kRecordsAtOnce) {
      const absl::Span<const Row* const> some = rows.subspan(begin, kRecordsAtOnce);
      records.resize(some.size() * record_bytes);
      char* record = records.data();
      for (const Row* row : some) {
        row_file::StoreRecord(row->key, row->frequency, row->last_step, layout.Floats(row, room),
                              record);
        record += record_bytes;
      }
      TESSERA_RETURN_IF_ERROR(writer.AddRecords({records.data(), records.size()}));
    }
    return absl::OkStatus();
  };
  if (!table.spills()) {
    TESSERA_RETURN_IF_ERROR(table.store().VisitCut(partition, begin, write));
    return writer.EndBlock();
  }
  absl::Status status;
  TESSERA_RETURN_IF_ERROR(table.VisitPartition(partition, [&](absl::Span<const Row* const> rows) {
    spilled_rows += rows.size();
    status = begin(rows.size(), {});
    if (status.ok()) status = write(rows);
    if (status.ok()) status = writer.EndBlock();
  }));
  return status;
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

absl::StatusOr<PartCut> PrepareCut(FileSystem& files, const std::string& folder,
                                   const CheckpointPart& part, const WrittenPart* base) {
  TESSERA_RETURN_IF_ERROR(files.CreateFolder(folder));
  PartCut cut = {
      .all = true,
      .name = absl::StrFormat("rows-g%d-%05d-of-%05d", part.generation, part.part, part.parts),
      .written = {.folder = folder, .files = {}, .rows = {}}};
  if (base == nullptr) return cut;
  const absl::Status linked = LinkFiles(files, *base, folder);
  if (absl::IsUnimplemented(linked)) return cut;
  TESSERA_RETURN_IF_ERROR(linked);
  cut.all = false;
  cut.written.files = base->files;
  absl::StrAppend(&cut.name, "-layer-", base->files.size());
  return cut;
}

void CutTables(const Tables& tables, PartCut& cut) {
  for (const auto& table : tables) {
    cut.written.rows.push_back(table->spills() ? 0 : table->store().BeginCut(cut.all));
  }
  PassFailpoint("ps.checkpoint.cut");
}

absl::StatusOr<WrittenPart> WriteCut(FileSystem& files, PartCut cut, const PartitionSet& partitions,
                                     const Tables& tables, KeepGoing keep_going) {
  WrittenPart& written = cut.written;
  const auto write = [&]() -> absl::Status {
    TESSERA_RETURN_IF_ERROR(keep_going());
    const std::string path = absl::StrCat(written.folder, "/", cut.name);
    // A name left by an earlier try may be a link: what it leads to must not be written over.
    TESSERA_RETURN_IF_ERROR(files.Remove(path));
    TESSERA_ASSIGN_OR_RETURN(
        const std::unique_ptr<RowFileWriter> writer,
        RowFileWriter::Create(files, path, partitions.partition_count(), tables.size()));
    for (uint32_t t = 0; t < tables.size(); ++t) {
      for (const PartitionId partition : partitions.owned()) {
        TESSERA_RETURN_IF_ERROR(keep_going());
        TESSERA_RETURN_IF_ERROR(
            WritePartition(*writer, TableIndex(t), *tables[t], partition, written.rows[t]));
      }
    }
    TESSERA_ASSIGN_OR_RETURN(v1::CheckpointFile file, writer->Finish());
    PassFailpoint("ps.checkpoint.written");
    file.set_layer(static_cast<uint32_t>(written.files.size()));
    written.files.push_back(std::move(file));
    return absl::OkStatus();
  };
  const absl::Status status = write();
  if (status.ok()) return std::move(written);
  DropCut(tables);
  return status;
}

void DropCut(const Tables& tables) {
  for (const auto& table : tables) table->store().DropCut();
}

absl::StatusOr<WrittenPart> WriteTables(FileSystem& files, const std::string& folder,
                                        const CheckpointPart& part, const WrittenPart* base,
                                        const PartitionSet& partitions, const Tables& tables,
                                        KeepGoing keep_going) {
  TESSERA_ASSIGN_OR_RETURN(PartCut cut, PrepareCut(files, folder, part, base));
  CutTables(tables, cut);
  return WriteCut(files, std::move(cut), partitions, tables, keep_going);
}

}  // namespace tessera::ps
