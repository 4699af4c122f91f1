// What ValidateJobSpec says of labels, weights, tasks, losses and the metrics that go with them.
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/metric_names.h"
#include "common/job/validate.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// Two tasks, of labels click and kind, and a weight.
v1::JobSpec TwoTasks() {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        name: "tasks"
        data {
          format: CSV
          header: true
          columns { name: "click" role: LABEL }
          columns { name: "kind" role: LABEL }
          columns { name: "weight" role: WEIGHT default_value: "1" }
          columns { name: "user" role: SPARSE table: "embedding" }
          train { files: "train.csv" }
        }
        tables {
          name: "embedding"
          dim: 8
          initializer { normal { stddev: 0.01 } }
          optimizer {
            learning_rate: 0.001
            adam {}
          }
        }
        model {
          name: "mmoe"
          tasks { name: "click" label: "click" weight: 2 }
          tasks { name: "kind" label: "kind" loss: SOFTMAX_CROSS_ENTROPY }
          optimizer {
            learning_rate: 0.001
            adam {}
          }
        }
        train { batch_size: 1024 epochs: 2 }
      )pb",
      &spec));
  return spec;
}

// One task whose loss ranks within users.
v1::JobSpec Ranking(v1::Loss loss) {
  v1::JobSpec spec = TwoTasks();
  spec.mutable_model()->clear_tasks();
  spec.mutable_data()->mutable_columns(1)->set_role(v1::IGNORED);
  spec.mutable_data()->mutable_columns(2)->set_role(v1::IGNORED);
  spec.mutable_data()->mutable_columns(2)->clear_default_value();
  spec.mutable_model()->set_loss(loss);
  spec.mutable_model()->set_group_by("user");
  return spec;
}

TEST(ValidateTasks, TakesTasksWeightsAndRanking) {
  EXPECT_EQ(ValidateJobSpec(TwoTasks()), absl::OkStatus());
  EXPECT_EQ(ValidateJobSpec(Ranking(v1::BAYESIAN_PERSONALIZED_RANKING)), absl::OkStatus());
  EXPECT_EQ(ValidateJobSpec(Ranking(v1::LISTWISE_SOFTMAX)), absl::OkStatus());
}

TEST(ValidateTasks, NamesWhatIsWrongAndWhere) {
  const auto model = [](v1::JobSpec& s) { return s.mutable_model(); };
  const auto task = [](v1::JobSpec& s, int i) { return s.mutable_model()->mutable_tasks(i); };
  const auto column = [](v1::JobSpec& s, int i) { return s.mutable_data()->mutable_columns(i); };
  const auto metric = [](v1::JobSpec& s, const char* name) {
    s.mutable_evaluation()->add_metrics(name);
  };
  const struct {
    std::function<void(v1::JobSpec&)> change;
    const char* path;
    const char* text;
  } cases[] = {
      {[=](auto& s) { task(s, 1)->set_name("click"); }, "model.tasks[1].name", "earlier task"},
      {[=](auto& s) { task(s, 1)->set_name("a/b"); }, "model.tasks[1].name", "expected 1 to 63"},
      {[=](auto& s) { task(s, 1)->set_label("knd"); }, "model.tasks[1].label",
       "did you mean \"kind\"?"},
      {[=](auto& s) { task(s, 1)->clear_label(); }, "model.tasks[1].label", "missing"},
      {[=](auto& s) { task(s, 0)->set_weight(0); }, "model.tasks[0].weight", "more than 0"},
      {[=](auto& s) { task(s, 0)->set_weight(1e30f); }, "model.tasks[0].weight",
       "found 1e+30; expected more than 0 (or leave the task out) and at most 1e+06"},
      {[=](auto& s) { task(s, 1)->set_positive_weight(2); }, "model.tasks[1].positive_weight",
       "binary_cross_entropy"},
      {[=](auto& s) { task(s, 0)->set_huber_delta(2); }, "model.tasks[0].huber_delta", "huber"},
      {[=](auto& s) { task(s, 0)->set_classes(3); }, "model.tasks[0].classes",
       "belongs to the loss softmax_cross_entropy, and the task's is binary_cross_entropy"},
      {[=](auto& s) { task(s, 1)->set_classes(1); }, "model.tasks[1].classes",
       "found 1; expected 2 to 65536"},
      {[=](auto& s) { task(s, 1)->set_classes(65537); }, "model.tasks[1].classes",
       "found 65537; expected"},
      {[=](auto& s) { model(s)->set_loss(v1::HUBER); }, "model.loss", "every task has its own"},
      {[=](auto& s) { model(s)->set_positive_weight(2); }, "model.positive_weight", "its own"},
      {[=](auto& s) { task(s, 1)->set_label("click"); }, "model.tasks[1].loss",
       "takes labels that are the number of a class"},
      {[=](auto& s) { model(s)->mutable_tasks()->RemoveLast(); }, "model.tasks",
       "none reads the label 'kind'"},
      {[=](auto& s) { model(s)->clear_tasks(); }, "data.columns[1].role", "model.tasks"},
      {[=](auto& s) { column(s, 1)->set_role(v1::WEIGHT); }, "data.columns[2].role",
       "is the weight already"},
      {[=](auto& s) { column(s, 2)->set_default_value("-1"); }, "data.columns[2].default_value",
       "0 or more"},
      {[=](auto& s) { column(s, 1)->set_default_value("1.5"); }, "data.columns[1].default_value",
       "number of a class"},
      {[=](auto& s) { column(s, 2)->add_table("embedding"); }, "data.columns[2].table",
       "sparse columns"},
      {[=](auto& s) { model(s)->set_group_by("user"); }, "model.group_by", "the job has none"},
      {[=](auto& s) { task(s, 0)->set_loss(v1::LISTWISE_SOFTMAX); }, "data.columns",
       "compares samples instead of weighing"},
      {[=](auto& s) { model(s)->set_ema_decay(1); }, "model.ema_decay", "below 1"},
      {[=](auto& s) { column(s, 3)->set_pooling(v1::SEQUENCE); }, "data.columns[3].max_length",
       "expected 1 .. 1024"},
      {[=](auto& s) {
         column(s, 3)->set_pooling(v1::SEQUENCE);
         column(s, 3)->set_max_length(2);
       },
       "data.columns[3].separator", "a field of 'user' holds one id, not a sequence"},
      {[=](auto& s) { column(s, 3)->set_max_length(5); }, "data.columns[3].max_length",
       "belongs to columns whose pooling is sequence"},
      {[=](auto& s) { metric(s, "auc"); }, "evaluation.metrics[0]",
       "'auc' is none of the loss of task kind, softmax_cross_entropy"},
      {[=](auto& s) { metric(s, "auc/clicks"); }, "evaluation.metrics[0]",
       "did you mean \"click\"?"},
      {[=](auto& s) {
         metric(s, "logloss");
         metric(s, "logloss/click");
       },
       "evaluation.metrics", "'logloss/click' is named twice"},
      {[=](auto& s) { metric(s, "ndcg@3/click"); }, "evaluation.group_by",
       "ndcg@3/click needs the sparse column"},
      {[=](auto& s) {
         for (int k = 1; k <= 501; ++k) metric(s, absl::StrCat("ndcg@", k).c_str());
       },
       "evaluation.metrics", "found 501 for 2 tasks, 1002 in all; expected at most 1000"},
      {[=](auto& s) { metric(s, "ndcg/click"); }, "evaluation.metrics[0]", "such as 'ndcg@10'"},
      {[=](auto& s) { s.mutable_evaluation()->set_monitor("auc"); }, "evaluation.monitor",
       "known are auc/click"},
  };
  for (const auto& wrong : cases) {
    v1::JobSpec spec = TwoTasks();
    wrong.change(spec);
    const absl::Status status = ValidateJobSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong.path;
    EXPECT_THAT(std::string(status.message()), StartsWith(std::string(wrong.path) + ": "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong.text));
  }
}

