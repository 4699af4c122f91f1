#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/v1/job.pb.h"
#include "tessera/v1/job_service.pb.h"

namespace tessera {

// The most ps, and the most workers, of a job.
inline constexpr uint32_t kMaxProcesses = 1024;

// The values of job fields that are not set (the comments of job.proto), for fields that several
// rooms read. Pure.

inline uint64_t ShuffleWindowRecords(const v1::DataSpec& data) {
  return data.shuffle_window_records() == 0 ? 262144 : data.shuffle_window_records();
}
inline uint64_t ShardRecords(const v1::DataSpec& data) {
  return data.shard_records() == 0 ? 1024 : data.shard_records();
}
inline v1::ValueType TypeOf(const v1::ColumnSpec& column) {
  if (column.type() != v1::VALUE_TYPE_UNSPECIFIED) return column.type();
  return column.role() == v1::SPARSE ? v1::INT64 : v1::FLOAT;
}
inline std::string KeySpaceOf(const v1::ColumnSpec& column) {
  return column.key_space().empty() ? column.name() : column.key_space();
}
// 0: never.
inline uint32_t EvaluationEpochs(const v1::EvaluationSpec& evaluation) {
  return evaluation.every_epochs() == 0 && evaluation.every_steps() == 0
             ? 1
             : evaluation.every_epochs();
}
inline uint32_t KeptCheckpoints(const v1::CheckpointSpec& checkpoint) {
  return checkpoint.keep() == 0 ? 3 : checkpoint.keep();
}
inline uint32_t PlateauPatience(const v1::PlateauSpec& plateau) {
  return plateau.patience() == 0 ? 1 : plateau.patience();
}
inline std::string DeviceOf(const v1::TrainSpec& train) {
  return train.device().empty() ? "auto" : train.device();
}
inline bool AllReduces(const v1::TrainSpec& train) {
  return train.dense_gradients() == v1::TrainSpec::ALL_REDUCE;
}
// Whether the task trains; the others take a model as it is, and change nothing.
inline bool IsTraining(v1::Task task) { return task != v1::PREDICT && task != v1::EVALUATE; }
// Whether the job's workers need addresses, whatever their number.
inline bool WorkersCallEachOther(const v1::JobSpec& spec, v1::Task task) {
  return AllReduces(spec.train()) && IsTraining(task);
}
inline v1::Consistency ModeOf(v1::Consistency mode) {
  return mode == v1::CONSISTENCY_UNSPECIFIED ? v1::SYNC : mode;
}

inline bool IsSync(v1::Consistency mode) { return ModeOf(mode) == v1::SYNC; }
// Whether all ranks step together: the tables or the dense part are sync.
inline bool StepsTogether(const v1::ConsistencySpec& consistency) {
  return IsSync(consistency.sparse()) || IsSync(consistency.dense());
}
inline constexpr uint32_t kMaxLead = 1000;
// How many steps a worker may begin while another is at one; 0: no bound.
inline uint32_t MaxLeadOf(const v1::ConsistencySpec& consistency) {
  if (consistency.sparse() != v1::BOUNDED && consistency.dense() != v1::BOUNDED) return 0;
  return consistency.max_lead() == 0 ? 4 : consistency.max_lead();
}
// The number of further batches that use a row which a worker's card keeps (row_cache.max_age).
inline uint32_t CardRowAgeOf(const v1::JobSpec& spec) {
  if (IsSync(spec.consistency().sparse())) return 0;
  if (spec.train().row_cache().max_age() > 0) return spec.train().row_cache().max_age();
  const bool bounded = spec.consistency().sparse() == v1::BOUNDED;
  return bounded ? std::min<uint32_t>(8, MaxLeadOf(spec.consistency())) : 8;
}

}  // namespace tessera
