#include "worker/trainer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/job/defaults.h"
#include "common/job/job_tables.h"
#include "common/job/optimizer.h"
#include "common/learning_rate_schedule.h"
#include "common/log.h"
#include "common/math/metrics/evaluation_metrics.h"
#include "common/math/metrics/parallel_auc.h"
#include "common/math/optim/largest_gradient.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/train_unit.h"
#include "common/window.h"
#include "worker/embedding_lookups.h"
#include "worker/record_order.h"

namespace tessera::worker {

Trainer::Trainer(JobContext* context, const PushProgress& progress)
    : context_(context),
      windows_(context->source),
      preparers_(PrepareThreads(*context), KeyPreparer(context->plan.get(), context->router.get())),
      progress_(progress),
      embedding_gradients_(context->plan->lookups().size()),
      written_(context->plan->lookups().size()),
      trained_gradient_(context->model->trained_floats()),
      statistics_gradient_(context->statistics.size()) {
  for (const v1::PsTable& table : TablesOf(context->spec())) {
    largest_gradients_.push_back(math::LargestGradient(RowOptionsOf(table.spec().optimizer())));
  }
}

absl::StatusOr<v1::UnitResult> Trainer::Train(const v1::Train& unit) {
  const absl::Duration start = SystemClock().Monotonic();
  const uint64_t batches = unit.batch_end() - unit.batch_begin();
  const uint64_t known =
      std::clamp(progress_.next, unit.first_step(), unit.first_step() + batches) -
      unit.first_step();
  uint64_t first_batch = unit.batch_begin() + known;
  if (known > 0) {
    SPDLOG_INFO("all ps have {} of {} steps of this unit: going on at step {}", known, batches,
                unit.first_step() + known);
  }
  // Batches that are set aside come before any reading: the records may be what kills workers.
  for (; first_batch < unit.batch_end() && IsSetAside(unit, first_batch); ++first_batch) {
    TESSERA_RETURN_IF_ERROR(PushNothing(unit, first_batch));
  }

  Stopwatch watch;
  v1::UnitResult result;
  const std::vector<v1::RecordRange> ranges(unit.ranges().begin(), unit.ranges().end());
  const uint64_t all_records = CountRecords(ranges);
  uint64_t records = all_records;
  const DataSource::Records* window = windows_.Held(ranges);
  // If every batch of the unit is set aside, its records are not read.
  if (!AllSetAside(unit)) {
    TESSERA_ASSIGN_OR_RETURN(window, windows_.Get(ranges));
    watch.AddTo(context_->metrics->read_seconds);
    TESSERA_RETURN_IF_ERROR(CheckBadRecords(*window, all_records));
  }
  if (window != nullptr) records = window->batch.size;
  // Bad records are counted in the result: a unit may be tried several times, but is done once.
  const uint64_t missing = RecordsToTrain(unit, all_records) - RecordsToTrain(unit, records);
  if (unit.epoch() == unit.data_epoch() && missing > 0) {
    result.set_bad_records(missing);
    result.set_bad_record_message(window->first_bad);
  }
  if (!unit.careful()) {
    windows_.ReadAhead({unit.next_ranges().begin(), unit.next_ranges().end()});
  }
  logits_.clear();
  labels_.clear();
  weights_.clear();
  left_out_ = 0;
  double loss_sum = 0;
  const uint64_t at_once = unit.careful() ? 1 : batches;
  for (uint64_t i = first_batch; i < unit.batch_end(); i += at_once) {
    TESSERA_ASSIGN_OR_RETURN(
        const double loss,
        TrainBatches(unit, window->batch, i, std::min(i + at_once, unit.batch_end())));
    loss_sum += loss;
  }
  // Tells the ps now that all have this rank's pushes: the other ranks need not wait until this
  // rank begins its next unit.
  if (context_->sync()) {
    Stopwatch confirming;
    TESSERA_RETURN_IF_ERROR(context_->parameters->GetProgress(progress_.next).status());
    confirming.AddTo(context_->metrics->push_seconds);
  }

  const uint64_t samples = RecordsToTrain(unit, records);
  const uint64_t trained =
      RecordsOfBatches(unit, first_batch, unit.batch_end(), records) - left_out_;
  result.set_samples(samples);
  if (trained < samples) loss_sum *= static_cast<double>(samples) / static_cast<double>(trained);
  result.set_loss_sum(loss_sum);
  result.set_auc(UnitAuc());
  if (first_batch < unit.batch_end()) {
    const double part =
        static_cast<double>(unit.batch_end() - first_batch) / static_cast<double>(batches);
    result.set_train_seconds(absl::ToDoubleSeconds(SystemClock().Monotonic() - start) / part);
  }
  return result;
}

double Trainer::UnitAuc() const {
  if (weights_.empty()) return math::ParallelAuc(logits_, labels_, context_->pool);
  return math::ComputeMetrics({"auc"}, {.outputs = logits_,
                                        .labels = labels_,
                                        .weights = weights_,
                                        .kind = math::Outputs::kLogits})
      .at("auc");
}

absl::Status Trainer::CheckBadRecords(const DataSource::Records& window, uint64_t records) const {
  const uint64_t allowed = context_->spec().data().max_bad_records();
  const uint64_t bad = records - window.batch.size;
  if (bad <= allowed) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      bad, " bad records among ", records, " of one shuffle window, and data.max_bad_records ",
      "allows ", allowed, "; the first: ", window.first_bad,
      "; mend the data, or raise data.max_bad_records to leave such records out"));
}