TEST(ValidateTasks, LossesOfRankingNeedGroups) {
  v1::JobSpec spec = Ranking(v1::BAYESIAN_PERSONALIZED_RANKING);
  spec.mutable_model()->clear_group_by();
  EXPECT_THAT(std::string(ValidateJobSpec(spec).message()),
              StartsWith("model.group_by: missing; bayesian_personalized_ranking needs"));
  spec.mutable_model()->set_group_by("usr");
  EXPECT_THAT(std::string(ValidateJobSpec(spec).message()), HasSubstr("did you mean \"user\"?"));
}

TEST(ValidateTasks, AColumnThatSaysTheGroupsNeedsNoTable) {
  v1::JobSpec spec = Ranking(v1::LISTWISE_SOFTMAX);
  v1::ColumnSpec* const item = spec.mutable_data()->add_columns();
  item->set_name("item");
  item->set_role(v1::SPARSE);
  item->add_table("embedding");
  spec.mutable_data()->mutable_columns(3)->clear_table();
  EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());

  v1::JobSpec measured = TwoTasks();
  *measured.mutable_data()->add_columns() = *item;
  measured.mutable_data()->mutable_columns(3)->clear_table();
  EXPECT_THAT(std::string(ValidateJobSpec(measured).message()),
              StartsWith("data.columns[3].table: missing; "));
  measured.mutable_evaluation()->add_metrics("gauc/click");
  measured.mutable_evaluation()->set_group_by("user");
  EXPECT_EQ(ValidateJobSpec(measured), absl::OkStatus());

  // It is no input of the model.
  spec.mutable_data()->mutable_columns()->RemoveLast();
  spec.clear_tables();
  EXPECT_THAT(std::string(ValidateJobSpec(spec).message()),
              HasSubstr("none has the role dense, or sparse and a table"));
}

TEST(ValidateTasks, LibsvmHasOneLabelAndNoWeights) {
  v1::JobSpec spec = TwoTasks();
  spec.mutable_data()->set_format(v1::LIBSVM);
  spec.mutable_data()->set_header(false);
  spec.mutable_data()->mutable_columns(3)->set_index_end(10);
  EXPECT_THAT(std::string(ValidateJobSpec(spec).message()), HasSubstr("libsvm has one"));
  spec.mutable_data()->mutable_columns(1)->set_role(v1::IGNORED);
  EXPECT_THAT(std::string(ValidateJobSpec(spec).message()), HasSubstr("no place for a sample's"));
}

