#include "worker/zoo/zoo.h"

#include "tests/worker/dense_job_testing.h"
#include "tests/worker/zoo_testing.h"
#include "worker/dense/ops/ops.h"

namespace tessera::worker::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Zoo, ReadsEveryInputFromItsTable) {
  for (const std::string& name : ZooModelNames()) {
    const v1::JobSpec spec = TinyJob(name);
    const std::unique_ptr<Model> model = MakeModel(spec);
    ASSERT_NE(model, nullptr) << name;
    EXPECT_EQ(model->dense_width(), 3) << name;
    ASSERT_FALSE(model->inputs().empty()) << name;
    for (const Model::Input& input : model->inputs()) {
      const v1::TableSpec& table = spec.tables(static_cast<int>(input.table_index));
      EXPECT_EQ(table.name(), input.table) << name;
      EXPECT_EQ(table.dim(), input.dim) << name;
    }
  }
}

// 5 fields of dim 4 and 3 dense features: features 23, linear over dense 3 + 1, and where dense
// features are fields, 8 fields and 12 numbers for 3 of them. (Of every model as TinyJob has it,
// names and shapes of all inputs and parameters are those of tests/golden/zoo.py.)
TEST(Zoo, BuildsTheOtherFormsOfModels) {
  const auto built = [](const char* name, google::protobuf::Struct options) {
    v1::JobSpec spec = Job(name, 5, 3);
    SetOptions(spec, std::move(options));
    const std::unique_ptr<Model> model = MakeModel(spec);
    return model == nullptr ? 0 : model->trained_floats();
  };
  const auto hidden = [](std::vector<int64_t> widths) { return Options().Set("hidden", widths); };
  // The deep network reads what the cross layers give: 23 -> 9 -> 1.
  EXPECT_EQ(built("dcn_v2", hidden({9}).Set("structure", std::string("stacked"))),
            3u * (23 * 23 + 23) + 23 * 9 + 9 + 10);
  EXPECT_EQ(built("dcn_v2", hidden({})), 3u * (23 * 23 + 23) + 24);
  EXPECT_EQ(built("dcn", hidden({}).Set("cross_layers", 1.0)), 46u + 24);
  // Two mask blocks, the second of width 7 over 9.
  EXPECT_EQ(
      built("masknet",
            hidden({9, 7}).Set("structure", std::string("serial")).Set("embedding_norm", false)),
      12u + 2 * (32 * 32 + 32) + 32 * 9 + 18 + 32 * 9 + 9 + 9 * 9 + 9 + 9 * 7 + 14 + 8);
  // 20 + 4 features, without a dot product.
  EXPECT_EQ(
      built(
          "dlrm",
          hidden({9}).Set("bottom", std::vector<int64_t>{}).Set("interaction", std::string("cat"))),
      3u * 4 + 4 + 24 * 9 + 9 + 10);
  EXPECT_EQ(built("dlrm", hidden({9}).Set("bottom", std::vector<int64_t>{}).Set("self", true)),
            3u * 4 + 4 + (4 + 21) * 9 + 9 + 10);
  EXPECT_EQ(built("finalnet", Options()
                                  .Set("block1", std::vector<int64_t>{6})
                                  .Set("block2", std::vector<int64_t>{})
                                  .Set("field_gate", false)),
            12u + 32 * 12 + 12 + 7);
  EXPECT_EQ(built("finalnet", Options()
                                  .Set("block1", std::vector<int64_t>{6})
                                  .Set("block2", std::vector<int64_t>{4})
                                  .Set("residual", std::string("concat"))
                                  .Set("field_gate", false)),
            12u + 32 * 6 + 6 + 7 + 32 * 4 + 4 + 5);
  EXPECT_EQ(built("edcn", Options()
                              .Set("cross_layers", 1.0)
                              .Set("regulation", false)
                              .Set("bridge", std::string("add"))),
            12u + 64 + 32 * 32 + 32 + 97);
  // Gates and their BatchNormalization, and none in the deep layer.
  EXPECT_EQ(
      built(
          "edcn",
          Options().Set("cross_layers", 1.0).Set("gate_batch_norm", true).Set("temperature", 5.0)),
      12u + 2 * (8 + 64) + 64 + 32 * 32 + 32 + 97);
  EXPECT_EQ(built("autoint",
                  hidden({}).Set("attention", 4.0).Set("attention_layers", 1.0).Set("wide", true)),
            12u + 3 * 16 + 33 + 4);
}

