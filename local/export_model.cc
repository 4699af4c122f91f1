#include "local/export_model.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "common/file_system.h"
#include "common/job/dense_layout.h"
#include "common/job/job_tables.h"
#include "common/round_up.h"
#include "common/status_macros.h"
#include "worker/dense/model.h"
#include "worker/dense/model_inputs.h"
#include "worker/new_model.h"
#include "worker/onnx/export.h"
#include "worker/onnx/onnx_file.h"
#include "worker/onnx/safetensors.h"
#include "worker/parameters/dense_blocks.h"

namespace tessera::local {
namespace {

// Calls visit(key, embedding) for every row of a table, partition after partition.
template <typename Visit>
absl::Status ForEachRow(const CheckpointReader& reader, TableIndex table, KeepGoing keep_going,
                        const Visit& visit) {
  const uint32_t dim = reader.manifest().tables(static_cast<int>(table.value())).spec().dim();
  for (uint32_t p = 0; p < reader.partition_count(); ++p) {
    TESSERA_RETURN_IF_ERROR(keep_going());
    TESSERA_ASSIGN_OR_RETURN(const PartitionRows rows, reader.Read(table, PartitionId(p)));
    for (uint64_t i = 0; i < rows.rows(); ++i) {
      TESSERA_RETURN_IF_ERROR(visit(rows.key(i), rows.values(i).subspan(0, dim)));
    }
  }
  return absl::OkStatus();
}

// Reads the dense parameters, flat, from their blocks.
absl::StatusOr<std::vector<float>> ReadDense(const CheckpointReader& reader, const char* name,
                                             const DenseLayout& layout, KeepGoing keep_going) {
  std::vector<float> flat(layout.floats());
  if (flat.empty()) return flat;
  TESSERA_ASSIGN_OR_RETURN(const TableIndex table, reader.FindTable(name));
  absl::flat_hash_map<uint64_t, const DenseLayout::Block*> missing;
  for (const DenseLayout::Block& block : layout.blocks()) missing[block.key] = &block;
  uint64_t found = 0;
  TESSERA_RETURN_IF_ERROR(
      ForEachRow(reader, table, keep_going, [&](uint64_t key, absl::Span<const float> values) {
        ++found;
        const auto block = missing.find(key);
        if (block == missing.end() || values.size() != kDenseBlockFloats) return absl::OkStatus();
        TESSERA_RETURN_IF_ERROR(
            WithContext(DenseLayout::CheckPadding(*block->second, values.data()),
                        absl::StrCat("table \"", name, "\"")));
        std::copy_n(values.begin(), block->second->floats,
                    flat.begin() + static_cast<int64_t>(block->second->begin));
        missing.erase(block);
        return absl::OkStatus();
      }));
  if (found != layout.blocks().size() || !missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "table \"", name, "\": found ", found, " blocks, ", layout.blocks().size() - missing.size(),
        " of the ", layout.blocks().size(), " that are expected for the ", flat.size(),
        " floats of this model; was it built from another file, or by another version?"));
  }
  return flat;
}

struct DenseParameters {
  std::vector<float> served;  // the average if the job keeps one, else the trained parameters
  std::vector<float> statistics;
};

absl::StatusOr<DenseParameters> ReadParameters(const CheckpointReader& reader,
                                               const worker::Model& model,
                                               const v1::ModelSpec& spec, KeepGoing keep_going) {
  const uint64_t trained = model.trained_floats(), statistics = model.statistics_floats();
  DenseParameters dense;
  if (!(spec.ema_decay() > 0)) {
    TESSERA_ASSIGN_OR_RETURN(
        dense.served,
        ReadDense(reader, kDenseTable, worker::TrainedLayout(spec, model), keep_going));
    TESSERA_ASSIGN_OR_RETURN(
        dense.statistics,
        ReadDense(reader, kDenseStatisticsTable, DenseLayout::Flat(statistics), keep_going));
    return dense;
  }
  // The average begins with the first block after the statistics (worker/job_context.h).
  const uint64_t begin = RoundUp(statistics, kDenseBlockFloats);
  TESSERA_ASSIGN_OR_RETURN(
      dense.statistics,
      ReadDense(reader, kDenseStatisticsTable, DenseLayout::Flat(begin + trained), keep_going));
  dense.served.assign(dense.statistics.begin() + static_cast<int64_t>(begin),
                      dense.statistics.end());
  dense.statistics.resize(statistics);
  return dense;
}

