#include "local/check.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/job/defaults.h"
#include "common/job/job_tables.h"
#include "common/job/optimizer.h"
#include "common/job/validate.h"
#include "common/partition.h"
#include "common/round_up.h"
#include "common/rpc/channels.h"
#include "common/status_macros.h"
#include "cuda/dense/products.h"
#include "local/data_warnings.h"
#include "worker/card/card_pooling.h"
#include "worker/data/data_source.h"
#include "worker/data/glob.h"
#include "worker/dense/executor.h"
#include "worker/dense/model.h"
#include "worker/dense/unread_columns.h"
#include "worker/job_context.h"
#include "worker/new_model.h"
#include "worker/onnx/onnx_file.h"
#include "worker/sample_groups.h"

namespace tessera::local {
namespace {

// Besides its numbers, which are padded: a row's head, 16, and its place in the map of its
// partition with the free ones beside it, 10 to 15 (ps/ROWS.md).
constexpr uint64_t kRowOverheadBytes = 32;
constexpr uint64_t kRowAlignment = 8;
// For each table and partition: its map of rows, and the notes of a cut and of the tier below.
constexpr uint64_t kPartitionBytes = 192;
// A process without data: libraries, threads, RPC buffers.
constexpr uint64_t kProcessBytes = uint64_t{64} << 20;

uint64_t DenseWidth(const v1::DataSpec& data) {
  uint64_t width = 0;
  for (const v1::ColumnSpec& column : data.columns()) {
    if (column.role() != v1::DENSE) continue;
    width += data.format() == v1::LIBSVM ? column.index_end() - column.index_begin() : 1;
  }
  return width;
}

// The content of the files, by their first records. Without files: one id a column, and more
// records than a window has.
class DataSeen {
 public:
  void Add(const worker::Schema& schema, const worker::Batch& batch) {
    ids_.resize(schema.columns.size());
    read_ += batch.size;
    for (size_t i = 0; i < batch.sparse.size(); ++i) {
      ids_[schema.sparse[i]] += static_cast<double>(batch.sparse[i].keys.size());
    }
  }
  void AddSplit(uint64_t records) { records_ = std::max(records_, records); }

  // The records of the largest split.
  uint64_t records() const { return records_ == 0 ? UINT64_MAX : records_; }
  // The mean number of ids that a record has in each of data.columns; empty: not known.
  std::vector<double> IdsOfARecord() const {
    std::vector<double> mean = ids_;
    for (double& ids : mean) ids /= static_cast<double>(read_);
    return read_ == 0 ? std::vector<double>() : mean;
  }

