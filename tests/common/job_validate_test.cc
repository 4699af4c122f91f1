#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "common/job/job_tables.h"
#include "common/job/validate.h"
#include "tests/common/job_validate_testing.h"
#include "tests/optimizers.h"

namespace tessera {
namespace {

using testing::StartsWith;

TEST(ValidateJobSpec, TakesEveryOptimizerThatASpecMayName) {
  for (const std::string& kind : KindsOfOptimizers()) {
    v1::JobSpec spec = GoodSpec();
    for (v1::OptimizerSpec* optimizer :
         {spec.mutable_tables(1)->mutable_optimizer(), spec.mutable_model()->mutable_optimizer()}) {
      *optimizer = OptimizerNamed(kind);
      optimizer->set_learning_rate(0.1f);
    }
    EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus()) << kind;
  }
}

TEST(ValidateJobSpec, TakesAGoodJob) {
  EXPECT_EQ(ValidateJobSpec(GoodSpec()), absl::OkStatus());
  EXPECT_EQ(ValidateJobSpec(GoodLibsvm()), absl::OkStatus());
}

TEST(ValidateJobSpec, RefusesWhatALaterVersionMayAskFor) {
  const v1::JobSpec good = GoodSpec();
  const struct {
    std::function<void(v1::JobSpec&)> change;
    const char* message;
  } cases[] = {
      {[](auto& s) { s.mutable_model()->set_loss(static_cast<v1::Loss>(99)); },
       "model.loss: found number 99"},
      {[](auto& s) { s.mutable_model()->add_tasks()->set_loss(static_cast<v1::Loss>(99)); },
       "model.tasks[0].loss: found number 99"},
      {[](auto& s) { s.mutable_data()->set_format(static_cast<v1::DataFormat>(99)); },
       "data.format: found number 99"},
      {[](auto& s) { s.mutable_consistency()->set_sparse(static_cast<v1::Consistency>(99)); },
       "consistency.sparse: found number 99"},
      {[](auto& s) { s.mutable_tables(0)->set_row_type(static_cast<v1::FloatType>(99)); },
       "tables[0].row_type: found number 99"},
      {[](auto& s) { s.mutable_train()->set_precision(static_cast<v1::TrainSpec::Precision>(99)); },
       "train.precision: found number 99"},
      // Such as another optimizer.
      {[](auto& s) {
         v1::OptimizerSpec& optimizer = *s.mutable_tables(0)->mutable_optimizer();
         optimizer.GetReflection()->MutableUnknownFields(&optimizer)->AddLengthDelimited(999, "");
       },
       "tables[0].optimizer: found field number 999"},
      {[](auto& s) { s.GetReflection()->MutableUnknownFields(&s)->AddVarint(998, 1); },
       "spec: found field number 998"},
  };
  for (const auto& later : cases) {
    v1::JobSpec spec = good;
    later.change(spec);
    for (const absl::Status& status : {ValidateJobSpec(spec), CheckKnown(spec)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(status.message(),
                absl::StrCat(later.message, ", which this version does not know"));
    }
  }
  EXPECT_EQ(CheckKnown(good), absl::OkStatus());
}

TEST(ValidateJobSpec, RefusesAnEmptyMessageByItsFirstField) {
  EXPECT_THAT(std::string(ValidateJobSpec(v1::JobSpec()).message()), StartsWith("name: missing"));
}

TEST(ValidateJobSpec, NamesTheWrongFieldOfTheJob) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  ExpectRefused(
      GoodSpec(),
      {
          {[](auto& s) { s.set_name("Clicks"); }, "name", "lower-case"},
          {[](auto& s) { s.set_name("-x"); }, "name", "lower-case"},
          {[](auto& s) { s.set_name(std::string(64, 'a')); }, "name", "1 to 63"},
          {[](auto& s) { s.set_priority(1001); }, "priority", "found 1001"},
          {[](auto& s) { s.mutable_train()->set_batch_size(0); }, "train.batch_size", "found 0"},
          {[](auto& s) { s.mutable_train()->set_epochs(0); }, "train.epochs", "never end"},
          {[](auto& s) { s.mutable_train()->set_steps(uint64_t{1} << 32); }, "train.steps",
           "found 4294967296; expected at most 4294967295"},
          {[](auto& s) { s.mutable_train()->set_device("gpu"); }, "train.device", "found 'gpu'"},
          {[](auto& s) { s.mutable_train()->set_device("cuda:x"); }, "train.device", "cuda"},
          {[](auto& s) {
             s.mutable_train()->set_device("cpu");
             s.mutable_train()->set_precision(v1::TrainSpec::FLOAT16);
           },
           "train.precision", "found float16 with train.device: cpu"},
          {[](auto& s) { s.mutable_train()->mutable_clip()->set_norm(-1); }, "train.clip.norm",
           "found -1"},
          {[=](auto& s) { s.mutable_train()->mutable_clip()->set_value(kInfinity); },
           "train.clip.value", "finite"},
          {[](auto& s) { s.mutable_train()->mutable_schedule()->set_decay_start(5); },
           "train.schedule.decay_steps", "missing"},
          {[](auto& s) {
             s.mutable_train()->mutable_schedule()->set_warmup_steps(10);
             s.mutable_train()->mutable_schedule()->set_decay_steps(10);
           },
           "train.schedule.decay_start", "at least warmup_steps (10)"},
          {[](auto& s) {
             s.mutable_train()->mutable_schedule()->set_decay_steps(10);
             s.mutable_train()->mutable_schedule()->set_end(2);
           },
           "train.schedule.end", "found 2"},
          {[](auto& s) { s.mutable_train()->mutable_schedule()->set_decay(v1::COSINE); },
           "train.schedule.decay_steps", "missing"},
          {[](auto& s) {
             s.mutable_train()->mutable_schedule()->set_decay(v1::COSINE);
             s.mutable_train()->mutable_schedule()->set_decay_steps(10);
             s.mutable_train()->mutable_schedule()->set_power(1);
           },
           "train.schedule.power", "decay is cosine"},
          {[](auto& s) { s.mutable_train()->mutable_schedule()->mutable_step()->set_every(5); },
           "train.schedule.step.factor", "0 < factor < 1"},
          {[](auto& s) { s.mutable_train()->mutable_schedule()->mutable_step()->set_factor(0.5f); },
           "train.schedule.step", "found neither every nor at"},
          {[](auto& s) {
             s.mutable_train()->mutable_schedule()->mutable_step()->set_factor(0.5f);
             s.mutable_train()->mutable_schedule()->mutable_step()->set_every(5);
             s.mutable_train()->mutable_schedule()->mutable_step()->add_at(5);
           },
           "train.schedule.step", "found both"},
          {[](auto& s) {
             s.mutable_train()->mutable_schedule()->mutable_step()->set_factor(0.5f);
             s.mutable_train()->mutable_schedule()->mutable_step()->add_at(5);
             s.mutable_train()->mutable_schedule()->mutable_step()->add_at(5);
           },
           "train.schedule.step.at[1]", "more than 5"},
          {[](auto& s) { s.mutable_train()->mutable_schedule()->mutable_plateau()->set_factor(1); },
           "train.schedule.plateau.factor", "0 < factor < 1"},
          {[](auto& s) { s.mutable_train()->mutable_schedule()->mutable_plateau(); },
           "train.schedule.plateau.factor", "leave plateau out"},
          {[=](auto& s) { s.mutable_train()->mutable_early_stopping()->set_min_delta(kNan); },
           "train.early_stopping.min_delta", "finite"},
          {[](auto& s) { s.mutable_evaluation()->add_metrics("auk"); }, "evaluation.metrics[0]",
           "did you mean \"auc\"?"},
          {[](auto& s) {
             s.mutable_model()->set_loss(v1::HUBER);
             s.mutable_evaluation()->add_metrics("auc");
           },
           "evaluation.metrics[0]", "model.loss is one of regression"},
          {[](auto& s) {
             s.mutable_model()->set_loss(v1::HUBER);
             s.mutable_evaluation()->add_metrics("binned_auc");
           },
           "evaluation.metrics[0]", "'binned_auc' is of labels 0 and 1"},
          {[](auto& s) { s.mutable_evaluation()->add_metrics("bined_auc"); },
           "evaluation.metrics[0]", "did you mean \"binned_auc\"?"},
          {[](auto& s) {
             s.mutable_evaluation()->add_metrics("auc");
             s.mutable_evaluation()->add_metrics("gauc");
           },
           "evaluation.group_by", "gauc needs the sparse column"},
          {[](auto& s) {
             s.mutable_evaluation()->add_metrics("auc");
             s.mutable_evaluation()->add_metrics("gauc");
             s.mutable_evaluation()->set_group_by("usr");
           },
           "evaluation.group_by", "did you mean \"user\"?"},
          // Though no metric reads it.
          {[](auto& s) { s.mutable_evaluation()->set_group_by("usr"); }, "evaluation.group_by",
           "did you mean \"user\"?"},
          {[](auto& s) {
             s.mutable_model()->set_loss(v1::BAYESIAN_PERSONALIZED_RANKING);
             s.mutable_model()->set_group_by("user");
             s.mutable_evaluation()->set_group_by("usr");  // of gauc, which it has by itself
           },
           "evaluation.group_by", "did you mean \"user\"?"},
          {[](auto& s) {
             s.mutable_model()->set_loss(v1::HUBER);
             s.mutable_evaluation()->set_monitor("auc");
           },
           "evaluation.monitor", "'auc' is not measured"},
          {[](auto& s) { s.mutable_evaluation()->set_monitor("loss"); }, "evaluation.monitor",
           "'loss' is not measured"},
          {[](auto& s) {
             s.mutable_data()->clear_validation();
             s.mutable_train()->mutable_early_stopping()->set_patience(2);
           },
           "train.early_stopping", "data.validation.files is empty"},
          {[](auto& s) {
             s.mutable_data()->clear_validation();
             s.mutable_checkpoint()->set_keep_best(true);
           },
           "checkpoint.keep_best", "data.validation.files is empty"},
          {[](auto& s) { s.mutable_checkpoint()->set_every_minutes(-1); },
           "checkpoint.every_minutes", "found -1"},
          {[](auto& s) { s.mutable_start()->set_warm(true); }, "start.warm", "start.checkpoint"},
          {[](auto& s) {
             s.mutable_data()->set_shuffle_window_records(1 << 20);
             s.mutable_data()->set_shard_records(1);
           },
           "data.shard_records", "16 records or more"},
          {[](auto& s) { s.mutable_start()->set_checkpoint("/etc"); }, "start.checkpoint",
           "absolute path '/etc'"},
          {[](auto& s) { s.mutable_consistency()->set_sparse(static_cast<v1::Consistency>(9)); },
           "consistency.sparse", "number 9"},
          {[](auto& s) { s.mutable_consistency()->set_sparse(v1::BOUNDED); }, "consistency.sparse",
           "the other is sync"},
          {[](auto& s) {
             s.mutable_consistency()->set_sparse(v1::SYNC);
             s.mutable_consistency()->set_dense(v1::BOUNDED);
           },
           "consistency.dense", "the other is sync"},
          {[](auto& s) { s.mutable_recovery()->set_mode(v1::RecoverySpec::PARTIAL); },
           "recovery.mode", "sync steps cannot go on"},
          {[](auto& s) { s.mutable_recovery()->set_set_aside_after(1); },
           "recovery.set_aside_after", "found 1; expected 2 to 100"},
          {[](auto& s) { s.mutable_recovery()->set_replicas(1); }, "recovery.replicas",
           "found 1 without a push log; expected recovery.push_log"},
          {[](auto& s) {
             s.mutable_recovery()->set_push_log(v1::RecoverySpec::ASYNC);
             s.mutable_recovery()->set_replicas(2);
           },
           "recovery.replicas", "found 2; expected 0 or 1"},
          {[](auto& s) { s.mutable_recovery()->set_set_aside_after(101); },
           "recovery.set_aside_after", "found 101"},
          {[](auto& s) {
             s.mutable_train()->set_dense_gradients(v1::TrainSpec::ALL_REDUCE);
             s.mutable_consistency()->set_dense(v1::ASYNC);
           },
           "train.dense_gradients",
           "found all_reduce with consistency.dense: async; expected consistency.dense: sync"},
          {[](auto& s) { s.mutable_consistency()->set_max_lead(2); }, "consistency.max_lead",
           "is for bounded"},
          {[](auto& s) {
             s.mutable_consistency()->set_sparse(v1::ASYNC);
             s.mutable_train()->mutable_row_cache()->set_max_age(3);
           },
           "train.row_cache.max_age",
           "neither train.row_cache.bytes nor train.row_cache.share is above 0"},
          {[](auto& s) {
             s.mutable_train()->mutable_row_cache()->set_bytes(1 << 20);
             s.mutable_train()->mutable_row_cache()->set_share(0.25f);
           },
           "train.row_cache.share", "found 0.25 beside train.row_cache.bytes: 1048576"},
          {[](auto& s) { s.mutable_train()->mutable_row_cache()->set_share(1.5f); },
           "train.row_cache.share", "found 1.5; expected above 0 and at most 1"},
          {[](auto& s) { s.mutable_train()->mutable_row_cache()->set_share(-0.5f); },
           "train.row_cache.share", "found -0.5; expected above 0 and at most 1"},
          {[](auto& s) { s.mutable_train()->mutable_row_cache()->set_share(std::nanf("")); },
           "train.row_cache.share", "found nan"},
          {[](auto& s) {
             s.mutable_train()->mutable_row_cache()->set_bytes(1 << 20);
             s.mutable_train()->mutable_row_cache()->set_max_age(3);
           },
           "train.row_cache.max_age", "found 3 with consistency.sparse: sync"},
          {[](auto& s) {
             s.mutable_train()->mutable_row_cache()->set_bytes(1 << 20);
             s.mutable_train()->mutable_row_cache()->set_max_age(5);
             s.mutable_consistency()->set_sparse(v1::BOUNDED);
             s.mutable_consistency()->set_dense(v1::ASYNC);
           },
           "train.row_cache.max_age", "found 5; expected 0 to 4, consistency.max_lead"},
          {[](auto& s) {
             s.mutable_consistency()->set_sparse(v1::BOUNDED);
             s.mutable_consistency()->set_dense(v1::ASYNC);
             s.mutable_consistency()->set_max_lead(1001);
           },
           "consistency.max_lead", "expected 1 to 1000"},
      });
}

TEST(ValidateJobSpec, BoundsTheTables) {
  v1::JobSpec spec = GoodSpec();
  while (spec.tables_size() < 4095) {
    *spec.add_tables() = spec.tables(1);
  }
  EXPECT_THAT(std::string(ValidateJobSpec(spec).message()),
              HasSubstr("tables: found 4095; expected at most 4094"));
}

TEST(ValidateJobSpec, NamesTheWrongFieldOfATable) {
  const auto table = [](v1::JobSpec& s) { return s.mutable_tables(1); };
  ExpectRefused(
      GoodSpec(),
      {
          {[=](auto& s) { table(s)->set_name("linear"); }, "tables[1].name", "earlier table"},
          {[=](auto& s) { table(s)->set_name(kDenseTable); }, "tables[1].name", "reserved"},
          {[=](auto& s) { table(s)->set_name("a.b"); }, "tables[1].name", "found 'a.b'"},
          {[=](auto& s) { table(s)->set_dim(0); }, "tables[1].dim", "found 0; expected 1 .. 4096"},
          {[=](auto& s) { table(s)->set_dim(4097); }, "tables[1].dim", "found 4097"},
          {[=](auto& s) { table(s)->clear_initializer(); }, "tables[1].initializer", "missing"},
          {[=](auto& s) { table(s)->mutable_initializer()->mutable_uniform(); },
           "tables[1].initializer.uniform", "min below max"},
          {[=](auto& s) { table(s)->mutable_initializer()->mutable_normal()->set_stddev(-1); },
           "tables[1].initializer.normal.stddev", "found -1"},
          {[=](auto& s) { table(s)->mutable_initializer()->mutable_normal()->set_stddev(2e6f); },
           "tables[1].initializer.normal.stddev", "found 2e+06; expected -1e+06 to 1e+06"},
          {[=](auto& s) { table(s)->mutable_initializer()->mutable_normal()->set_mean(-3e30f); },
           "tables[1].initializer.normal.mean", "found -3e+30"},
          {[=](auto& s) { table(s)->mutable_initializer()->mutable_uniform()->set_min(-3e38f); },
           "tables[1].initializer.uniform.min", "found -3e+38"},
          {[=](auto& s) { table(s)->mutable_initializer()->mutable_uniform()->set_max(3e38f); },
           "tables[1].initializer.uniform.max", "found 3e+38"},
          {[=](auto& s) { table(s)->mutable_initializer()->mutable_constant()->set_value(3e38f); },
           "tables[1].initializer.constant.value", "found 3e+38"},
          {[=](auto& s) { table(s)->mutable_optimizer()->set_learning_rate(1e30f); },
           "tables[1].optimizer.learning_rate",
           "found 1e+30; expected more than 0 and at most 1e6"},
          {[](auto& s) { s.mutable_model()->mutable_optimizer()->set_learning_rate(2e6f); },
           "model.optimizer.learning_rate", "found 2e+06"},
          {[=](auto& s) { table(s)->clear_optimizer(); }, "tables[1].optimizer", "missing"},
          {[=](auto& s) { table(s)->mutable_optimizer()->clear_kind(); }, "tables[1].optimizer",
           "expected one of sgd, adagrad, adam, ftrl"},
          {[=](auto& s) { table(s)->mutable_optimizer()->set_learning_rate(0); },
           "tables[1].optimizer.learning_rate", "found 0"},
          {[=](auto& s) { table(s)->mutable_optimizer()->set_l2(-1); }, "tables[1].optimizer.l2",
           "found -1"},
          {[=](auto& s) { table(s)->mutable_optimizer()->mutable_adam()->set_beta1(1); },
           "tables[1].optimizer.adam.beta1", "found 1"},
          {[=](auto& s) { table(s)->mutable_optimizer()->mutable_adam()->set_epsilon(0); },
           "tables[1].optimizer.adam.epsilon", "more than 0"},
          {[=](auto& s) { table(s)->mutable_optimizer()->mutable_ftrl()->set_l1(-3); },
           "tables[1].optimizer.ftrl.l1", "found -3"},
          {[=](auto& s) { table(s)->mutable_admission()->set_after_sightings(256); },
           "tables[1].admission.after_sightings", "found 256; expected at most 255"},
          {[=](auto& s) { table(s)->mutable_admission()->set_probability(0); },
           "tables[1].admission.probability", "found 0; expected more than 0 and at most 1"},
          {[=](auto& s) { table(s)->mutable_expiry()->set_min_norm(-1); },
           "tables[1].expiry.min_norm", "found -1; expected 0 or more"},
          {[=](auto& s) { table(s)->mutable_expiry()->set_min_frequency(1 << 24); },
           "tables[1].expiry.min_frequency", "found 16777216; expected at most 16777215"},
          {[=](auto& s) { table(s)->mutable_optimizer()->set_weight_decay(-1); },
           "tables[1].optimizer.weight_decay", "found -1; expected 0 or more"},
          {[=](auto& s) { table(s)->mutable_optimizer()->set_clip_value(-1); },
           "tables[1].optimizer.clip_value", "found -1; expected 0 or more"},
          {[=](auto& s) { table(s)->mutable_optimizer()->set_clip_norm(-2); },
           "tables[1].optimizer.clip_norm", "found -2; expected 0 or more"},
          {[=](auto& s) { table(s)->mutable_optimizer()->mutable_momentum()->set_momentum(1); },
           "tables[1].optimizer.momentum.momentum", "found 1; expected at least 0 and below 1"},
          {[=](auto& s) { table(s)->mutable_optimizer()->mutable_adagrad()->set_decay(0); },
           "tables[1].optimizer.adagrad.decay", "found 0; expected more than 0 and at most 1"},
          {[=](auto& s) {
             table(s)->mutable_optimizer()->mutable_row_wise_adagrad()->set_epsilon(0);
           },
           "tables[1].optimizer.row_wise_adagrad.epsilon", "found 0; expected more than 0"},
          {[=](auto& s) { table(s)->mutable_optimizer()->mutable_amsgrad()->set_beta2(2); },
           "tables[1].optimizer.amsgrad.beta2", "found 2"},
          {[=](auto& s) { table(s)->mutable_optimizer()->mutable_lamb()->set_epsilon(0); },
           "tables[1].optimizer.lamb.epsilon", "found 0; expected more than 0"},
          {[=](auto& s) { table(s)->mutable_optimizer()->mutable_rmsprop()->set_decay(1); },
           "tables[1].optimizer.rmsprop.decay", "found 1"},
          {[=](auto& s) { table(s)->mutable_optimizer()->mutable_adadelta()->set_epsilon(-1); },
           "tables[1].optimizer.adadelta.epsilon", "found -1"},
          {[=](auto& s) { table(s)->set_update(static_cast<v1::RowUpdate>(7)); },
           "tables[1].update", "number 7"},
          {[](auto& s) {
             *s.add_tables() = s.tables(0);
             s.mutable_tables(2)->set_name("spare");
           },
           "tables[2]", "no column looks up its ids in 'spare'"},
          {[](auto& s) { s.mutable_model()->clear_optimizer(); }, "model.optimizer", "missing"},
          {[](auto& s) { s.mutable_model()->clear_name(); }, "model.name", "missing"},
          {[](auto& s) { s.mutable_model()->set_positive_weight(0); }, "model.positive_weight",
           "expected more than 0"},
          {[](auto& s) {
             s.mutable_model()->set_loss(v1::MEAN_SQUARED_ERROR);
             s.mutable_model()->set_positive_weight(2);
           },
           "model.positive_weight", "belongs to model.loss binary_cross_entropy"},
          {[](auto& s) { s.mutable_model()->set_huber_delta(1); }, "model.huber_delta",
           "belongs to model.loss huber"},
          {[](auto& s) {
             s.mutable_model()->set_loss(v1::HUBER);
             s.mutable_model()->set_huber_delta(-1);
           },
           "model.huber_delta", "expected more than 0"},
          {[](auto& s) { s.mutable_model()->set_name("layers"); }, "model.layers", "empty"},
          {[](auto& s) { s.mutable_model()->add_layers(); }, "model.layers", "found model.name"},
          {[](auto& s) { s.mutable_model()->set_onnx_file("m.onnx"); }, "model.onnx_file",
           "found model.name"},
          {[](auto& s) { s.mutable_model()->set_name("onnx"); }, "model.onnx_file", "empty"},
          {[](auto& s) {
             s.mutable_model()->set_name("onnx");
             s.mutable_model()->set_onnx_file("../m.onnx");
           },
           "model.onnx_file", "may not lead out"},
      });
}

TEST(ValidateJobSpec, NamesTheWrongRangeOfALibsvmColumn) {
  v1::JobSpec good = GoodSpec();
  v1::DataSpec& data = *good.mutable_data();
  data.set_format(v1::LIBSVM);
  data.set_header(false);
  data.clear_columns();
  const auto add = [&](const std::string& name, v1::ColumnRole role, uint64_t begin, uint64_t end) {
    v1::ColumnSpec* const column = data.add_columns();
    column->set_name(name);
    column->set_role(role);
    column->set_index_begin(begin);
    column->set_index_end(end);
    return column;
  };
  add("a", v1::DENSE, 1, 40001);
  add("b", v1::DENSE, 40001, 60001);
  add("c", v1::IGNORED, 70000, 70010);
  v1::ColumnSpec* const ids = add("user", v1::SPARSE, 100000, 200000);
  ids->add_table("linear");
  ids->add_table("embedding");
  ASSERT_TRUE(ValidateJobSpec(good).ok()) << ValidateJobSpec(good);
  const auto column = [](v1::JobSpec& s, int i) { return s.mutable_data()->mutable_columns(i); };
  ExpectRefused(good, {
                          {[=](auto& s) { column(s, 1)->set_index_end(66000); },
                           "data.columns[1].index_end", "dense columns have 65999 values"},
                          {[=](auto& s) { column(s, 2)->set_index_end(69999); },
                           "data.columns[2].index_end", "expected more than 70000"},
                      });
}

TEST(ValidateJobSpec, NamesTheWrongFieldOfAColumn) {
  const auto column = [](v1::JobSpec& s, int i) { return s.mutable_data()->mutable_columns(i); };
  ExpectRefused(
      GoodSpec(),
      {
          {[](auto& s) { s.mutable_data()->clear_format(); }, "data.format", "csv, tsv or libsvm"},
          {[](auto& s) { s.mutable_data()->clear_columns(); }, "tables[0]", "no column"},
          {[=](auto& s) { column(s, 0)->set_role(v1::IGNORED); }, "data.columns",
           "none has the role label"},
          {[=](auto& s) { column(s, 4)->set_role(v1::LABEL); }, "data.columns[4].role",
           "data.columns[0] is the label already"},
          {[=](auto& s) { column(s, 4)->clear_role(); }, "data.columns[4].role", "missing"},
          {[=](auto& s) { column(s, 4)->set_name("user"); }, "data.columns[4].name",
           "data.columns[2] too"},
          {[=](auto& s) { column(s, 4)->set_name("dense"); }, "data.columns[4].name",
           "all dense columns"},
          {[=](auto& s) { column(s, 2)->add_table("embeding"); }, "data.columns[2].table[2]",
           "did you mean \"embedding\"?"},
          {[=](auto& s) { column(s, 2)->add_table("linear"); }, "data.columns[2].table[2]",
           "named twice"},
          {[=](auto& s) {
             column(s, 4)->set_role(v1::SPARSE);
             column(s, 4)->clear_table();
           },
           "data.columns[4].table", "missing"},
          {[=](auto& s) { column(s, 1)->add_table("linear"); }, "data.columns[1].table",
           "role of 'price' is dense"},
          {[=](auto& s) { column(s, 2)->set_type(v1::FLOAT); }, "data.columns[2].type",
           "found float for a sparse column; expected int64 or string"},
          {[=](auto& s) { column(s, 1)->set_type(v1::STRING); }, "data.columns[1].type",
           "found string for a dense column"},
          {[=](auto& s) { column(s, 2)->set_transform(v1::LOG1P); }, "data.columns[2].transform",
           "belongs to dense"},
          {[=](auto& s) { column(s, 2)->set_key_space("x"); }, "data.columns[2].key_space",
           "type string"},
          {[=](auto& s) { column(s, 3)->set_separator("ab"); }, "data.columns[3].separator",
           "one character"},
          {[=](auto& s) { column(s, 1)->set_default_value("abc"); },
           "data.columns[1].default_value", "finite number"},
          {[=](auto& s) { column(s, 1)->set_default_value("1e39"); },
           "data.columns[1].default_value", "finite number"},
          {[=](auto& s) { column(s, 2)->set_default_value("+5"); }, "data.columns[2].default_value",
           "0 .. 2^63-1"},
          {[=](auto& s) { column(s, 2)->set_default_value("-1"); }, "data.columns[2].default_value",
           "0 .. 2^63-1"},
          {[=](auto& s) { column(s, 2)->set_default_value("9223372036854775808"); },
           "data.columns[2].default_value", "0 .. 2^63-1"},
          {[=](auto& s) { column(s, 0)->set_default_value("2"); }, "data.columns[0].default_value",
           "0 or 1"},
          {[=](auto& s) { column(s, 2)->set_index_end(5); }, "data.columns[2].index_begin",
           "libsvm"},
          {[](auto& s) { s.mutable_data()->clear_train(); }, "data.train.files", "empty"},
          {[](auto& s) { s.mutable_data()->mutable_test()->add_files("../x"); },
           "data.test.files[0]", "'..' may not"},
          {[](auto& s) { s.mutable_data()->mutable_test()->add_files("/x"); }, "data.test.files[0]",
           "absolute"},
          {[](auto& s) { s.mutable_data()->mutable_train()->add_files("train-*.csv"); },
           "data.train.files[1]", "named twice"},
          {[](auto& s) { s.mutable_data()->mutable_train()->add_files("a/**/*.csv"); },
           "data.train.files[1]", "found 'a/**/*.csv'; '**' would match one level"},
          {[](auto& s) { s.mutable_data()->set_shard_records(1 << 20); }, "data.shard_records",
           "at most the shuffle window"},
      });
}

TEST(ValidateJobSpec, NamesTheWrongIndexRangeOfALibsvmColumn) {
  const auto add = [](v1::JobSpec& s, uint64_t begin, uint64_t end) {
    v1::ColumnSpec* column = s.mutable_data()->add_columns();
    column->set_name("dense_part");
    column->set_role(v1::DENSE);
    column->set_index_begin(begin);
    column->set_index_end(end);
  };
  v1::JobSpec good = GoodLibsvm();
  add(good, 0, 10);
  EXPECT_EQ(ValidateJobSpec(good), absl::OkStatus());
  ExpectRefused(
      GoodLibsvm(),
      {
          {[=](auto& s) { add(s, 5, 11); }, "data.columns[0].index_begin", "overlap"},
          {[=](auto& s) { add(s, 10, 11); }, "data.columns[1].index_begin", "overlap"},
          {[=](auto& s) { add(s, 10, 10); }, "data.columns[1].index_end", "[10, 10)"},
          {[=](auto& s) { add(s, 1000, 1000000); }, "data.columns[1].index_end", "sparse"},
          {[](auto& s) { s.mutable_data()->set_header(true); }, "data.header", "leave it out"},
      });
}

// No message could hold it on its way to the master.
TEST(ValidateJobSpec, RefusesATextThatIsNotUtf8) {
  const std::string latin1 = "caf\xe9";
  ExpectRefused(
      GoodSpec(),
      {
          {[&](auto& s) { s.mutable_data()->mutable_columns(3)->set_name(latin1); },
           "data.columns[3].name", "found a text that is not UTF-8; expected UTF-8"},
          {[&](auto& s) { s.mutable_data()->mutable_test()->add_files(latin1 + ".csv"); },
           "data.test.files[0]", "UTF-8"},
          {[&](auto& s) { (*s.mutable_model()->mutable_options()->mutable_fields())[latin1]; },
           "model.options", "UTF-8"},
      });
  v1::JobSpec spec = GoodSpec();
  spec.mutable_data()->mutable_columns(3)->set_name("caf\u00e9");
  EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
}

TEST(ValidateJobSpec, RefusesOptionsThatAreNotFinite) {
  v1::JobSpec spec = GoodSpec();
  (*spec.mutable_model()->mutable_options()->mutable_fields())["dropout"].set_number_value(
      std::nan(""));
  EXPECT_THAT(std::string(ValidateJobSpec(spec).message()),
              StartsWith("model.options.dropout: found nan"));
}

}  // namespace
}  // namespace tessera