TEST(ValidateTasks, TakesAsManyTasksAndMetricsAsItSays) {
  v1::JobSpec spec = TwoTasks();
  const auto add_task = [&] {
    v1::TaskSpec* const task = spec.mutable_model()->add_tasks();
    task->set_name(absl::StrCat("task-", spec.model().tasks_size()));
    task->set_label("click");
  };
  while (spec.model().tasks_size() < 256) add_task();
  for (int k = 1; k <= 3; ++k) spec.mutable_evaluation()->add_metrics("logloss");
  for (int k = 1; k <= 232; ++k) spec.mutable_evaluation()->add_metrics("auc/click");
  EXPECT_THAT(std::string(ValidateJobSpec(spec).message()), HasSubstr("is named twice"));
  spec.mutable_evaluation()->add_metrics("auc/click");
  EXPECT_EQ(std::string(ValidateJobSpec(spec).message()),
            "evaluation.metrics: found 236 for 256 tasks, 1001 in all; expected at most 1000 "
            "(METRIC/TASK is of one task)");
  add_task();
  EXPECT_EQ(std::string(ValidateJobSpec(spec).message()),
            "model.tasks: found 257; expected at most 256");
}

TEST(ValidateTasks, TakesAsManyLabelsAsTasks) {
  v1::JobSpec spec = TwoTasks();
  for (int i = 2; i < 257; ++i) {
    v1::ColumnSpec* const column = spec.mutable_data()->add_columns();
    column->set_name(absl::StrCat("label-", i));
    column->set_role(v1::LABEL);
    column->set_default_value("0");
  }
  EXPECT_EQ(std::string(ValidateJobSpec(spec).message()),
            "data.columns: found 257 of role label; expected at most 256");
  spec.mutable_data()->mutable_columns()->RemoveLast();
  EXPECT_THAT(std::string(ValidateJobSpec(spec).message()), StartsWith("model.tasks: none reads"));
}

TEST(MetricsOf, AreThoseOfEveryTask) {
  v1::JobSpec spec = TwoTasks();
  EXPECT_THAT(MetricsOf(spec),
              ElementsAre("auc/click", "logloss/click", "accuracy/kind", "logloss/kind"));
  EXPECT_EQ(MonitorOf(spec), "auc/click");
  spec.mutable_evaluation()->add_metrics("logloss");
  spec.mutable_evaluation()->add_metrics("auc/click");
  EXPECT_THAT(MetricsOf(spec), ElementsAre("logloss/click", "logloss/kind", "auc/click"));
  EXPECT_THAT(MetricsOf(Ranking(v1::BAYESIAN_PERSONALIZED_RANKING)), ElementsAre("gauc"));
  EXPECT_EQ(MonitorOf(Ranking(v1::LISTWISE_SOFTMAX)), "ndcg@10");
}

TEST(MonitorOf, IsTheUsualMetricWhereItIsMeasuredElseTheFirst) {
  v1::JobSpec spec;
  spec.mutable_evaluation()->add_metrics("binned_auc");
  spec.mutable_evaluation()->add_metrics("logloss");
  EXPECT_EQ(MonitorOf(spec), "binned_auc");
  spec.mutable_evaluation()->add_metrics("auc");
  EXPECT_EQ(MonitorOf(spec), "auc");
  spec.mutable_evaluation()->set_monitor("logloss");
  EXPECT_EQ(MonitorOf(spec), "logloss");
}

TEST(MetricsOf, OfRankingMayNameABinnedAuc) {
  v1::JobSpec spec = Ranking(v1::BAYESIAN_PERSONALIZED_RANKING);
  spec.mutable_evaluation()->add_metrics("binned_auc");
  spec.mutable_evaluation()->set_monitor("binned_auc");
  EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
  EXPECT_TRUE(MeasuresInParts(spec));
  EXPECT_THAT(MetricsInParts(spec), ElementsAre("binned_auc"));
  EXPECT_THAT(MetricsInParts(Ranking(v1::LISTWISE_SOFTMAX)), ElementsAre());
}

TEST(MeasuresInParts, NeedsAllMetricsOfAllTasksToBeSums) {
  v1::JobSpec spec = TwoTasks();
  EXPECT_FALSE(MeasuresInParts(spec));  // auc/click
  spec.mutable_evaluation()->add_metrics("logloss");
  spec.mutable_evaluation()->add_metrics("binned_auc/click");
  spec.mutable_evaluation()->set_monitor("binned_auc/click");
  EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
  EXPECT_TRUE(MeasuresInParts(spec));
  for (const char* metric : {"auc/click", "pr_auc/click", "gauc/click", "ndcg@5/click"}) {
    v1::JobSpec kept = spec;
    kept.mutable_evaluation()->add_metrics(metric);
    EXPECT_FALSE(MeasuresInParts(kept)) << metric;
  }
}

}  // namespace
}  // namespace tessera
