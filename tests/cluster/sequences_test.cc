// Models of behaviour sequences, and pooling by the largest, on a cluster in this process.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/behaviour_data.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "common/job/dense_layout.h"
#include "common/job/job_tables.h"
#include "local/export_model.h"
#include "tests/cluster/training_testing.h"
#include "worker/new_model.h"
#include "worker/onnx/onnx_proto.h"
#include "worker/parameters/dense_blocks.h"

namespace tessera {
namespace {

constexpr char kJob[] = R"(
name: sequences
seed: 3
data:
  format: csv
  header: true
  columns:
    - {name: click, role: label}
    - {name: item, role: sparse, table: [embedding]}
    - {name: history, role: sparse, table: [embedding], separator: "|", pooling: sequence, max_length: 6}
  train: {files: train.csv}
  validation: {files: test.csv}
  test: {files: test.csv}
  shuffle_window_records: 3000
tables:
  - {name: embedding, dim: 8, initializer: {normal: {stddev: 0.1}}, optimizer: {learning_rate: 0.01, adam: {}}}
model:
  name: din
  options: {sequence: history, target: item, attention: [16], hidden: [32, 16]}
  optimizer: {learning_rate: 0.01, adam: {}}
train: {batch_size: 250, epochs: 4}
)";

class SequencesTest : public TrainingTest {
 protected:
  void SetUp() override {
    folder_ = RunFolder("data");
    client::BehaviourDataOptions options;
    options.folder = folder_;
    options.train = 20000;
    options.validation = 100;
    options.test = 3000;
    ASSERT_TRUE(client::GenerateBehaviourData(options, PosixFileSystem()).ok());
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    TrainingTest::TearDown();
  }

  static v1::JobSpec Spec(const std::vector<std::string>& overrides) {
    auto job = ParseJobYaml(kJob, "job.yaml");
    EXPECT_TRUE(job.ok()) << job.status();
    for (const std::string& assignment : overrides) {
      EXPECT_TRUE(ApplyOverride(assignment, *job).ok()) << assignment;
    }
    return job->spec;
  }
  v1::JobStatus RunHere(const std::string& name, const v1::JobSpec& spec, int ps) {
    return Run(name, spec, {.ps = ps, .workers = 2, .data_root = folder_});
  }
  static double TestAuc(const v1::JobStatus& status) {
    EXPECT_EQ(status.state(), v1::SUCCEEDED) << status.reason() << ": " << status.message();
    if (!status.final_metrics().contains("test")) return 0;
    return status.final_metrics().at("test").metrics().at("auc");
  }

  // An ONNX file of the checkpoint has the vectors that the rows have: each is the start of a row.
  void ExpectBiasesInFile(const v1::JobSpec& spec, const std::string& checkpoint) {
    const std::string path = folder_ + "/model.onnx";
    local::ExportOptions options;
    options.checkpoint = checkpoint;
    options.output = path;
    const auto report = local::ExportCheckpoint(options);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->tables.size(), 1u);  // which the item and its history read
    onnx::ModelProto file;
    std::ifstream stream(path, std::ios::binary);
    ASSERT_TRUE(file.ParseFromIstream(&stream));
    std::map<std::string, std::vector<float>> vectors;
    for (const auto& tensor : file.graph().initializer()) {
      if (tensor.dims_size() != 1) continue;
      std::vector<float>& values = vectors[tensor.name()];
      values.resize(tensor.raw_data().size() / sizeof(float));
      std::memcpy(values.data(), tensor.raw_data().data(), tensor.raw_data().size());
    }
    auto manifest = ReadManifest(PosixFileSystem(), checkpoint);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    const auto reader = CheckpointReader::Open(PosixFileSystem(), checkpoint, *manifest);
    ASSERT_TRUE(reader.ok()) << reader.status();
    std::map<uint64_t, std::vector<float>> rows;
    for (uint32_t p = 0; p < (*reader)->partition_count(); ++p) {
      const auto part = (*reader)->Read(*(*reader)->FindTable(kDenseTable), PartitionId(p));
      ASSERT_TRUE(part.ok()) << part.status();
      for (uint64_t i = 0; i < part->rows(); ++i) {
        rows[part->key(i)].assign(part->values(i).begin(),
                                  part->values(i).begin() + kDenseBlockFloats);
      }
    }
    const auto model = worker::NewModel(spec, 0);
    ASSERT_TRUE(model.ok()) << model.status();
    const DenseLayout layout = worker::TrainedLayout(spec.model(), **model);
    int found = 0;
    for (const worker::GraphParameter& parameter : (*model)->graph().parameters()) {
      if (!vectors.contains(parameter.name) || !parameter.spec.trained) continue;
      const auto block =
          std::find_if(layout.blocks().begin(), layout.blocks().end(),
                       [&](const DenseLayout::Block& b) { return b.begin == parameter.offset; });
      ASSERT_NE(block, layout.blocks().end()) << parameter.name;
      std::vector<float>& row = rows.at(block->key);
      row.resize(parameter.floats);
      EXPECT_EQ(vectors.at(parameter.name), row) << parameter.name;
      ++found;
    }
    EXPECT_GT(found, 2);
  }

