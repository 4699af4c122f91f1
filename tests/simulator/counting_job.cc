#include "tests/simulator/counting_job.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "common/hash.h"
#include "common/job/dense_layout.h"
#include "common/random.h"
#include "common/status_macros.h"

namespace tessera::simulator {
namespace {

constexpr uint64_t kValidationRecords = 60;

uint64_t Draw(uint64_t record, uint64_t salt) { return Mix64(record * 31 + salt); }

}  // namespace

v1::JobSpec CountingJob::Spec() const {
  v1::JobSpec spec;
  spec.set_name("counting");
  spec.set_seed(options_.seed);
  v1::DataSpec& data = *spec.mutable_data();
  data.set_format(v1::CSV);
  v1::ColumnSpec& label = *data.add_columns();
  label.set_name("label");
  label.set_role(v1::LABEL);
  v1::ColumnSpec& key = *data.add_columns();
  key.set_name("key");
  key.set_role(v1::SPARSE);
  key.add_table("rows");
  data.mutable_train()->add_files("train.csv");
  if (options_.validates) data.mutable_validation()->add_files("validation.csv");
  if (options_.tests) data.mutable_test()->add_files("test.csv");
  data.set_shuffle_window_records(options_.records / 4);
  data.set_shard_records(options_.records / 12);
  v1::TableSpec& table = *spec.add_tables();
  table.set_name("rows");
  table.set_dim(kDim);
  table.mutable_initializer()->mutable_constant();
  table.mutable_optimizer()->set_learning_rate(1);
  table.mutable_optimizer()->mutable_sgd();
  if (options_.expires) table.mutable_expiry()->set_after_steps(3);
  if (options_.after_sightings > 1) {
    table.mutable_admission()->set_after_sightings(options_.after_sightings);
  }
  if (options_.probability < 1) table.mutable_admission()->set_probability(options_.probability);
  spec.mutable_model()->set_name("lr");
  spec.mutable_model()->mutable_optimizer()->set_learning_rate(1);
  spec.mutable_model()->mutable_optimizer()->mutable_sgd();
  spec.mutable_train()->set_batch_size(options_.batch);
  spec.mutable_train()->set_epochs(options_.epochs);
  spec.mutable_consistency()->set_sparse(options_.consistency);
  spec.mutable_consistency()->set_dense(options_.consistency);
  spec.mutable_consistency()->set_max_lead(options_.max_lead);
  spec.mutable_recovery()->set_push_log(options_.push_log);
  spec.mutable_recovery()->set_replicas(options_.replicas);
  if (options_.partial) spec.mutable_recovery()->set_mode(v1::RecoverySpec::PARTIAL);
  if (options_.poison.has_value()) {
    spec.mutable_recovery()->set_set_aside_after(4);
    data.set_max_bad_records(1'000'000);
  }
  for (const char* const metric : {"auc", "logloss"})
    spec.mutable_evaluation()->add_metrics(metric);
  spec.mutable_evaluation()->set_monitor("logloss");
  spec.mutable_checkpoint()->set_every_steps(options_.checkpoint_steps);
  spec.mutable_checkpoint()->set_keep_best(options_.keep_best && options_.validates);
  return spec;
}

bool CountingJob::HasPoison(const std::vector<uint64_t>& records) const {
  return options_.poison.has_value() &&
         std::find(records.begin(), records.end(), *options_.poison) != records.end();
}

v1::UnitResult CountingJob::Count(const v1::CountRecords& unit) const {
  v1::UnitResult result;
  for (const std::string& pattern : unit.patterns()) {
    v1::FileRecords& file = *result.add_files();
    file.set_path(pattern);
    file.set_bytes(12345);
    file.set_records(pattern == "train.csv" ? options_.records : kValidationRecords);
  }
  return result;
}

std::vector<uint64_t> CountingJob::RecordsOf(
    const google::protobuf::RepeatedPtrField<v1::RecordRange>& ranges) {
  std::vector<uint64_t> records;
  for (const v1::RecordRange& range : ranges) {
    for (uint64_t r = range.begin(); r < range.end(); ++r) records.push_back(r);
  }
  return records;
}

std::vector<uint64_t> CountingJob::KeysOf(uint64_t record) {
  // A few that nearly every batch has, and many that few have.
  return {Mix64(Draw(record, 1) % 5), Mix64(100 + Draw(record, 2) % 60)};
}

CountingJob::Rows CountingJob::Gradients(const std::vector<uint64_t>& records, const Rows& pulled) {
  Rows gradients;
  for (const uint64_t record : records) {
    for (const uint64_t key : KeysOf(record)) {
      auto& [count, value] = gradients[key];
      count -= 1;
      const float x = static_cast<float>(record % 97) * 0.01f;
      value -= 0.1f * x - 0.03f * pulled.at(key).second;
    }
  }
  return gradients;
}

std::vector<float> CountingJob::DenseGradient(const std::vector<uint64_t>& records) {
  std::vector<float> gradient(kDenseBlockFloats);
  gradient[0] = -static_cast<float>(records.size());
  return gradient;
}

float CountingJob::Score(uint64_t record, const Rows& rows) const {
  float counts = 0;
  for (const uint64_t key : KeysOf(record)) {
    if (const auto row = rows.find(key); row != rows.end()) counts += row->second.first;
  }
  const float sign = record % 2 == options_.seed % 2 ? 1 : -1;
  return 0.1f * static_cast<float>(record % 7) + 0.001f * sign * counts;
}

absl::Status CountingJob::CheckEvaluation(const v1::Evaluation& evaluation, uint64_t epochs) const {
  Rows rows;
  for (const auto& [key, count] : Counts(epochs)) rows[key].first = static_cast<float>(count);
  double loss = 0;
  for (uint64_t r = 0; r < kValidationRecords; ++r) {
    loss += std::log1p(std::exp((r % 2 == 1 ? -1.0 : 1.0) * double{Score(r, rows)}));
  }
  loss /= kValidationRecords;
  const double found = evaluation.metrics().at("logloss");
  // One count of one row is 8e-6 and more.
  if (evaluation.samples() == kValidationRecords && std::abs(found - loss) < 1e-6) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrFormat(
      "an evaluation (%s, step %d) of %d samples found a logloss of %.7f, expected %d and %.7f",
      evaluation.split(), evaluation.step(), evaluation.samples(), found, kValidationRecords,
      loss));
}