TEST(Zoo, GivesAfnPlusEmbeddingsOfItsOwnForTheDeepNetwork) {
  v1::JobSpec spec = TinyJob("afn");
  (*spec.mutable_model()->mutable_options()->mutable_fields())["ensemble"].set_bool_value(true);
  EXPECT_THAT(ErrorOf(spec), AllOf(HasSubstr("needs a table \"deep\", found linear, embedding"),
                                   HasSubstr("model.options.deep_table")));
  const uint64_t alone = MakeModel(TinyJob("afn"))->trained_floats();
  auto* table = spec.add_tables();
  table->set_name("deep");
  table->set_dim(2);
  for (auto& column : *spec.mutable_data()->mutable_columns()) {
    if (column.role() == v1::SPARSE) column.add_table("deep");
  }
  const std::unique_ptr<Model> model = MakeModel(spec);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->inputs().size(), 2);
  EXPECT_EQ(model->trained_floats(), alone + 10 * 17 + 17 + 2 * 17 + 17 * 9 + 9 + 2 * 9 + 10 + 3);
}

void Merge(v1::JobSpec& spec, const google::protobuf::Struct& options) {
  spec.mutable_model()->mutable_options()->MergeFrom(options);
}

TEST(Zoo, SteersTheGatesOfFinalMlpByTablesOfTheirOwn) {
  v1::JobSpec spec = TinyJob("finalmlp");
  const uint64_t alone = MakeModel(spec)->trained_floats();
  Merge(spec, Options().Set("gate1_table", std::string("gate")));
  EXPECT_THAT(ErrorOf(spec), AllOf(HasSubstr("needs a table \"gate\", found linear, embedding"),
                                   HasSubstr("model.options.gate1_table")));
  auto* table = spec.add_tables();
  table->set_name("gate");
  table->set_dim(2);
  auto& columns = *spec.mutable_data()->mutable_columns();
  std::find_if(columns.begin(), columns.end(), [](const v1::ColumnSpec& column) {
    return column.role() == v1::SPARSE;
  })->add_table("gate");
  // The gate's network reads the row of one column in place of a trained vector of 10; the rest
  // knows nothing of it.
  EXPECT_EQ(MakeModel(spec)->trained_floats(), alone - 10 - 10 * 5 + 2 * 5);
  Merge(spec, Options().Set("gate2_table", std::string("gate")));
  EXPECT_EQ(MakeModel(spec)->trained_floats(), alone - 2 * (10 + 10 * 5 - 2 * 5));
}

// Each block's loss against the prediction of both, which stands still: the losses' values, and
// what the biases of the blocks' logits learn.
TEST(Zoo, BlocksOfFinalNetLearnFromThePredictionOfBoth) {
  constexpr double kWeight = 0.75;
  v1::JobSpec spec = TinyJob("finalnet");
  Merge(spec, Options().Set("batch_norm", false).Set("dropout", 0.0));
  const std::unique_ptr<Model> without = MakeModel(spec);
  Merge(spec, Options().Set("mutual", kWeight));
  const std::unique_ptr<Model> with = MakeModel(spec);
  Merge(spec, Options().Set("mutual", 0.0).Set("block2", std::vector<int64_t>{}));
  const std::unique_ptr<Model> first = MakeModel(spec);
  const auto offset = [](const Model& model, const std::string& name) {
    for (const GraphParameter& parameter : model.graph().parameters()) {
      if (parameter.name == name) return parameter.offset;
    }
    ADD_FAILURE() << "no parameter " << name;
    return size_t{0};
  };
  Session a(*without), b(*with), one(*first);
  for (Session* session : {&a, &b, &one}) session->Fill(64, 3);
  ASSERT_EQ(a.trained.size(), b.trained.size());
  a.trained = Normals(9, a.trained.size(), 0.3f);
  b.trained = a.trained;
  for (const GraphParameter& parameter : first->graph().parameters()) {
    std::copy_n(a.trained.begin() + static_cast<int64_t>(offset(*without, parameter.name)),
                parameter.floats, one.trained.begin() + static_cast<int64_t>(parameter.offset));
  }
  const std::vector<float> logits = a.Forward(), of_first = one.Forward();
  EXPECT_EQ(b.Forward(), logits);
  double loss = a.Step().loss_sum, bias[2] = {0, 0};
  for (size_t i = 0; i < logits.size(); ++i) {
    const double z = logits[i], p = 1 / (1 + std::exp(-z));
    const double block[2] = {of_first[i], 2 * z - of_first[i]};
    for (int k = 0; k < 2; ++k) {
      loss += kWeight * (std::log1p(std::exp(block[k])) - p * block[k]);
      bias[k] += kWeight * (1 / (1 + std::exp(-block[k])) - p);
    }
  }
  EXPECT_NEAR(b.Step().loss_sum, loss, 1e-4 * loss);
  for (int k = 0; k < 2; ++k) {
    const size_t at = offset(*with, absl::StrCat("block", k + 1, "/logit/bias"));
    EXPECT_NEAR(b.trained_gradient[at] - a.trained_gradient[at], bias[k], 1e-3);
  }
}