// As ForEachRow, with rows as workers get them.
template <typename Visit>
absl::Status ForEachServedRow(const CheckpointReader& reader, TableIndex table,
                              KeepGoing keep_going, const Visit& visit) {
  const v1::TableSpec& spec = reader.manifest().tables(static_cast<int>(table.value())).spec();
  std::vector<float> served;
  return ForEachRow(reader, table, keep_going, [&](uint64_t key, absl::Span<const float> row) {
    served.assign(row.begin(), row.end());
    for (float& value : served) value = worker::ServedValue(spec, value);
    return visit(key, absl::MakeConstSpan(served));
  });
}

absl::StatusOr<worker::InlineTable> ReadInline(const CheckpointReader& reader, TableIndex table,
                                               KeepGoing keep_going) {
  worker::InlineTable inlined;
  TESSERA_RETURN_IF_ERROR(
      ForEachServedRow(reader, table, keep_going, [&](uint64_t key, absl::Span<const float> row) {
        inlined.keys.push_back(key);
        inlined.rows.insert(inlined.rows.end(), row.begin(), row.end());
        return absl::OkStatus();
      }));
  return inlined;
}

template <typename T>
absl::string_view Bytes(const T* values, size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};
}

// The distribution of a row's initial numbers; empty: they are constant.
std::string Drawn(const v1::InitializerSpec& initializer) {
  switch (initializer.kind_case()) {
    case v1::InitializerSpec::kNormal:
      return absl::StrCat("normal, mean ", initializer.normal().mean(), ", stddev ",
                          initializer.normal().stddev());
    case v1::InitializerSpec::kUniform:
      return absl::StrCat("uniform from ", initializer.uniform().min(), " to ",
                          initializer.uniform().max());
    default:
      return "";
  }
}

ExportReport::Table TableReport(const worker::Model::Input& input,
                                const v1::CheckpointTable& stored) {
  ExportReport::Table report;
  report.name = input.table;
  report.rows = stored.rows();
  report.dim = input.dim;
  report.unseen_value = worker::UnseenValue(stored.spec());
  report.unseen_drawn = Drawn(stored.spec().initializer());
  return report;
}

// The path of the file for the rows of a table that is too large for `file`.
absl::StatusOr<std::string> PathBeside(const std::string& file, const ExportReport::Table& table) {
  TESSERA_ASSIGN_OR_RETURN(const Destination destination, DestinationOf(file));
  if (destination.special != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        file, ": is a ", destination.special, ", and the ", table.rows, " rows of table ",
        table.name, " are written beside it; name a regular file, or raise --inline-rows"));
  }
  std::filesystem::path beside = file;
  beside.replace_extension(absl::StrCat(".", table.name, ".safetensors"));
  std::error_code error;
  if (std::filesystem::is_directory(beside, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(beside.string(), ": is a folder, and the rows of table ", table.name,
                     " are written there; move it away, or name another file"));
  }
  return beside.string();
}

// Writes all keys, then all rows, in two walks over the table, so that it holds neither. The file
// is complete but for its name.
absl::StatusOr<std::unique_ptr<worker::SafetensorsWriter>> WriteBeside(
    const CheckpointReader& reader, const ExportReport::Table& report, KeepGoing keep_going) {
  TESSERA_ASSIGN_OR_RETURN(const TableIndex table, reader.FindTable(report.name));
  const std::vector<worker::SafetensorsWriter::Tensor> tensors = {
      {"keys", "U64", {report.rows}, report.rows * sizeof(uint64_t)},
      {"rows", "F32", {report.rows, report.dim}, report.rows * report.dim * sizeof(float)}};
  TESSERA_ASSIGN_OR_RETURN(auto writer, worker::SafetensorsWriter::Create(
                                            PosixFileSystem(), report.file, tensors,
                                            {{"table", report.name},
                                             {"unseen_value", absl::StrCat(report.unseen_value)}}));
  TESSERA_RETURN_IF_ERROR(ForEachRow(
      reader, table, keep_going,
      [&](uint64_t key, absl::Span<const float>) { return writer->Append(Bytes(&key, 1)); }));
  TESSERA_RETURN_IF_ERROR(
      ForEachServedRow(reader, table, keep_going, [&](uint64_t, absl::Span<const float> row) {
        return writer->Append(Bytes(row.data(), row.size()));
      }));
  TESSERA_RETURN_IF_ERROR(writer->Close());
  return writer;
}

