// Jobs with sample weights, several tasks, and losses of classes and of ranking, on a cluster in
// this process.
#include <fstream>
#include <functional>
#include <sstream>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/behaviour_data.h"
#include "tests/cluster/training_testing.h"

namespace tessera {
namespace {

constexpr char kTwoTasks[] = R"(
name: behaviour
seed: 3
data:
  format: csv
  header: true
  columns:
    - {name: click, role: label}
    - {name: user, role: sparse, table: [linear]}  # which the models leave out
    - {name: item, role: sparse, table: [embedding]}
    - {name: history, role: sparse, table: [embedding], separator: "|", pooling: mean}
  train: {files: train.csv}
  validation: {files: test.csv}
  test: {files: test.csv}
  shuffle_window_records: 3000
tables:
  - {name: linear, dim: 1, initializer: {constant: {}}, optimizer: {learning_rate: 0.01, sgd: {}}}
  - {name: embedding, dim: 8, initializer: {normal: {stddev: 0.05}}, optimizer: {learning_rate: 0.01, adam: {}}}
model:
  name: dnn
  options: {hidden: [32, 16]}
  optimizer: {learning_rate: 0.01, adam: {}}
train: {batch_size: 250, epochs: 2}
)";

class TasksTest : public TrainingTest {
 protected:
  void SetUp() override {
    folder_ = RunFolder("data");
    client::BehaviourDataOptions options;
    options.folder = folder_;
    options.train = 10000;
    options.validation = 100;
    options.test = 2000;
    ASSERT_TRUE(client::GenerateBehaviourData(options, PosixFileSystem()).ok());
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    TrainingTest::TearDown();
  }

  static v1::JobSpec Behaviour(const std::vector<std::string>& overrides) {
    auto job = LoadJob(kTwoTasks);
    for (const std::string& assignment : overrides) {
      EXPECT_TRUE(ApplyOverride(assignment, job).ok()) << assignment;
    }
    return job.spec;
  }
  static LoadedJob LoadJob(const std::string& text) {
    auto job = ParseJobYaml(text, "job.yaml");
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : LoadedJob();
  }
  static void AddColumn(v1::JobSpec& spec, const std::string& name, v1::ColumnRole role) {
    v1::ColumnSpec* column = spec.mutable_data()->add_columns();
    column->set_name(name);
    column->set_role(role);
  }
  static void AddTask(v1::JobSpec& spec, const std::string& name, v1::Loss loss, float weight) {
    v1::TaskSpec* task = spec.mutable_model()->add_tasks();
    task->set_name(name + "-task");
    task->set_label(name);
    task->set_loss(loss);
    task->set_weight(weight);
  }
  static std::map<std::string, double> Test(const v1::JobStatus& status) {
    EXPECT_EQ(status.state(), v1::SUCCEEDED) << status.reason() << ": " << status.message();
    if (!status.final_metrics().contains("test")) return {};
    const auto& metrics = status.final_metrics().at("test").metrics();
    return {metrics.begin(), metrics.end()};
  }

  using Fields = std::vector<std::string>;
  using Header = std::function<size_t(const std::string&)>;  // the place of a column
  // Changes each record of a file of the data by change(header, number of the record, fields).
  void Rewrite(const std::string& file,
               absl::FunctionRef<void(const Header&, size_t, Fields&)> change) {
    const std::string path = folder_ + "/" + file;
    std::ifstream in(path);
    std::string line, text;
    std::getline(in, line);
    const Fields names = absl::StrSplit(line, ',');
    absl::StrAppend(&text, line, "\n");
    const Header at = [&](const std::string& name) {
      const auto found = std::find(names.begin(), names.end(), name);
      EXPECT_NE(found, names.end()) << name;
      return static_cast<size_t>(found - names.begin());
    };
    for (size_t record = 0; std::getline(in, line); ++record) {
      Fields fields = absl::StrSplit(line, ',');
      change(at, record, fields);
      absl::StrAppend(&text, absl::StrJoin(fields, ","), "\n");
    }
    std::ofstream(path) << text;
  }

