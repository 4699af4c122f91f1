#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_file_writer.h"
#include "common/file_system.h"
#include "common/partition.h"
#include "common/status_macros.h"

namespace tessera {

// A model as tests write it down: table -> key -> row.
struct TestRow {
  uint32_t frequency = 0;
  uint64_t last_step = 0;
  std::vector<float> values;  // dim, then slots
  bool operator==(const TestRow&) const = default;
};
struct TestTable {
  std::string name;
  uint32_t dim = 0;
  uint32_t slot_floats = 0;
  std::map<uint64_t, TestRow> rows;
};

// Keys of every size, and an empty table between two that have rows.
inline std::vector<TestTable> SmallModel() {
  std::vector<TestTable> tables = {{"user", 2, 1, {}}, {"empty", 4, 8, {}}, {"dense", 3, 0, {}}};
  for (uint64_t key : {uint64_t{0}, uint64_t{7}, uint64_t{1} << 32, (uint64_t{1} << 33) + 5,
                       uint64_t{1} << 63, ~uint64_t{0}}) {
    const float x = static_cast<float>(key % 1000);
    tables[0].rows[key] = {static_cast<uint32_t>(key % 11), key / 2, {x, -x - 0.5f, 0.1f}};
  }
  for (uint64_t block = 0; block < 3; ++block) {
    tables[2].rows[block] = {1, 9, {1.5f, static_cast<float>(block), -0.0f}};
  }
  return tables;
}

// Writes the rows of `tables` whose partition is `part` modulo `parts`, as that ps would.
inline absl::StatusOr<v1::CheckpointFile> WriteTestPart(FileSystem& fs, const std::string& path,
                                                        const std::vector<TestTable>& tables,
                                                        uint32_t partitions, uint32_t part,
                                                        uint32_t parts) {
  TESSERA_ASSIGN_OR_RETURN(
      auto writer,
      RowFileWriter::Create(fs, path, partitions, static_cast<uint32_t>(tables.size())));
  for (uint32_t t = 0; t < tables.size(); ++t) {
    for (uint32_t p = part; p < partitions; p += parts) {
      std::vector<std::pair<uint64_t, const TestRow*>> rows;
      for (const auto& [key, row] : tables[t].rows) {
        if (PartitionOf(key, partitions) == PartitionId(p)) rows.emplace_back(key, &row);
      }
      TESSERA_RETURN_IF_ERROR(writer->BeginBlock(TableIndex(t), PartitionId(p), rows.size(),
                                                 tables[t].dim + tables[t].slot_floats));
      for (const auto& [key, row] : rows) {
        TESSERA_RETURN_IF_ERROR(writer->AddRow(key, row->frequency, row->last_step, row->values));
      }
      TESSERA_RETURN_IF_ERROR(writer->EndBlock());
    }
  }
  return writer->Finish();
}

// What changed since the layers below, in one file: rows of `tables`, and by table the keys that
// are gone.
inline absl::StatusOr<v1::CheckpointFile> WriteTestLayer(
    FileSystem& fs, const std::string& path, const std::vector<TestTable>& tables,
    const std::vector<std::set<uint64_t>>& gone, uint32_t partitions, uint32_t layer) {
  TESSERA_ASSIGN_OR_RETURN(
      auto writer,
      RowFileWriter::Create(fs, path, partitions, static_cast<uint32_t>(tables.size())));
  for (uint32_t t = 0; t < tables.size(); ++t) {
    for (uint32_t p = 0; p < partitions; ++p) {
      const auto here = [&](uint64_t key) {
        return PartitionOf(key, partitions) == PartitionId(p);
      };
      std::vector<uint64_t> keys;
      std::copy_if(gone[t].begin(), gone[t].end(), std::back_inserter(keys), here);
      TESSERA_RETURN_IF_ERROR(writer->BeginBlock(TableIndex(t), PartitionId(p), keys.size(), 0));
      for (const uint64_t key : keys) TESSERA_RETURN_IF_ERROR(writer->AddRow(key, 0, 0, {}));
      TESSERA_RETURN_IF_ERROR(writer->EndBlock());
      const auto& all = tables[t].rows;
      const auto rows =
          std::count_if(all.begin(), all.end(), [&](const auto& row) { return here(row.first); });
      TESSERA_RETURN_IF_ERROR(writer->BeginBlock(TableIndex(t), PartitionId(p),
                                                 static_cast<uint64_t>(rows),
                                                 tables[t].dim + tables[t].slot_floats));
      for (const auto& [key, row] : all) {
        if (!here(key)) continue;
        TESSERA_RETURN_IF_ERROR(writer->AddRow(key, row.frequency, row.last_step, row.values));
      }
      TESSERA_RETURN_IF_ERROR(writer->EndBlock());
    }
  }
  TESSERA_ASSIGN_OR_RETURN(v1::CheckpointFile file, writer->Finish());
  file.set_layer(layer);
  return file;
}

// A whole checkpoint by `parts` ps.
inline absl::Status WriteTestCheckpoint(FileSystem& fs, const std::string& folder,
                                        const std::vector<TestTable>& tables, uint32_t partitions,
                                        uint32_t parts) {
  TESSERA_RETURN_IF_ERROR(fs.CreateFolder(folder));
  v1::CheckpointManifest manifest;
  manifest.set_job_id("job-1");
  manifest.set_step(12);
  manifest.set_partition_count(partitions);
  for (const TestTable& table : tables) {
    v1::CheckpointTable& out = *manifest.add_tables();
    out.mutable_spec()->set_name(table.name);
    out.mutable_spec()->set_dim(table.dim);
    out.set_slot_floats(table.slot_floats);
    out.set_rows(table.rows.size());
  }
  for (uint32_t part = 0; part < parts; ++part) {
    TESSERA_ASSIGN_OR_RETURN(*manifest.add_files(),
                             WriteTestPart(fs, folder + "/rows-" + std::to_string(part), tables,
                                           partitions, part, parts));
  }
  return WriteManifest(fs, folder, manifest);
}

}  // namespace tessera