absl::Status Trainer::PushNothing(const v1::Train& unit, uint64_t batch) {
  const uint64_t step = StepOf(unit, batch);
  SPDLOG_WARN("the batch of step {} is set aside: it is neither read nor trained", step);
  // Waits for the step: a rank must not run ahead of the others.
  if (context_->sync()) {
    TESSERA_RETURN_IF_ERROR(context_->parameters->Pull({}, {.step = step, .begins = 0})->Wait());
  }
  TESSERA_RETURN_IF_ERROR(ReduceDense(step, /*has_gradients=*/false));
  std::vector<TableGradients> writes;
  if (context_->reduction != nullptr) context_->reduction->AddWrites(&writes);
  TESSERA_RETURN_IF_ERROR(BeginPush(writes, unit, batch)->Wait());
  progress_.next = step + 1;
  return absl::OkStatus();
}

uint64_t Trainer::ScheduleStep(const v1::Train& unit, uint64_t batch) const {
  return unit.schedule_step() + (batch - unit.batch_begin());
}

double Trainer::LearningRateScale(const v1::Train& unit, uint64_t batch) const {
  return ScheduleValue(context_->spec().train().schedule(), ScheduleStep(unit, batch)) *
         unit.learning_rate_scale();
}

bool Trainer::MayPullTwo(bool started) const {
  // In bounded mode a pull begins a step, and the other ranks count begun steps.
  if (context_->card == nullptr || context_->sync() ||
      MaxLeadOf(context_->spec().consistency()) > 0) {
    return false;
  }
  // Pulled dense parameters have one buffer: the next batch must have taken them out.
  return started || context_->dense_training != nullptr;
}

const std::vector<uint32_t>& Trainer::Order(const v1::Train& unit, const Batch& records) {
  // In async mode a window belongs to no rank: its order must not depend on the rank that got it.
  const uint64_t key = StreamKey(RandomFor::kRecordOrder, context_->spec().seed(), unit.epoch(),
                                 unit.window(), context_->sync() ? context_->assignment.rank() : 0);
  if (key != order_key_ || order_.size() != records.size) {
    order_ = RecordOrder(key, records, context_->group_column, unit.batch_size());
    order_key_ = key;
  }
  return order_;
}

}  // namespace tessera::worker