 private:
  uint64_t records_ = 0;
  uint64_t read_ = 0;
  std::vector<double> ids_;
};

// Of the rows that a card is to keep (train.row_cache): one that is trained lies there twice, with
// its optimizer's slots (worker/card/kept_rows.h).
uint64_t RowCacheBytes(const v1::JobSpec& spec, uint64_t keys) {
  const v1::RowCacheSpec& cache = spec.train().row_cache();
  uint64_t row_floats = 0;
  for (const v1::TableSpec& table : spec.tables()) {
    row_floats += cache.write_back()
                      ? 2 * (table.dim() + SlotsOf(table.optimizer()).Floats(table.dim()))
                      : table.dim();
  }
  const double of_share = double{cache.share()} * static_cast<double>(keys * row_floats);
  return cache.bytes() + static_cast<uint64_t>(of_share * sizeof(float));
}

// What a worker's card holds: the dense graph for one batch with its parameters and gradients,
// cuBLAS's workspace, kept rows, the rows of two batches and the gradients of one. The last three
// are taken a quarter larger. What row_cache.write_back needs besides, for changes on their way and
// for dense parameters that the card trains, is left out.
uint64_t CardBytes(const v1::JobSpec& spec, const worker::Model& model, uint32_t batch,
                   uint64_t batch_row_bytes, uint64_t keys) {
  return worker::Executor::CardBytesFor(model, batch) + cuda::kWorkspaceFloats * sizeof(float) +
         RowCacheBytes(spec, keys) + 3 * (batch_row_bytes + batch_row_bytes / 4);
}

MemoryEstimate Estimate(const v1::JobSpec& spec, const worker::Model& model,
                        const CheckOptions& options, const DataSeen& data) {
  MemoryEstimate memory;
  uint64_t row_bytes = 0;
  for (const v1::TableSpec& table : spec.tables()) {
    const uint32_t slots = SlotsOf(table.optimizer()).Floats(table.dim());
    const size_t number_bytes = table.row_type() == v1::BFLOAT16 ? 2 : sizeof(float);
    const uint64_t numbers = table.dim() * number_bytes + slots * sizeof(float);
    memory.tables.push_back(
        {table.name(), table.dim(), slots, RoundUp(numbers, kRowAlignment) + kRowOverheadBytes});
    row_bytes += memory.tables.back().row_bytes;
  }
  memory.dense_floats = model.trained_floats() + model.statistics_floats() +
                        (spec.model().ema_decay() > 0 ? model.trained_floats() : 0);
  const std::vector<double> ids = data.IdsOfARecord();
  const BatchRowBytes batch_rows =
      BatchRowBytesOf(spec, SamplesOfAWorker(spec, options.workers), ids);
  memory.batch_message_bytes = batch_rows.on_wire;
  const uint64_t dense_bytes =
      memory.dense_floats * sizeof(float) * (1 + SlotsOf(spec.model().optimizer()).Floats(1));
  const uint64_t partition_bytes =
      static_cast<uint64_t>(spec.tables_size()) * kDefaultPartitions * kPartitionBytes;
  memory.ps_bytes =
      kProcessBytes + (options.keys * row_bytes + partition_bytes + dense_bytes) / options.ps;

  // A worker holds two windows of records, the values and gradients of one batch, the dense
  // parameters with their gradients, and the rows of two batches with their gradients. With a card
  // the values are there; the worker holds the rows of the batches that more threads prepare, and
  // copies to and from the card: of the dense parameters and their gradients, and two sets of rows
  // and gradients, a quarter larger. If gradients are all-reduced, it also keeps the sums and what
  // its neighbour has taken.
  double record_bytes = sizeof(float) * static_cast<double>(1 + DenseWidth(spec.data()));
  for (int i = 0; i < spec.data().columns_size(); ++i) {
    if (spec.data().columns(i).role() != v1::SPARSE) continue;
    const double each = ids.empty() ? 1 : ids[static_cast<size_t>(i)];
    record_bytes += each * sizeof(uint64_t) + sizeof(uint32_t);
  }
  const uint64_t records =
      std::min(2 * uint64_t{ShuffleWindowRecords(spec.data())}, data.records());
  memory.window_bytes = static_cast<uint64_t>(static_cast<double>(records) * record_bytes);
  const auto batch = static_cast<uint32_t>(SamplesOfAWorker(spec, options.workers));
  const bool on_card = absl::StartsWith(spec.train().device(), "cuda");
  const uint64_t row_copies = on_card ? 4 + worker::CardPooling::kMostThreads - 1 + 5 : 4;
  const uint64_t dense_copies = (AllReduces(spec.train()) ? 5 : 3) + (on_card ? 2 : 0);
  memory.worker_bytes =
      kProcessBytes + memory.window_bytes +
      (on_card ? 0 : worker::Executor::BytesFor(model, batch, /*on_card=*/false)) +
      dense_copies * memory.dense_floats * sizeof(float) + row_copies * batch_rows.in_memory;
  if (on_card)
    memory.card_bytes = CardBytes(spec, model, batch, batch_rows.in_memory, options.keys);
  return memory;
}

absl::Status CheckRequest(const v1::JobSpec& spec, const CheckOptions& options) {
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  request.set_workers(options.workers);
  request.set_ps(options.ps);
  request.set_task(v1::TRAIN);
  return ValidateSubmit(request);
}

// Counts the records that were read, and their runs of equal groups.
struct GroupRuns {
  int32_t column = -1;  // FindGroupColumn
  uint64_t records = 0;
  uint64_t runs = 0;

