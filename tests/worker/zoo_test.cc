#include "worker/zoo/zoo.h"

#include "tests/worker/dense_job_testing.h"

namespace tessera::worker::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Zoo, BuildsEveryModelWithItsParameters) {
  // 5 fields of dim 4 and 3 dense features: features 23, linear over dense 3 + 1.
  const uint64_t mlp = 23 * 17 + 17 + 2 * 17 + 17 * 9 + 9 + 2 * 9 + 9 + 1;
  const std::map<std::string, uint64_t> trained = {
      {"lr", 4}, {"fm", 4}, {"dnn", mlp}, {"wide_deep", 4 + mlp}, {"deepfm", 4 + mlp}};
  for (const std::string& name : ZooModelNames()) {
    SCOPED_TRACE(name);
    v1::JobSpec spec = Job(name, 5, 3);
    const bool deep = name != "lr" && name != "fm";
    if (deep) SetOptions(spec, SmallMlp());
    const std::unique_ptr<Model> model = MakeModel(spec);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->trained_floats(), trained.at(name));
    EXPECT_EQ(model->statistics_floats(), deep ? 2u * (17 + 9) : 0u);
    EXPECT_EQ(model->dense_width(), 3);
    std::vector<std::string> tables;
    for (const Model::Input& input : model->inputs()) {
      tables.push_back(input.table);
      EXPECT_EQ(input.fields, 5);
      EXPECT_EQ(input.dim, input.table == "linear" ? 1 : 4);
      EXPECT_EQ(input.table_index, input.table == "linear" ? 0 : 1);
    }
    const std::vector<std::string> expected = name == "lr" ? std::vector<std::string>{"linear"}
                                              : name == "dnn"
                                                  ? std::vector<std::string>{"embedding"}
                                                  : std::vector<std::string>{"linear", "embedding"};
    EXPECT_EQ(tables, expected);
  }
}

TEST(Zoo, LogisticRegressionSumsTheRowsAndTheBias) {
  const std::unique_ptr<Model> model = MakeModel(Job("lr", 3, 0));
  Session session(*model);
  ASSERT_EQ(session.trained.size(), 1);
  session.trained[0] = 0.5f;
  session.Fill(4, 1);
  const std::vector<float> logits = session.Forward();
  const absl::Span<const float> rows = session.executor.pooled(0);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(logits[i], rows[3 * i] + rows[3 * i + 1] + rows[3 * i + 2] + 0.5f, 1e-6);
  }
}

TEST(Zoo, StartsFromXavierWeightsThatDependOnTheSeedAlone) {
  v1::JobSpec spec = Job("dnn", 25, 0);
  SetOptions(spec, Options().Set("hidden", std::vector<int64_t>{300}).Set("batch_norm", true));
  const std::unique_ptr<Model> model = MakeModel(spec);
  Session session(*model);
  const GraphParameter& weight = model->graph().parameters()[0];
  ASSERT_EQ(weight.name, "mlp/1/linear/weight");
  ASSERT_EQ(weight.spec.shape, (std::vector<int64_t>{300, 100}));
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < weight.floats; ++i) {
    sum += session.trained[i];
    squares += session.trained[i] * session.trained[i];
  }
  const double n = static_cast<double>(weight.floats);
  EXPECT_NEAR(sum / n, 0, 4 * std::sqrt(2.0 / 400 / n));
  EXPECT_NEAR(squares / n, 2.0 / 400, 0.05 * 2.0 / 400);
  // Bias 0, BatchNormalization weight 1 and bias 0, running mean 0 and variance 1.
  EXPECT_EQ(session.trained[30000], 0);
  EXPECT_EQ(session.trained[30300], 1);
  EXPECT_EQ(session.trained[30600], 0);
  EXPECT_EQ(session.statistics[0], 0);
  EXPECT_EQ(session.statistics[300], 1);
  EXPECT_EQ(Session(*MakeModel(spec)).trained, session.trained);
  spec.set_seed(12);
  EXPECT_NE(Session(*MakeModel(spec)).trained, session.trained);
}

TEST(Zoo, RefusesUnknownModels) {
  EXPECT_THAT(ErrorOf(Job("deepmf", 2, 0)),
              AllOf(StartsWith("model.name: unknown model \"deepmf\""),
                    HasSubstr("did you mean \"deepfm\"?"),
                    HasSubstr("Known are deepfm, dnn, fm, lr, wide_deep, layers")));
}