  v1::JobStatus RunHere(const std::string& name, const v1::JobSpec& spec, int ps = 2,
                        int workers = 2) {
    return Run(name, spec, {.ps = ps, .workers = workers, .data_root = folder_});
  }

  std::string folder_;
};

TEST_F(TasksTest, WeightsMultiplyLossesAndCountInMetrics) {
  // Clicks weigh four times as much as the rest, so a calibrated model predicts more of them.
  v1::JobSpec spec =
      Behaviour({"evaluation.metrics=[auc, logloss, calibration]", "train.epochs=4"});
  const auto plain = Test(RunHere("plain", spec));
  AddColumn(spec, "weight", v1::WEIGHT);
  const auto weighted = Test(RunHere("weighted", spec));
  EXPECT_NEAR(plain.at("calibration"), 1, 0.15);
  EXPECT_NEAR(weighted.at("calibration"), 1, 0.15);
  // Measured with equal weights, what was trained with weights predicts too many clicks.
  EXPECT_GT(plain.at("auc"), 0.6);
  EXPECT_GT(weighted.at("auc"), 0.6);
  EXPECT_NE(plain.at("logloss"), weighted.at("logloss"));
}

TEST_F(TasksTest, EveryTaskIsTrainedMeasuredAndPredicted) {
  for (const char* model : {"shared_bottom", "mmoe"}) {
    SCOPED_TRACE(model);
    v1::JobSpec spec =
        Behaviour({std::string("model.name=") + model,
                   "model.options={hidden: [32], tower: [16], classes: 7}", "train.epochs=8"});
    AddColumn(spec, "buy", v1::LABEL);
    AddColumn(spec, "kind", v1::LABEL);
    AddTask(spec, "click", v1::BINARY_CROSS_ENTROPY, 1);
    AddTask(spec, "buy", v1::BINARY_CROSS_ENTROPY, 0.5);
    AddTask(spec, "kind", v1::SOFTMAX_CROSS_ENTROPY, 1);
    const v1::JobStatus status = RunHere(std::string(model), spec, 1);
    const auto test = Test(status);
    ASSERT_EQ(test.size(), 6u);
    EXPECT_GT(test.at("auc/click-task"), 0.6);
    EXPECT_GT(test.at("auc/buy-task"), 0.65);
    EXPECT_GT(test.at("accuracy/kind-task"), 0.9);
    EXPECT_LT(test.at("logloss/kind-task"), 0.5);
    // Sync: the same bits whatever the number of ps.
    EXPECT_EQ(Digest(status), Digest(RunHere(std::string(model) + "-three", spec, 3)));

    const std::string folder = status.checkpoint();
    spec.mutable_start()->set_checkpoint(
        std::filesystem::relative(folder, PathOf(model) + "/checkpoints").string());
    const v1::JobStatus predicted =
        Run(std::string(model) + "-predict", spec,
            {.workers = 1, .data_root = folder_, .checkpoint_root = PathOf(model) + "/checkpoints"},
            v1::PREDICT, "predictions.csv");
    ASSERT_EQ(predicted.state(), v1::SUCCEEDED) << predicted.message();
    std::ifstream file(PathOf(std::string(model) + "-predict") + "/predictions.csv");
    std::string line;
    ASSERT_TRUE(std::getline(file, line));
    EXPECT_EQ(line,
              "label/click-task,prediction/click-task,label/buy-task,prediction/buy-task,"
              "label/kind-task,prediction/kind-task,probability/kind-task");
    int lines = 0;
    while (std::getline(file, line)) lines += std::count(line.begin(), line.end(), ',') == 6;
    EXPECT_EQ(lines, 2000);

    // Two workers and two ps, where the job had one of each.
    const v1::JobStatus evaluated =
        Run(std::string(model) + "-evaluate", spec,
            {.workers = 2, .data_root = folder_, .checkpoint_root = PathOf(model) + "/checkpoints"},
            v1::EVALUATE);
    ASSERT_EQ(evaluated.state(), v1::SUCCEEDED) << evaluated.message();
    EXPECT_EQ(Test(evaluated), test);
  }
}

TEST_F(TasksTest, ARecordWithoutALabelIsOneOfWeightZero) {
  // Every other record: its label is missing, or it is there and the record weighs nothing.
  for (const char* split : {"train.csv", "test.csv"}) {
    Rewrite(split, [](const Header& at, size_t record, Fields& fields) {
      const bool labelled = record % 2 == 0;
      fields[at("weight")] = labelled ? "1" : "0";
      fields[at("kind")] = labelled ? fields[at("click")] : "nan";
    });
  }
  const std::vector<std::string> metrics = {"evaluation.metrics=[auc, logloss, calibration]"};
  v1::JobSpec weighted = Behaviour(metrics);
  AddColumn(weighted, "weight", v1::WEIGHT);
  v1::JobSpec missing = Behaviour(metrics);
  missing.mutable_data()->mutable_columns(0)->set_name("kind");
  missing.mutable_data()->mutable_columns(0)->set_missing_value("nan");
  const v1::JobStatus by_weight = RunHere("weighted", weighted),
                      by_label = RunHere("missing", missing);
  EXPECT_EQ(Digest(by_weight), Digest(by_label));
  const auto expected = Test(by_weight), found = Test(by_label);
  ASSERT_EQ(found.size(), 3u);
  for (const auto& [name, value] : expected) EXPECT_NEAR(found.at(name), value, 1e-12) << name;
  EXPECT_GT(found.at("auc"), 0.6);
}

TEST_F(TasksTest, TasksLearnFromTheRecordsThatHaveTheirLabel) {
  // Purchases are known of clicked items only, and the kind of every other one.
  for (const char* split : {"train.csv", "test.csv"}) {
    Rewrite(split, [](const Header& at, size_t record, Fields& fields) {
      if (fields[at("click")] == "0") fields[at("buy")] = "";
      if (record % 2 == 0) fields[at("kind")] = "";
    });
  }
  v1::JobSpec spec = Behaviour({"model.name=mmoe", "train.epochs=8",
                                "model.options={hidden: [32], tower: [16], classes: 7}",
                                "evaluation.metrics=[logloss, auc/click-task, auc/buy-task, "
                                "calibration/buy-task, accuracy/kind-task]"});
  for (const char* label : {"buy", "kind"}) {
    AddColumn(spec, label, v1::LABEL);
    spec.mutable_data()->mutable_columns()->rbegin()->set_missing_value("");
  }
  AddTask(spec, "click", v1::BINARY_CROSS_ENTROPY, 1);
  AddTask(spec, "buy", v1::BINARY_CROSS_ENTROPY, 2);
  AddTask(spec, "kind", v1::SOFTMAX_CROSS_ENTROPY, 2);
  const v1::JobStatus status = RunHere("one", spec, 1);
  const auto test = Test(status);
  ASSERT_EQ(test.size(), 7u);
  EXPECT_GT(test.at("auc/click-task"), 0.6);
  EXPECT_GT(test.at("accuracy/kind-task"), 0.9);
  // Of the clicked items, which are the ones that it is measured on.
  EXPECT_NEAR(test.at("calibration/buy-task"), 1, 0.25);
  EXPECT_EQ(Digest(status), Digest(RunHere("three", spec, 3)));
  // Without the option such a record is bad.
  spec.mutable_data()->mutable_columns()->rbegin()->clear_missing_value();
  const v1::JobStatus refused = RunHere("refused", spec, 1);
  EXPECT_EQ(refused.state(), v1::FAILED);
  EXPECT_THAT(refused.message(), testing::HasSubstr("column \"kind\": is empty; expected"));
}

TEST_F(TasksTest, LossesOfRankingOrderTheSamplesOfAGroup) {
  const std::vector<std::string> common = {"model.group_by=user", "train.epochs=8",
                                           "evaluation.metrics=[ndcg@3, recall@3, precision@3]",
                                           "evaluation.monitor=ndcg@3"};
  for (const char* loss : {"bayesian_personalized_ranking", "listwise_softmax"}) {
    SCOPED_TRACE(loss);
    std::vector<std::string> overrides = common;
    overrides.push_back(std::string("model.loss=") + loss);
    v1::JobSpec spec = Behaviour(overrides);
    const auto in_a_table = Test(RunHere(std::string(loss) + "-table", spec, 1));
    spec.mutable_data()->mutable_columns(1)->clear_table();  // the ids only say who is compared
    spec.mutable_tables()->DeleteSubrange(0, 1);
    const v1::JobStatus status = RunHere(loss, spec, 1);
    const auto test = Test(status);
    EXPECT_EQ(test, in_a_table);
    v1::JobSpec untrained = spec;
    untrained.mutable_train()->set_steps(1);
    const auto before = Test(RunHere(std::string(loss) + "-untrained", untrained, 1));
    EXPECT_GT(test.at("ndcg@3"), before.at("ndcg@3") + 0.05);
    EXPECT_GT(test.at("recall@3"), before.at("recall@3") + 0.03);
    EXPECT_EQ(Digest(status), Digest(RunHere(std::string(loss) + "-three", spec, 3)));
  }
}

TEST_F(TasksTest, QueriesOfLibsvmGroupAsAColumnDoes) {
  const std::vector<std::string> overrides = {"model.loss=listwise_softmax", "model.group_by=user",
                                              "evaluation.metrics=[ndcg@3]",
                                              "evaluation.monitor=ndcg@3"};
  v1::JobSpec csv = Behaviour(overrides);
  csv.mutable_data()->mutable_columns(1)->clear_table();
  csv.mutable_tables()->DeleteSubrange(0, 1);
  csv.mutable_data()->mutable_columns()->DeleteSubrange(3, 1);  // the history
  const v1::JobStatus expected = RunHere("csv", csv);
  for (const char* split : {"train.csv", "test.csv"}) {
    std::string text;
    Rewrite(split, [&](const Header& at, size_t, Fields& fields) {
      absl::StrAppend(&text, fields[at("click")], " qid:", fields[at("user")], " ",
                      fields[at("item")], ":1\n");
    });
    std::ofstream(folder_ + "/" + split + ".svm") << text;
  }
  v1::JobSpec svm = csv;
  v1::DataSpec& data = *svm.mutable_data();
  data.set_format(v1::LIBSVM);
  data.set_header(false);
  data.mutable_columns(1)->set_qid(true);
  data.mutable_columns(2)->set_index_end(100000);
  for (v1::SplitSpec* one :
       {data.mutable_train(), data.mutable_validation(), data.mutable_test()}) {
    one->set_files(0, one->files(0) + ".svm");
  }
  const v1::JobStatus found = RunHere("svm", svm);
  EXPECT_EQ(Digest(expected), Digest(found));
  EXPECT_EQ(Test(expected), Test(found));
  EXPECT_GT(Test(found).at("ndcg@3"), 0);
}

TEST_F(TasksTest, ALabelBeyondTheClassesIsABadRecord) {
  v1::JobSpec spec =
      Behaviour({"model.loss=softmax_cross_entropy", "model.options={hidden: [8], classes: 2}"});
  spec.mutable_data()->mutable_columns(0)->set_name("stars");  // 0, 1 and 2
  const v1::JobStatus status = RunHere("few", spec);
  EXPECT_EQ(status.state(), v1::FAILED);
  EXPECT_THAT(
      status.message(),
      testing::HasSubstr("column \"stars\": \"2\" is not the number of a class; expected 0 .. 1"));
}

}  // namespace
}  // namespace tessera