// What it learns from is a probability.
TEST(Zoo, RefusesMutualLearningWhereTheLossReadsNoLogit) {
  v1::JobSpec spec = TinyJob("finalnet");
  Merge(spec, Options().Set("mutual", 1.0));
  for (const v1::Loss loss : {v1::MEAN_SQUARED_ERROR, v1::HUBER}) {
    spec.mutable_model()->set_loss(loss);
    EXPECT_THAT(ErrorOf(spec), StartsWith("model.options.mutual: needs a loss of logits"));
  }
  Merge(spec, Options().Set("mutual", 0.0));
  EXPECT_NE(MakeModel(spec), nullptr);
}

TEST(Zoo, RefusesShapesThatDoNotFit) {
  const auto error = [](const char* name, google::protobuf::Struct options, int fields = 5) {
    v1::JobSpec spec = Job(name, fields, 0);
    SetOptions(spec, std::move(options));
    return ErrorOf(spec);
  };
  EXPECT_THAT(error("autoint", Options().Set("attention", 6.0).Set("heads", 4.0)),
              StartsWith("model.options.heads: must divide `attention`"));
  EXPECT_THAT(error("finalmlp", Options().Set("mlp2", std::vector<int64_t>{7}).Set("heads", 2.0)),
              StartsWith("model.options.mlp2: its last width must be a multiple of heads, 2"));
  EXPECT_THAT(error("finalmlp", Options()
                                    .Set("mlp1", std::vector<int64_t>{400})
                                    .Set("mlp2", std::vector<int64_t>{100})
                                    .Set("heads", 3.0)),
              StartsWith("model.options.mlp1: its last width must be a multiple of heads, 3"));
  EXPECT_THAT(error("finalmlp", Options().Set("gate1_table", std::string("c1"))),
              StartsWith("model.options.gate1_table: needs gate_hidden"));
  EXPECT_THAT(error("edcn", Options().Set("hidden", std::vector<int64_t>{7})),
              StartsWith("model.options.hidden: the deep layers are as wide as all fields"));
  EXPECT_THAT(error("finalnet", Options().Set("hidden", 7.0)),
              StartsWith("model.options.hidden: set block1 and block2 instead"));
  EXPECT_THAT(error("finalnet", Options()
                                    .Set("residual", std::string("concat"))
                                    .Set("block2", std::vector<int64_t>{6, 7})),
              StartsWith("model.options.block2: its widths must be even"));
  EXPECT_THAT(error("finalnet", Options().Set("mutual", 1.0).Set("block2", std::vector<int64_t>{})),
              StartsWith("model.options.mutual: needs block2"));
  EXPECT_THAT(
      error(
          "masknet",
          Options().Set("structure", std::string("serial")).Set("hidden", std::vector<int64_t>{})),
      StartsWith("model.options.hidden: structure serial needs one layer or more"));
  EXPECT_THAT(error("ffm", {}, 4), HasSubstr("[batch, 2 or more fields, (fields - 1) k]"));
  EXPECT_THAT(error("dlrm", {}, 1), HasSubstr("2 or more fields"));
}

// No layer is named like a table or a task.
TEST(Zoo, TakesTablesAndTasksOfEveryName) {
  for (const std::string& name : ZooModelNames()) {
    for (const std::string table : {"features", "field_vectors", "blocks", "experts"}) {
      v1::JobSpec spec = TinyJob(name);
      for (auto& added : *spec.mutable_tables()) {
        if (added.name() == "embedding") added.set_name(table);
      }
      for (auto& column : *spec.mutable_data()->mutable_columns()) {
        for (std::string& of : *column.mutable_table()) {
          if (of == "embedding") of = table;
        }
      }
      EXPECT_NE(MakeModel(spec), nullptr) << name << ", " << table;
    }
    if (TinyModel(name).tasks().empty()) continue;
    for (const std::string task : {"experts", "features"}) {
      v1::JobSpec spec = TinyJob(name);
      spec.mutable_model()->mutable_tasks(0)->set_name(task);
      EXPECT_NE(MakeModel(spec), nullptr) << name << ", " << task;
    }
  }
}

google::protobuf::Value ValueOf(const google::protobuf::Struct& options) {
  return options.fields().begin()->second;
}