TEST(Zoo, RefusesWrongOptionsByPath) {
  const auto error = [](google::protobuf::Struct options, const char* model = "deepfm") {
    v1::JobSpec spec = Job(model, 2, 0);
    SetOptions(spec, std::move(options));
    return ErrorOf(spec);
  };
  EXPECT_THAT(error(Options().Set("hiden", 5.0)),
              AllOf(StartsWith("model.options.hiden: unknown option"),
                    HasSubstr("did you mean \"hidden\"?"), HasSubstr("batch_norm")));
  EXPECT_THAT(error(Options().Set("hidden", std::string("big"))),
              StartsWith("model.options.hidden: expected a list, each element a whole number"));
  EXPECT_THAT(error(Options().Set("hidden", std::vector<int64_t>{400, 0})),
              AllOf(StartsWith("model.options.hidden: "), HasSubstr("found the list [400, 0]")));
  EXPECT_THAT(error(Options().Set("dropout", 1.0)),
              StartsWith("model.options.dropout: expected a number from 0 to below 1, found 1"));
  EXPECT_THAT(error(Options().Set("dropout", std::string("0.2"))),
              HasSubstr("found the text \"0.2\""));
  EXPECT_THAT(error(Options().Set("batch_norm", 1.0)),
              StartsWith("model.options.batch_norm: expected true or false, found 1"));
  EXPECT_THAT(error(Options().Set("activation", std::string("rellu"))),
              AllOf(StartsWith("model.options.activation: unknown value \"rellu\""),
                    HasSubstr("did you mean \"relu\"?")));
  EXPECT_THAT(error(Options().Set("hidden", 5.0), "lr"),
              StartsWith("model.options.hidden: unknown option; known are linear_table"));
}

TEST(Zoo, SaysWhatToAddWhenTheLinearTableIsMissing) {
  v1::JobSpec spec = Job("deepfm", 2, 0);
  spec.mutable_tables()->DeleteSubrange(0, 1);
  for (auto& column : *spec.mutable_data()->mutable_columns()) {
    if (column.role() == v1::SPARSE) column.mutable_table()->DeleteSubrange(0, 1);
  }
  EXPECT_THAT(ErrorOf(spec), AllOf(HasSubstr("needs a table of dim 1 named \"linear\""),
                                   HasSubstr("`- {name: linear, dim: 1"),
                                   HasSubstr("`table: [linear, embedding]`")));
  // A table that no column reads.
  auto* table = spec.add_tables();
  table->set_name("linear");
  table->set_dim(1);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("no column reads its linear table \"linear\""));
  // A table of another dim.
  SetOptions(spec, Options().Set("linear_table", std::string("embedding")));
  EXPECT_THAT(ErrorOf(spec), HasSubstr("whose dim is 4, expected 1"));
}

TEST(Zoo, NeedsVectorsOfOneDimForTheFactorizationMachine) {
  v1::JobSpec spec = Job("fm", 2, 0);
  auto* table = spec.add_tables();
  table->set_name("wide");
  table->set_dim(8);
  spec.mutable_data()->mutable_columns(1)->add_table("wide");
  EXPECT_THAT(ErrorOf(spec),
              HasSubstr("need one dim; \"embedding\" has dim 4 and \"wide\" has dim 8"));
  spec.mutable_model()->set_name("dnn");
  EXPECT_NE(MakeModel(spec), nullptr);  // flattened side by side, any dims will do
  spec.mutable_model()->set_name("fm");
  table->set_dim(4);
  EXPECT_NE(MakeModel(spec), nullptr);
}

TEST(Zoo, WorksWithoutSparseColumns) {
  v1::JobSpec spec = Job("wide_deep", 0, 6);
  spec.clear_tables();
  SetOptions(spec, SmallMlp());
  const std::unique_ptr<Model> model = MakeModel(spec);
  ASSERT_NE(model, nullptr);
  EXPECT_TRUE(model->inputs().empty());
  Session session(*model);
  session.Fill(8, 1);
  EXPECT_GT(session.Step().loss_sum, 0);
  spec.mutable_model()->set_name("deepfm");
  EXPECT_THAT(ErrorOf(spec), HasSubstr("needs a table of embeddings"));
}

TEST(Model, SummaryListsLayersShapesAndTotals) {
  v1::JobSpec spec = Job("deepfm", 5, 3);
  SetOptions(spec, SmallMlp());
  const std::string summary = MakeModel(spec)->Summary();
  for (const char* part :
       {"embedding", "[batch, 5, 4]", "mlp/1/linear", "Gemm", "[batch, 17]", "BatchNormalization",
        "408", "total: 636 trained parameters", "52 running statistics"}) {
    EXPECT_THAT(summary, HasSubstr(part));
  }
}

TEST(Model, TakesTheReadersDenseWidthOrSaysTheyDiffer) {
  EXPECT_EQ(Model::New(Job("dnn", 1, 2), 3).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace tessera::worker::testing