  std::string folder_;
};

TEST_F(SequencesTest, AttentionFindsWhatPoolingLoses) {
  const std::vector<std::string> pooled = {"model.name=dnn", "model.options={hidden: [32, 16]}",
                                           "data.columns.history.pooling=mean",
                                           "data.columns.history.max_length="};
  const double mean = TestAuc(RunHere("mean", Spec(pooled), 1));
  const v1::JobStatus din = RunHere("din", Spec({}), 1);
  EXPECT_GT(TestAuc(din), mean + 0.03);
  EXPECT_EQ(Digest(din), Digest(RunHere("din-three", Spec({}), 3)));
}

TEST_F(SequencesTest, SequencesThatArePaddedInTheDataAreThoseThatAreNot) {
  const v1::JobSpec spec = Spec({"train.epochs=1"});
  const v1::JobStatus plain = RunHere("plain", spec, 2);
  for (const char* split : {"train.csv", "test.csv"}) {
    std::ifstream in(folder_ + "/" + split);
    std::string line, text;
    std::getline(in, line);
    const std::vector<std::string> names = absl::StrSplit(line, ',');
    const auto history =
        static_cast<size_t>(std::find(names.begin(), names.end(), "history") - names.begin());
    ASSERT_LT(history, names.size());
    text = line + "\n";
    for (int record = 0; std::getline(in, line); ++record) {
      std::vector<std::string> fields = absl::StrSplit(line, ',');
      const std::string ids = std::exchange(fields[history], "");
      // In front of the ids, behind them, or alone.
      std::string& field = fields[history];
      field = ids.empty() ? "-1|-1|-1" : record % 2 == 0 ? "-1|-1|" + ids : ids + "|-1|-1|-1|-1";
      absl::StrAppend(&text, absl::StrJoin(fields, ","), "\n");
    }
    in.close();
    std::ofstream(folder_ + "/" + split) << text;
  }
  v1::JobSpec padded = spec;
  padded.mutable_data()->mutable_columns(2)->set_padding_id("-1");
  const v1::JobStatus status = RunHere("padded", padded, 2);
  EXPECT_EQ(Digest(plain), Digest(status));
  EXPECT_EQ(TestAuc(plain), TestAuc(status));
}

TEST_F(SequencesTest, DienLearnsAndGivesTheSameBitsOnAnyNumberOfPs) {
  const v1::JobSpec spec = Spec(
      {"model.name=dien", "model.options={sequence: history, target: item, hidden: [32, 16]}"});
  const v1::JobStatus one = RunHere("one", spec, 1);
  EXPECT_GT(TestAuc(one), 0.65);
  EXPECT_EQ(Digest(one), Digest(RunHere("three", spec, 3)));
}