// Each model gets all options that it knows, one of them with a value that may be wrong.
TEST(Zoo, CallsNoOptionUnknownThatItKnows) {
  const google::protobuf::Value values[] = {
      ValueOf(Options().Set("text", std::string("histroy"))), ValueOf(Options().Set("number", 7.0)),
      ValueOf(Options().Set("number", -1.0)), ValueOf(Options().Set("truth", true)),
      ValueOf(Options().Set("list", std::vector<int64_t>{}))};
  for (const std::string& name : ZooModelNames()) {
    v1::JobSpec spec = TinyJob(name);
    auto& options = *spec.mutable_model()->mutable_options()->mutable_fields();
    const std::unique_ptr<Model> model = MakeModel(spec);
    for (const OptionValue& option : model->options()) {
      const bool is_empty = option.value.string_value().empty() &&
                            option.value.list_value().values().empty() &&
                            !option.value.has_bool_value() && !option.value.has_number_value();
      if (!is_empty) options[option.name] = option.value;
    }
    ASSERT_NE(MakeModel(spec), nullptr) << name;
    for (const OptionValue& option : model->options()) {
      for (const google::protobuf::Value& value : values) {
        v1::JobSpec changed = spec;
        (*changed.mutable_model()->mutable_options()->mutable_fields())[option.name] = value;
        const absl::Status built = NewModel(changed, 3).status();
        if (built.ok()) continue;
        EXPECT_THAT(std::string(built.message()), Not(HasSubstr("unknown option")))
            << name << ", " << option.name << ": " << value.ShortDebugString();
      }
    }
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

TEST(Zoo, SaysWhatABehaviourLacks) {
  v1::JobSpec spec = TinyJob("din");
  auto& fields = *spec.mutable_model()->mutable_options()->mutable_fields();
  fields["classes"].set_number_value(1);         // is known, whatever else is wrong
  fields["init"].set_string_value("he_normal");  // so is this
  fields["sequence"].set_string_value("c0");
  EXPECT_THAT(ErrorOf(spec), StartsWith("model.options.sequence: no column \"c0\" has the pooling "
                                        "sequence; known are s"));
  fields["sequence"].set_string_value("s");
  fields["target"].set_string_value("s");
  EXPECT_THAT(
      ErrorOf(spec),
      StartsWith("model.options.target: the pooling of \"s\" is sequence, expected a column "
                 "of one vector; known are c0"));
  fields["target"].set_string_value("c9");
  EXPECT_THAT(ErrorOf(spec),
              StartsWith("model.options.target: no sparse column \"c9\" reads a table "
                         "of embeddings; "));
  v1::JobSpec apart = spec;
  *apart.add_tables() = apart.tables(1);
  apart.mutable_tables(2)->set_name("other");
  apart.mutable_data()->mutable_columns(apart.data().columns_size() - 1)->set_table(0, "other");
  (*apart.mutable_model()->mutable_options()->mutable_fields())["target"].set_string_value("c0");
  EXPECT_THAT(ErrorOf(apart),
              StartsWith("model.options.target: \"c0\" and the sequence \"s\" share no table"));
  fields["target"].mutable_list_value()->add_values()->set_string_value("c0");
  fields["target"].mutable_list_value()->add_values()->set_string_value("c1");
  EXPECT_THAT(ErrorOf(spec), HasSubstr("as many columns to compare them with; found 1 and 2"));
  fields["target"].set_number_value(1);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("model.options.target: expected a text or a list of texts"));
}

TEST(Zoo, ComparesSeveralSequencesWithOneColumn) {
  for (const char* name : {"din", "dien"}) {
    v1::JobSpec spec = TinyJob(name);
    v1::ColumnSpec bought = spec.data().columns(spec.data().columns_size() - 1);
    bought.set_name("bought");
    *spec.mutable_data()->add_columns() = bought;
    auto& fields = *spec.mutable_model()->mutable_options()->mutable_fields();
    for (const char* column : {"s", "bought"}) {
      fields["sequence"].mutable_list_value()->add_values()->set_string_value(column);
      fields["target"].mutable_list_value()->add_values()->set_string_value("c1");
    }
    const std::unique_ptr<Model> model = MakeModel(spec);
    ASSERT_NE(model, nullptr) << name;
    Session session(*model);
    session.Fill(4, 1);
    EXPECT_EQ(session.Forward().size(), 4) << name;
  }
}

TEST(Zoo, SaysWhatTasksLack) {
  v1::JobSpec spec = TinyJob("mmoe");
  spec.mutable_model()->clear_tasks();
  EXPECT_THAT(ErrorOf(spec), HasSubstr("is of several tasks: add them to model.tasks"));
  // An option of the tasks that lack is none that is not known.
  (*spec.mutable_model()->mutable_options()->mutable_fields())["classes"].set_number_value(3);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("is of several tasks: add them to model.tasks"));
  spec.mutable_model()->set_name("shared_bottom");
  SetOptions(spec,
             Options().Set("hidden", std::vector<int64_t>{}).Set("init", std::string("he_normal")));
  EXPECT_THAT(ErrorOf(spec), HasSubstr("is of several tasks: add them to model.tasks"));
  spec = TinyJob("mmoe");
  spec.mutable_model()->mutable_tasks(1)->set_output("bye");
  EXPECT_THAT(ErrorOf(spec),
              AllOf(StartsWith("model.tasks[1].output: unknown tensor \"bye\"; known are dense, "),
                    HasSubstr(" (of the zoo, mmoe and shared_bottom have a tensor for each task")));
  spec.mutable_model()->mutable_tasks(1)->set_output("click");
  EXPECT_THAT(ErrorOf(spec),
              HasSubstr("the task \"buy\"'s output \"click\" is that of an earlier"));
  EXPECT_THAT(ErrorOf(spec), StartsWith("model.tasks[1]: "));
  spec = TinyJob("shared_bottom");
  spec.mutable_model()->mutable_tasks(1)->set_loss(v1::SOFTMAX_CROSS_ENTROPY);
  EXPECT_THAT(ErrorOf(spec), AllOf(HasSubstr("the loss of the task \"buy\" needs the number of"),
                                   HasSubstr("its own `classes`, or model.options.classes")));
  spec = TinyJob("deepfm");
  spec.mutable_model()->set_loss(v1::SOFTMAX_CROSS_ENTROPY);
  EXPECT_THAT(ErrorOf(spec),
              HasSubstr("expected [batch, classes], one logit for each of 2 or more"));
}