absl::StatusOr<CountingJob::Model> CountingJob::ReadModel(FileSystem& files,
                                                          const std::string& folder) {
  const std::string path = absl::StrCat("root/", folder);
  TESSERA_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, VerifyCheckpoint(files, path));
  TESSERA_ASSIGN_OR_RETURN(const auto reader, CheckpointReader::Open(files, path, manifest));
  Model model;
  model.samples = manifest.position().samples();
  model.set_aside = manifest.position().set_aside_records();
  for (uint32_t p = 0; p < reader->partition_count(); ++p) {
    for (const uint32_t table : {kTable, kDense}) {
      TESSERA_ASSIGN_OR_RETURN(const PartitionRows rows,
                               reader->Read(TableIndex(table), PartitionId(p)));
      for (uint64_t i = 0; i < rows.rows(); ++i) {
        const absl::Span<const float> values = rows.values(i);
        // The dense block's key is 0, which is none of the table's.
        const uint64_t key = table == kDense ? 0 : rows.key(i);
        if (!model.rows.emplace(key, std::pair(values[0], values[1])).second) {
          return absl::DataLossError(absl::StrCat("key ", key, " has two rows"));
        }
        if (table != kDense) model.histories[key] = {rows.last_step(i), rows.frequency(i)};
      }
    }
  }
  return model;
}

bool CountingJob::IsChosen(uint64_t key) const {
  if (options_.probability == 1) return true;
  const uint64_t stream = StreamKey(RandomFor::kAdmission, options_.seed, NameHash("rows"), key);
  return RandomUniformDouble(stream, 0) < options_.probability;
}

std::map<uint64_t, uint64_t> CountingJob::Counts(uint64_t epochs) const {
  std::map<uint64_t, uint64_t> counts;
  for (uint64_t r = 0; r < options_.records; ++r) {
    for (const uint64_t key : KeysOf(r)) counts[key] += epochs;
  }
  if (options_.poison.has_value()) {
    for (const uint64_t key : KeysOf(*options_.poison)) counts[key] -= epochs;
  }
  std::erase_if(counts, [this](const auto& key) { return !IsChosen(key.first); });
  return counts;
}

absl::Status CountingJob::Check(const Model& model, uint64_t lost_steps) const {
  // The best one may not have been written: then it is the last.
  const uint64_t samples = model.samples + model.set_aside;
  const uint64_t epochs = samples / options_.records;
  const bool best = options_.keep_best && options_.validates;
  if (samples % options_.records != 0 || epochs > options_.epochs || epochs == 0 ||
      (epochs != options_.epochs && !best)) {
    return absl::DataLossError(absl::StrCat("the model has seen ", model.samples, " samples, and ",
                                            model.set_aside, " were set aside"));
  }
  std::map<uint64_t, uint64_t> expected = Counts(epochs);
  expected[0] = model.samples;
  const auto found = [&model](uint64_t key) {
    const auto row = model.rows.find(key);
    return row == model.rows.end() ? 0 : double{row->second.first};
  };
  const auto most_lost = static_cast<double>(lost_steps * options_.batch);  // records
  // Of batches that were set aside nobody knows here which records they had; there are as many as
  // were said, and the poison is among them.
  const double keys = static_cast<double>(KeysOf(0).size());
  double missing = options_.poison.has_value() ? keys * static_cast<double>(epochs) : 0;
  uint64_t wrong = 0;
  std::string first;
  for (const auto& [key, count] : expected) {
    const double less = static_cast<double>(count) - found(key);
    if (key != 0) missing += less;
    // The dense block has one of each record.
    const bool may_lack =
        key == 0 ? less <= most_lost : lost_steps > 0 || model.set_aside > 0 || MayLack();
    if (less == 0 || (less > 0 && may_lack)) continue;
    if (wrong++ == 0) {
      first = absl::StrCat("key ", key, " counts ", found(key), ", expected ", count);
    }
  }
  if (wrong > 0) {
    return absl::DataLossError(absl::StrCat(wrong, " of ", expected.size(), " rows are wrong, ",
                                            model.rows.size(), " are there; the first: ", first));
  }
  const double least = keys * static_cast<double>(model.set_aside);
  const double most = least + keys * most_lost;
  if (!MayLack() && (missing < least || missing > most)) {
    return absl::DataLossError(
        absl::StrCat("the rows lack ", missing, " counts, expected ", least, " to ", most));
  }
  for (const auto& [key, row] : model.rows) {
    if (!expected.contains(key)) return absl::DataLossError(absl::StrCat("nobody has key ", key));
  }
  return absl::OkStatus();
}

}  // namespace tessera::simulator
