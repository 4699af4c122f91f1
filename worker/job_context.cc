#include "worker/job_context.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/defaults.h"
#include "common/job/dense_layout.h"
#include "common/job/optimizer.h"
#include "common/job/tasks.h"
#include "common/round_up.h"
#include "common/status_macros.h"
#include "worker/dense/model_inputs.h"
#include "worker/device.h"
#include "worker/new_model.h"
#include "worker/onnx/onnx_file.h"
#include "worker/sample_groups.h"

namespace tessera::worker {

namespace {

bool HasRing(const v1::Assignment& assignment) {
  return WorkersCallEachOther(assignment.spec(), assignment.task()) && assignment.workers() > 1;
}

// The conditions of RowCacheSpec.write_back.
bool TrainsDenseOnCard(const JobContext& context) {
  return context.card_trains() && context.assignment.workers() == 1 && !context.sync_dense &&
         !context.averages() && !StepsByWhole(context.spec().model().optimizer()) &&
         !context.trained.empty();
}

// The table of the trained dense parameters; the next one has the statistics.
uint32_t DenseTable(const v1::JobSpec& spec) { return static_cast<uint32_t>(spec.tables_size()); }

// Makes room for the dense parameters. FAILED_PRECONDITION: there is none.
absl::Status TakeParameters(JobContext* context) {
  const uint32_t dense_table = DenseTable(context->spec());
  const uint64_t trained = context->model->trained_floats();
  const uint64_t statistics = context->model->statistics_floats();
  context->ema_at = RoundUp(statistics, kDenseBlockFloats);
  try {
    context->trained.resize(trained);
    context->statistics.resize(context->averages() ? context->ema_at + trained : statistics);
    context->trained_blocks = std::make_unique<DenseBlocks>(
        dense_table, TrainedLayout(context->spec().model(), *context->model), *context->router);
    context->statistics_blocks = std::make_unique<DenseBlocks>(
        dense_table + 1, DenseLayout::Flat(context->statistics.size()), *context->router);
  } catch (const std::bad_alloc&) {
    return absl::FailedPreconditionError(
        absl::StrCat("this worker has no memory for the dense parameters, which take ",
                     ((trained + statistics) * sizeof(float)) >> 20,
                     " MiB; use a smaller model, or machines with more memory"));
  }
  return absl::OkStatus();
}

// Returns null for a model without dense parameters.
absl::StatusOr<std::unique_ptr<DenseReduction>> NewReduction(const JobContext& context,
                                                             const v1::CallHeader& header,
                                                             const JobContextOptions& options) {
  const uint32_t trained_table = DenseTable(context.spec());
  DenseReduction::Shape shape = {.trained_table = trained_table,
                                 .trained = TrainedLayout(context.spec().model(), *context.model),
                                 .statistics_table = trained_table + 1,
                                 .statistics = DenseLayout::Flat(context.statistics.size())};
  if (shape.blocks() == 0) return nullptr;
  const size_t addresses = options.ranks == nullptr ? 0 : options.ranks->size();
  if (addresses != context.assignment.workers()) {
    return absl::InternalError(
        absl::StrCat("train.dense_gradients is all_reduce, and the master names the addresses of ",
                     addresses, " workers, expected ", context.assignment.workers()));
  }
  v1::RingHeader caller;
  caller.set_job_id(header.job_id());
  caller.set_generation(header.generation());
  caller.set_rank(header.rank());
  caller.set_incarnation(header.incarnation());
  return std::make_unique<DenseReduction>(
      std::move(shape),
      GradientRing::Options{.header = caller,
                            .ranks = options.ranks,
                            .partials = options.partials,
                            .board = options.board,
                            .cancellation = options.cancellation},
      *context.router);
}

// Opens the job's data, or takes the source that the last assignment left, if that is the same.
absl::Status OpenSource(const JobContextOptions& options, JobContext* context) {
  const v1::JobSpec& spec = context->spec();
  const std::vector<LabelForm> labels = LabelFormsOf(spec, *context->model);
  KeptSource& kept = *options.kept_source;
  // Data for prediction seldom has labels, and its lines come out in the order in which the files
  // are listed. Training reads files in the order of their names, which positions in checkpoints
  // count by.
  const bool for_prediction = context->assignment.task() == v1::PREDICT;
  std::string key =
      absl::StrCat(context->assignment.job_id(), "\n", spec.data().SerializeAsString());
  for (const LabelForm& label : labels) {
    absl::StrAppend(&key, "\nlabel ", static_cast<int>(label.kind), " ", label.classes);
  }
  if (kept.source == nullptr || kept.key != key) {
    TESSERA_ASSIGN_OR_RETURN(kept.source,
                             DataSource::Open(spec.data(),
                                              {.data_root = options.data_root,
                                               .scratch_folder = options.scratch_folder,
                                               .labels = labels,
                                               .labels_optional = for_prediction,
                                               .order_of_patterns = for_prediction,
                                               .cache_bytes = options.data_cache_bytes,
                                               .pool = options.read_pool},
                                              *kept.files));
    kept.key = std::move(key);
  }
  context->source = kept.source.get();
  context->group_column = FindGroupColumn(context->source->schema(), spec.model().group_by());
  context->evaluation_group_column =
      FindGroupColumn(context->source->schema(), EvaluationGroups(spec));
  return absl::OkStatus();
}

// Tells who asked that `status`, if it is an error, is the card's.
absl::Status OfCard(const JobContextOptions& options, absl::Status status) {
  if (!status.ok() && options.card_error != nullptr) *options.card_error = status;
  return status;
}

// Opens the job's device and puts the model on it.
absl::Status OpenExecutor(const JobContextOptions& options, JobContext* context) {
  const v1::TrainSpec& train = context->spec().train();
  const std::string wish = DeviceOf(train) == "auto" ? options.device : train.device();
  absl::StatusOr<OpenedDevice> device = OpenDevice(wish, *context->model);
  TESSERA_RETURN_IF_ERROR(OfCard(options, device.status()));
  context->card_seat = std::move(device->seat);
  std::unique_ptr<cuda::Stream> stream = std::move(device->stream);
  if (stream == nullptr) TESSERA_RETURN_IF_ERROR(CheckPrecision(train.precision()));
  if (stream != nullptr) stream->SearchProducts(train.search_products());
  const char* const graph = stream == nullptr ? "model" : "the dense graph on the card";
  context->executor = std::make_unique<Executor>(*context->model, options.pool, std::move(stream));
  return WithContext(OfCard(options, context->executor->status()), graph);
}

// Has rows pooled on the executor's card, and those kept and trained there that the job says.
absl::Status KeepRowsOnCard(const JobContextOptions& options, JobContext* context) {
  const v1::JobSpec& spec = context->spec();
  const v1::RowCacheSpec& cache = spec.train().row_cache();
  if (cache.write_back() && IsTraining(context->assignment.task())) {
    for (const EmbeddingPlan::Lookup& lookup : context->plan->lookups()) {
      const v1::TableSpec& table = spec.tables(static_cast<int>(lookup.table));
      context->card_optimizers.emplace_back(table.optimizer(), lookup.dim);
    }
  }
  context->card = std::make_unique<CardPooling>(
      context->plan.get(), context->executor.get(),
      KeptRows::Options{
          .bytes = cache.bytes(),
          .share = cache.share(),
          .metrics = options.metrics,
          .pool = options.pool,
          .optimizers = context->card_trains() ? &context->card_optimizers : nullptr,
          .router = context->router.get(),
      });
  return WithContext(OfCard(options, context->executor->status()), "train.row_cache");
}

absl::Status StartDenseTraining(const JobContextOptions& options, JobContext* context) {
  context->dense_training = std::make_unique<DenseTraining>(
      DenseTable(context->spec()), context->spec().model().optimizer(), context->trained.size(),
      *context->router, context->executor.get());
  return WithContext(OfCard(options, context->executor->status()), "train.row_cache.write_back");
}

// Reads the ONNX file, if the job has one, and builds the network.
absl::Status BuildModel(const JobContextOptions& options, JobContext* context) {
  const v1::JobSpec& spec = context->spec();
  TESSERA_ASSIGN_OR_RETURN(const std::string onnx_file,
                           ReadOnnxFile(spec, *options.kept_source->files, options.data_root));
  TESSERA_ASSIGN_OR_RETURN(context->model, NewModel(spec, InputsOf(spec).dense_width, onnx_file));
  return absl::OkStatus();
}

// Makes the ways to the ps and, where dense gradients are all-reduced, to the other workers.
absl::Status Connect(const JobContextOptions& options, JobContext* context) {
  const v1::Assignment& assignment = context->assignment;
  v1::CallHeader header;
  header.set_job_id(assignment.job_id());
  header.set_generation(assignment.generation());
  header.set_rank(assignment.rank());
  header.set_incarnation(options.incarnation);
  context->parameters = NewGrpcParameterClient(
      header, options.ps, options.board, options.cancellation, options.share_memory, options.pool);
  if (HasRing(assignment)) {
    TESSERA_ASSIGN_OR_RETURN(context->reduction, NewReduction(*context, header, options));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobContext>> NewJobContext(const v1::Assignment& assignment,
                                                          const JobContextOptions& options) {
  auto context = std::make_unique<JobContext>();
  context->assignment = assignment;
  context->pool = options.pool;
  context->board = options.board;
  context->metrics = options.metrics;
  context->cancellation = options.cancellation;
  const v1::JobSpec& spec = context->spec();
  context->sync_sparse = IsSync(spec.consistency().sparse());
  context->sync_dense = IsSync(spec.consistency().dense());

  TESSERA_RETURN_IF_ERROR(BuildModel(options, context.get()));
  TESSERA_RETURN_IF_ERROR(OpenSource(options, context.get()));
  context->plan = std::make_unique<EmbeddingPlan>(spec, context->model->inputs());
  context->router = std::make_unique<KeyRouter>(assignment.partitions());
  TESSERA_RETURN_IF_ERROR(OpenExecutor(options, context.get()));
  if (context->executor->stream() != nullptr) {
    TESSERA_RETURN_IF_ERROR(KeepRowsOnCard(options, context.get()));
  }
  TESSERA_RETURN_IF_ERROR(TakeParameters(context.get()));
  if (TrainsDenseOnCard(*context)) {
    TESSERA_RETURN_IF_ERROR(StartDenseTraining(options, context.get()));
  }
  TESSERA_RETURN_IF_ERROR(Connect(options, context.get()));
  return context;
}

absl::Status JobContext::TakePulled() {
  absl::Status taken = trained_blocks->CopyOut(absl::MakeSpan(trained));
  taken.Update(statistics_blocks->CopyOut(absl::MakeSpan(statistics)));
  return WithContext(taken, absl::StrCat("job ", assignment.job_id()));
}

std::vector<LabelForm> LabelFormsOf(const v1::JobSpec& spec, const Model& model) {
  std::vector<LabelForm> forms;
  for (const LabelKind kind : LabelKindsOf(spec)) forms.push_back({kind, 0});
  const std::vector<LossFunction>& losses = model.losses();
  for (size_t task = 0; task < losses.size(); ++task) {
    if (OutputsOf(losses[task].kind) != math::Outputs::kClasses) continue;
    // A label that several tasks read must be a class of each of them.
    uint32_t& classes = forms[losses[task].label].classes;
    const uint32_t width = model.OutputWidth(task);
    classes = classes == 0 ? width : std::min(classes, width);
  }
  return forms;
}

}  // namespace tessera::worker
