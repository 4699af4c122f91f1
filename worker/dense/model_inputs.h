#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tessera/v1/job.pb.h"

namespace tessera::worker {

// The inputs that a job's data offers to its model. The dense columns side by side, [batch,
// dense_width]. For every table that pooled sparse columns name, the pooled rows of these columns
// side by side, [batch, columns, dim], in the order of the spec. For every column whose pooling is
// SEQUENCE, its rows in each of its tables, [batch, max_length, dim], and its lengths, [batch, 1].
// A value type.
struct ModelInputs {
  struct DenseColumn {
    std::string name;
    uint32_t offset = 0;
    uint32_t width = 1;
  };
  struct Table {
    std::string name;
    uint32_t index = 0;  // in spec.tables, and so in TablesOf(spec)
    uint32_t dim = 0;
    std::vector<std::string> columns;
  };
  uint32_t dense_width = 0;
  std::vector<DenseColumn> dense_columns;
  std::vector<Table> tables;
  struct Sequence {
    std::string column;
    uint32_t sparse_index = 0;  // among the SPARSE columns
    uint32_t max_length = 0;
    std::vector<Table> tables;  // without columns
  };
  std::vector<Sequence> sequences;
  // Tables of spec.tables that no column names.
  std::vector<std::string> unread_tables;

  const Table* FindTable(const std::string& name) const;
  const Sequence* FindSequence(const std::string& column) const;
  std::vector<std::string> TableNames() const;
};

// The name of the input of all dense columns.
inline constexpr char kDenseInput[] = "dense";

// The names of the inputs of a sequence's rows in a table, and of its lengths.
std::string SequenceInput(const std::string& column, const std::string& table);
std::string LengthInput(const std::string& column);

ModelInputs InputsOf(const v1::JobSpec& spec);

}  // namespace tessera::worker