std::vector<std::string> Described(
    const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values) {
  std::vector<std::string> lines;
  for (const onnx::ValueInfoProto& value : values) {
    const auto& type = value.type().tensor_type();
    std::string dims;
    for (const auto& dim : type.shape().dim()) {
      absl::StrAppend(&dims, dims.empty() ? "" : ", ",
                      dim.has_dim_value() ? absl::StrCat(dim.dim_value()) : dim.dim_param());
    }
    lines.push_back(absl::StrCat(
        value.name(), type.elem_type() == onnx::TensorProto::INT64 ? " int64 [" : " float32 [",
        dims, "]"));
  }
  return lines;
}

}  // namespace

absl::StatusOr<ExportReport> ExportCheckpoint(const ExportOptions& options, KeepGoing keep_going) {
  FileSystem& fs = PosixFileSystem();
  TESSERA_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest,
                           VerifyCheckpoint(fs, options.checkpoint, keep_going));
  TESSERA_ASSIGN_OR_RETURN(const auto reader,
                           CheckpointReader::Open(fs, options.checkpoint, std::move(manifest)));
  const v1::JobSpec& spec = reader->manifest().spec();
  if (!spec.model().onnx_file().empty() && !options.data_root.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model comes from ", spec.model().onnx_file(),
                     ", which is not in the checkpoint; name the folder of the data with --data"));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string onnx_file,
                           worker::ReadOnnxFile(spec, fs, options.data_root.value_or("")));
  TESSERA_ASSIGN_OR_RETURN(const auto model,
                           worker::NewModel(spec, worker::InputsOf(spec).dense_width, onnx_file));
  ExportReport report;
  report.step = reader->manifest().step();
  report.trained_floats = model->trained_floats();
  report.file = std::filesystem::absolute(options.output);
  std::map<std::string, worker::InlineTable> inlined;
  for (const worker::Model::Input& input : model->inputs()) {
    const bool is_described =
        std::any_of(report.tables.begin(), report.tables.end(),
                    [&](const ExportReport::Table& table) { return table.name == input.table; });
    if (is_described) continue;  // several inputs read it
    TESSERA_ASSIGN_OR_RETURN(const TableIndex table, reader->FindTable(input.table));
    const v1::CheckpointTable& stored = reader->manifest().tables(static_cast<int>(table.value()));
    ExportReport::Table& described = report.tables.emplace_back(TableReport(input, stored));
    if (stored.rows() <= options.inline_rows) {
      TESSERA_ASSIGN_OR_RETURN(inlined[input.table], ReadInline(*reader, table, keep_going));
    } else {
      TESSERA_ASSIGN_OR_RETURN(described.file, PathBeside(report.file, described));
    }
  }
  TESSERA_ASSIGN_OR_RETURN(const DenseParameters dense,
                           ReadParameters(*reader, *model, spec.model(), keep_going));
  TESSERA_ASSIGN_OR_RETURN(
      const onnx::ModelProto file,
      worker::ExportModel(spec, *model, dense.served, dense.statistics, inlined));
  // No file gets its name before all are written, so that an error leaves an earlier export whole.
  std::vector<std::unique_ptr<worker::SafetensorsWriter>> unnamed;
  for (const ExportReport::Table& table : report.tables) {
    if (table.file.empty()) continue;
    TESSERA_ASSIGN_OR_RETURN(auto writer, WriteBeside(*reader, table, keep_going));
    unnamed.push_back(std::move(writer));
  }
  TESSERA_RETURN_IF_ERROR(WriteOutput(report.file, file.SerializeAsString()));
  for (const auto& writer : unnamed) TESSERA_RETURN_IF_ERROR(writer->Finish());
  report.inputs = Described(file.graph().input());
  report.outputs = Described(file.graph().output());
  return report;
}

}  // namespace tessera::local