  void Add(const worker::Batch& batch) {
    if (column < 0) return;
    records += batch.size;
    for (uint32_t row = 0; row < batch.size; row = worker::EndOfRun(batch, column, row)) ++runs;
  }
  // The runs are hardly longer than one record; a few records may stand together by chance.
  bool HardlyAny() const { return 10 * records < 11 * runs; }
};

// What is gathered from the first records of files.
struct Seen {
  DataSeen data;
  ColumnsSeen columns;
};

// The files that a split's patterns match. Opens each and reads a few of its records for `runs` and
// `seen`.
absl::StatusOr<std::vector<std::string>> CheckFiles(
    worker::DataSource& source, const std::string& data_root, const v1::SplitSpec& split,
    const std::string& path, uint64_t max_bad_records, GroupRuns* runs, Seen* seen) {
  std::set<std::string> files;
  for (int i = 0; i < split.files_size(); ++i) {
    auto matched = worker::ExpandPattern(PosixFileSystem(), data_root, split.files(i));
    if (!matched.ok()) {
      return WithContext(matched.status(), absl::StrCat(path, ".files[", i, "]"));
    }
    files.insert(matched->begin(), matched->end());
  }
  TESSERA_RETURN_IF_ERROR(
      WithContext(worker::RefusePackedTwins(data_root, files), path + ".files"));
  uint64_t split_records = 0;
  for (int i = 0; i < split.files_size(); ++i) {
    // Count reads the whole file once.
    const absl::StatusOr<std::vector<v1::FileRecords>> counted = source.Count({split.files(i)});
    if (!counted.ok()) {
      return WithContext(counted.status(), absl::StrCat(path, ".files[", i, "]"));
    }
    for (const v1::FileRecords& file : *counted) {
      split_records += file.records();
      v1::RecordRange range;
      range.set_path(file.path());
      range.set_end(std::min<uint64_t>(file.records(), 1000));
      range.set_file_bytes(file.bytes());
      const absl::StatusOr<worker::DataSource::Records> records = source.Read({&range, 1});
      TESSERA_RETURN_IF_ERROR(records.status());
      if (records->bad_records > 0 && records->batch.labels.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ".files[", i, "]: none of the first ", range.end(),
                         " records can be read: ", records->first_bad));
      }
      if (records->bad_records > max_bad_records) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ".files[", i, "]: ", records->bad_records, " of the first ",
                         range.end(), " records cannot be read, and data.max_bad_records allows ",
                         max_bad_records, "; the first: ", records->first_bad));
      }
      runs->Add(records->batch);
      seen->data.Add(source.schema(), records->batch);
      seen->columns.Add(records->batch);
    }
  }
  seen->data.AddSplit(split_records);
  return std::vector<std::string>(files.begin(), files.end());
}

// One for each column that nothing reads.
std::vector<std::string> WarningsOfColumns(const v1::JobSpec& spec, const worker::Model& model) {
  std::vector<std::string> warnings;
  const std::vector<std::string> unread = worker::UnreadColumns(spec, model);
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    if (std::find(unread.begin(), unread.end(), column.name()) == unread.end()) continue;
    warnings.push_back(absl::StrCat(
        "data.columns: column ", column.name(), " is read by nothing in the model",
        column.pooling() == v1::SEQUENCE
            ? "; its pooling is sequence, which models of behaviour read, and layers that name it"
            : ""));
  }
  return warnings;
}

// The model of a valid job; one in a file lies below `data_root`.
absl::StatusOr<std::unique_ptr<worker::Model>> ModelOf(
    const LoadedJob& job, const std::optional<std::string>& data_root) {
  const v1::JobSpec& spec = job.spec;
  if (!spec.model().onnx_file().empty() && !data_root.has_value()) {
    return job.sources.Locate(absl::InvalidArgumentError(
        "model.onnx_file: lies in the folder of the data; name that with --data"));
  }
  const absl::StatusOr<std::string> onnx_file =
      worker::ReadOnnxFile(spec, PosixFileSystem(), data_root.value_or(""));
  TESSERA_RETURN_IF_ERROR(job.sources.Locate(onnx_file.status()));
  absl::StatusOr<std::unique_ptr<worker::Model>> model =
      worker::NewModel(spec, static_cast<uint32_t>(DenseWidth(spec.data())), *onnx_file);
  TESSERA_RETURN_IF_ERROR(job.sources.Locate(model.status()));
  return model;
}