TEST_F(SequencesTest, DienLearnsWithItsAuxiliaryLossToTheSameBitsOnAnyNumberOfPs) {
  const auto with = [](const std::string& options) {
    return Spec({"model.name=dien", absl::StrCat("model.options={sequence: history, target: item, "
                                                 "hidden: [32, 16], ",
                                                 options, "}")});
  };
  const v1::JobStatus one = RunHere("one", with("auxiliary: 1"), 1);
  EXPECT_GT(TestAuc(one), 0.65);
  EXPECT_EQ(Digest(one), Digest(RunHere("three", with("auxiliary: 1"), 3)));
  EXPECT_NE(Digest(one), Digest(RunHere("off", with("auxiliary: 0"), 1)));
}

TEST_F(SequencesTest, LambMovesDenseTensorsToTheSameBitsOnAnyNumberOfPs) {
  const v1::JobSpec spec = Spec({"model.optimizer={learning_rate: 0.02, lamb: {}}"});
  const v1::JobStatus one = RunHere("one", spec, 1);
  EXPECT_GT(TestAuc(one), 0.65);
  EXPECT_EQ(Digest(one), Digest(RunHere("three", spec, 3)));
  ExpectBiasesInFile(spec, one.checkpoint());
}

TEST_F(SequencesTest, PoolingByTheLargestLearns) {
  const v1::JobSpec spec =
      Spec({"model.name=dnn", "model.options={hidden: [32, 16]}",
            "data.columns.history.pooling=max", "data.columns.history.max_length="});
  const v1::JobStatus one = RunHere("one", spec, 1);
  EXPECT_GT(TestAuc(one), 0.6);
  EXPECT_EQ(Digest(one), Digest(RunHere("three", spec, 3)));
}

TEST_F(SequencesTest, AnAverageOfTheDenseParametersIsServedAndResumed) {
  const std::vector<std::string> job = {"model.ema_decay=0.9", "model.optimizer.learning_rate=0.03",
                                        "checkpoint.keep=10"};
  const v1::JobStatus averaged = RunHere("averaged", Spec(job), 1);
  const double plain = TestAuc(RunHere("plain", Spec({"model.optimizer.learning_rate=0.03"}), 1));
  // The same training, measured with other weights.
  EXPECT_NE(TestAuc(averaged), plain);
  EXPECT_GT(TestAuc(averaged), 0.7);
  EXPECT_EQ(Digest(averaged), Digest(RunHere("three", Spec(job), 3)));
  // The average goes on where a checkpoint left it.
  v1::JobSpec half = Spec(job);
  half.mutable_train()->set_epochs(2);
  const v1::JobStatus first = RunHere("half", half, 2);
  v1::JobSpec rest = Spec(job);
  const std::string root = PathOf("half") + "/checkpoints";
  rest.mutable_start()->set_checkpoint(
      std::filesystem::relative(first.checkpoint(), root).string());
  const v1::JobStatus resumed =
      Run("rest", rest, {.ps = 1, .workers = 2, .data_root = folder_, .checkpoint_root = root});
  EXPECT_EQ(Digest(averaged), Digest(resumed));
}

TEST_F(SequencesTest, LayersReadASequenceAndItsLengthByName) {
  const v1::JobSpec spec =
      Spec({"model.name=layers", "model.options=",
            "model.layers=[{name: state, op: gru, inputs: [history.embedding, "
            "history.length], options: {units: 6, sequence: false}}, {name: all, "
            "op: concat, inputs: [item.embedding, state]}, {name: hidden, op: "
            "linear, inputs: [all], options: {units: 16}}, {name: active, op: "
            "relu, inputs: [hidden]}, {name: logit, op: linear, inputs: "
            "[active], options: {units: 1}}]"});
  EXPECT_GT(TestAuc(RunHere("layers", spec, 2)), 0.6);
}

}  // namespace
}  // namespace tessera