TEST(Zoo, TasksHaveClassesOfTheirOwn) {
  for (const char* name : {"mmoe", "shared_bottom"}) {
    v1::JobSpec spec = TinyJob(name);
    auto& tasks = *spec.mutable_model()->mutable_tasks();
    for (v1::TaskSpec& task : tasks) task.set_loss(v1::SOFTMAX_CROSS_ENTROPY);
    tasks[0].set_classes(3);
    SetOptions(spec, Options().Set("classes", 5.0));
    std::unique_ptr<Model> model = MakeModel(spec);
    ASSERT_NE(model, nullptr) << name;
    EXPECT_EQ(model->OutputWidth(0), 3u);
    EXPECT_EQ(model->OutputWidth(1), 5u) << "the option is of tasks that do not say";
    tasks[1].set_classes(7);
    EXPECT_THAT(ErrorOf(spec), StartsWith("model.options.classes: unknown"))
        << "no task would read it";
    SetOptions(spec, {});
    model = MakeModel(spec);
    ASSERT_NE(model, nullptr) << name;
    EXPECT_EQ(model->OutputWidth(1), 7u);
  }
}

TEST(Zoo, RefusesALossThatHasNoImplementation) {
  v1::JobSpec spec = TinyJob("dnn");
  spec.mutable_model()->set_loss(static_cast<v1::Loss>(99));
  EXPECT_THAT(ErrorOf(spec), HasSubstr("model.loss: the loss number 99 has no implementation"));
}

TEST(Zoo, RefusesUnknownModels) {
  EXPECT_THAT(
      ErrorOf(Job("deepmf", 2, 0)),
      AllOf(StartsWith("model.name: unknown model \"deepmf\""),
            HasSubstr("did you mean \"deepfm\"?"),
            HasSubstr(
                "Known are afm, afn, autoint, dcn, dcn_v2, deepfm, dien, din, dlrm, dnn, edcn,"),
            HasSubstr("wide_deep, xdeepfm, layers, onnx")));
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
  EXPECT_THAT(error(Options().Set("cin", std::vector<int64_t>()), "xdeepfm"),
              StartsWith("model.options.cin: expected at least one layer, found none"));
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

TEST(Zoo, TakesEveryActivation) {
  for (const std::string& name : ActivationOps()) {
    v1::JobSpec spec = TinyJob("dnn");
    spec.mutable_model()->mutable_options()->MergeFrom(Options().Set("activation", name));
    EXPECT_NE(MakeModel(spec), nullptr) << name;
  }
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
  EXPECT_EQ(NewModel(Job("dnn", 1, 2), 3).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace tessera::worker::testing