std::vector<std::string> WarningsOfModel(const v1::JobSpec& spec, const worker::Model& model) {
  std::vector<std::string> warnings = WarningsOfColumns(spec, model);
  for (std::string& warning : WarningsOfKeys(spec)) warnings.push_back(std::move(warning));
  return warnings;
}

// One for each file that is trained, the first split, and measured, another.
std::vector<std::string> WarningsOfSplits(const std::vector<CheckReport::Split>& splits) {
  std::vector<std::string> warnings;
  const std::vector<std::string>& trained = splits[0].files;
  for (size_t i = 1; i < splits.size(); ++i) {
    for (const std::string& file : splits[i].files) {
      if (std::find(trained.begin(), trained.end(), file) == trained.end()) continue;
      warnings.push_back(absl::StrCat("data.", splits[i].name, ".files: ", file,
                                      " is a file of data.", splits[0].name, ", too"));
    }
  }
  return warnings;
}

}  // namespace

absl::StatusOr<CheckReport> CheckJob(const LoadedJob& job, const CheckOptions& options) {
  const v1::JobSpec& spec = job.spec;
  TESSERA_RETURN_IF_ERROR(job.sources.Locate(CheckRequest(spec, options)));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<worker::Model> model,
                           ModelOf(job, options.data_root));
  CheckReport report;
  report.model = model->Summary();
  report.layers = model->graph().Layers();
  report.options.assign(model->options().begin(), model->options().end());
  report.warnings = WarningsOfModel(spec, *model);
  if (!options.data_root.has_value() || !options.read_data) {
    report.memory = Estimate(spec, *model, options, DataSeen());
    return report;
  }
  std::error_code error;
  if (!std::filesystem::is_directory(*options.data_root, error)) {
    return absl::NotFoundError(
        absl::StrCat("--data ", *options.data_root, ": no such folder; expected the data's"));
  }
  worker::DataSource::Options source_options;
  source_options.data_root = *options.data_root;
  source_options.scratch_folder = std::filesystem::temp_directory_path(error);
  source_options.labels = worker::LabelFormsOf(spec, *model);
  auto source = worker::DataSource::Open(spec.data(), source_options, PosixFileSystem());
  TESSERA_RETURN_IF_ERROR(job.sources.Locate(source.status()));
  Seen seen{DataSeen(), ColumnsSeen(spec)};
  for (const auto& [name, split] :
       {std::pair<std::string, const v1::SplitSpec*>{"train", &spec.data().train()},
        {"validation", &spec.data().validation()},
        {"test", &spec.data().test()}}) {
    GroupRuns runs;
    if (name == "train") {
      runs.column = worker::FindGroupColumn((*source)->schema(), spec.model().group_by());
    }
    auto files = CheckFiles(**source, *options.data_root, *split, absl::StrCat("data.", name),
                            spec.data().max_bad_records(), &runs, &seen);
    TESSERA_RETURN_IF_ERROR(job.sources.Locate(files.status()));
    report.splits.push_back({name, *std::move(files)});
    if (!runs.HardlyAny()) continue;
    report.warnings.push_back(absl::StrCat(
        "data.train.files: hardly any of the first records stand next to others of their ",
        spec.model().group_by(), " (model.group_by), and so few will meet others to be compared ",
        "with in a batch; sort the files by it"));
  }
  for (std::string& warning : WarningsOfSplits(report.splits)) {
    report.warnings.push_back(std::move(warning));
  }
  for (std::string& warning : seen.columns.Warnings()) {
    report.warnings.push_back(std::move(warning));
  }
  report.memory = Estimate(spec, *model, options, seen.data);
  // Only a warning: the sizes take ids as distinct, and an id that a batch has twice counts once.
  if (const absl::Status push =
          ValidatePush(spec, options.workers, options.ps, seen.data.IdsOfARecord());
      !push.ok()) {
    report.warnings.push_back(absl::StrCat(push.message(), ", if no id comes twice in them"));
  }
  return report;
}

absl::StatusOr<std::vector<std::string>> CheckModel(const LoadedJob& job) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<worker::Model> model, ModelOf(job, std::nullopt));
  return WarningsOfModel(job.spec, *model);
}

}  // namespace tessera::local
