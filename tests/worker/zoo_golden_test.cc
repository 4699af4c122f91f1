// Every model of the zoo against tests/golden/zoo.txt: what it gives in evaluation for known
// parameters, statistics and inputs, computed from the papers' formulas in double precision.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/paths.h"
#include "tests/worker/zoo_testing.h"
#include "worker/zoo/zoo.h"

namespace tessera::worker::testing {
namespace {

struct GoldenFill {
  std::string kind;  // input, trained, statistic
  int number = 0;
  std::vector<int64_t> shape;
};

struct GoldenCase {
  std::string model;
  uint32_t batch = 0;
  v1::JobSpec spec;
  std::vector<float> lengths;
  std::map<std::string, GoldenFill> fills;   // by tensor or parameter
  std::vector<std::vector<double>> outputs;  // by task
};

void ReadOption(std::istringstream& in, google::protobuf::Struct& options) {
  std::string name, kind, word;
  in >> name >> kind;
  auto& value = (*options.mutable_fields())[name];
  value.Clear();
  if (kind == "numbers" || kind == "texts") value.mutable_list_value();
  while (in >> word) {
    if (kind == "number") value.set_number_value(std::stod(word));
    if (kind == "bool") value.set_bool_value(word == "true");
    if (kind == "text") value.set_string_value(word);
    if (kind == "numbers") {
      value.mutable_list_value()->add_values()->set_number_value(std::stod(word));
    }
    if (kind == "texts") value.mutable_list_value()->add_values()->set_string_value(word);
  }
}

void SetTable(const std::string& name, uint32_t dim, v1::JobSpec& spec) {
  for (v1::TableSpec& table : *spec.mutable_tables()) {
    if (table.name() == name) return table.set_dim(dim);
  }
  v1::TableSpec* table = spec.add_tables();
  table->set_name(name);
  table->set_dim(dim);
  for (v1::ColumnSpec& column : *spec.mutable_data()->mutable_columns()) {
    if (column.role() == v1::SPARSE) column.add_table(name);
  }
}

void AddSequence(const std::string& name, const std::string& table, v1::JobSpec& spec) {
  const auto& columns = spec.data().columns();
  const auto like = std::find_if(columns.begin(), columns.end(), [](const v1::ColumnSpec& column) {
    return column.pooling() == v1::SEQUENCE;
  });
  ASSERT_NE(like, columns.end()) << "TinyJob has no sequence";
  const v1::ColumnSpec copy = *like;
  v1::ColumnSpec* column = spec.mutable_data()->add_columns();
  *column = copy;
  column->set_name(name);
  column->clear_table();
  column->add_table(table);
}

void RemoveDense(v1::JobSpec& spec) {
  auto& columns = *spec.mutable_data()->mutable_columns();
  columns.erase(
      std::remove_if(columns.begin(), columns.end(),
                     [](const v1::ColumnSpec& column) { return column.role() == v1::DENSE; }),
      columns.end());
}

void AddTask(const std::string& name, v1::JobSpec& spec) {
  v1::TaskSpec* task = spec.mutable_model()->add_tasks();
  task->set_name(name);
  task->set_label("label");
  task->set_loss(v1::SOFTMAX_CROSS_ENTROPY);
}

std::vector<GoldenCase> ReadCases() {
  std::ifstream file(SourcePath("tests/golden/zoo.txt"));
  EXPECT_TRUE(file) << "run tests/golden/zoo.py";
  std::vector<GoldenCase> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind, name, word;
    in >> kind;
    if (kind == "#" || kind == "end") continue;
    if (kind == "case") {
      GoldenCase& added = cases.emplace_back();
      in >> added.model >> added.batch;
      added.spec = TinyJob(added.model);
      continue;
    }
    GoldenCase& golden = cases.back();
    if (kind == "option") {
      ReadOption(in, *golden.spec.mutable_model()->mutable_options());
    } else if (kind == "lengths") {
      while (in >> word) golden.lengths.push_back(std::stof(word));
    } else if (kind == "output") {
      in >> word;
      std::vector<double>& values = golden.outputs.emplace_back();
      while (in >> word) values.push_back(std::stod(word));
    } else if (kind == "table") {
      uint32_t dim = 0;
      in >> name >> dim;
      SetTable(name, dim, golden.spec);
    } else if (kind == "no_dense") {
      RemoveDense(golden.spec);
    } else if (kind == "classes") {
      golden.spec.mutable_model()->set_loss(v1::SOFTMAX_CROSS_ENTROPY);
    } else if (kind == "sequence") {
      in >> name >> word;
      AddSequence(name, word, golden.spec);
    } else if (kind == "task") {
      in >> name;
      AddTask(name, golden.spec);
    } else {
      in >> name;
      GoldenFill& fill = golden.fills[name];
      fill.kind = kind;
      in >> fill.number;
      while (in >> word) fill.shape.push_back(std::stol(word));
    }
  }
  return cases;
}

// As zoo_parts.py fills.
void Fill(const std::string& name, const GoldenFill& fill, absl::Span<float> values) {
  const bool variance = name.ends_with("/running_var");
  for (size_t i = 0; i < values.size(); ++i) {
    const auto x = static_cast<double>(i);
    const double value =
        (fill.kind == "input" ? 1 : 0.6) * std::sin(1 + 7 * fill.number + 1.3 * x + 0.17 * x * x);
    values[i] = static_cast<float>(variance ? 0.5 + std::fabs(value) : value);
  }
}

std::vector<int64_t> BatchShape(uint32_t batch, const Shape& sample) {
  std::vector<int64_t> shape = {batch};
  for (size_t i = 0; i < sample.rank(); ++i) shape.push_back(sample.dim(i));
  return shape;
}

// Takes the fill of that name out of `fills`, so that what nobody takes is left.
GoldenFill Take(const std::string& name, const std::string& kind, const std::vector<int64_t>& shape,
                std::map<std::string, GoldenFill>& fills) {
  const auto it = fills.find(name);
  if (it == fills.end()) {
    ADD_FAILURE() << "zoo.py has no " << kind << " " << name << " "
                  << ::testing::PrintToString(shape);
    return {};
  }
  const GoldenFill fill = it->second;
  EXPECT_EQ(fill.kind, kind) << name;
  EXPECT_EQ(fill.shape, shape) << name;
  fills.erase(it);
  return fill;
}

// Fills parameters, statistics and inputs, with zeros behind the length of a sequence.
void FillSession(GoldenCase& golden, Session& session) {
  const Model& model = session.model;
  for (const GraphParameter& parameter : model.graph().parameters()) {
    const bool trained = parameter.spec.trained;
    const GoldenFill fill =
        Take(parameter.name, trained ? "trained" : "statistic", parameter.spec.shape, golden.fills);
    std::vector<float>& all = trained ? session.trained : session.statistics;
    Fill(parameter.name, fill, absl::MakeSpan(all).subspan(parameter.offset, parameter.floats));
  }
  const auto input = [&](int32_t tensor, absl::Span<float> values) {
    const GraphTensor& of = model.graph().tensors()[tensor];
    Fill(of.name, Take(of.name, "input", BatchShape(golden.batch, of.shape), golden.fills), values);
  };
  // Models of fields alone have no use for dense features.
  if (model.dense_tensor() >= 0 && model.graph().IsUsed(model.dense_tensor())) {
    input(model.dense_tensor(), session.executor.dense());
  }
  for (size_t i = 0; i < model.inputs().size(); ++i) {
    const Model::Input& of = model.inputs()[i];
    const absl::Span<float> values = session.executor.pooled(i);
    input(of.tensor, values);
    if (of.sequence.empty()) continue;
    const size_t sample = size_t{of.fields} * of.dim;
    for (size_t b = 0; b < golden.batch; ++b) {
      const auto rows = static_cast<size_t>(golden.lengths[b]);
      const absl::Span<float> behind = values.subspan(b * sample, sample).subspan(rows * of.dim);
      std::fill(behind.begin(), behind.end(), 0.0f);
    }
  }
  for (size_t i = 0; i < model.lengths().size(); ++i) {
    std::copy(golden.lengths.begin(), golden.lengths.end(), session.executor.length(i).begin());
  }
  for (const auto& [name, fill] : golden.fills) {
    ADD_FAILURE() << "the model has no " << fill.kind << " " << name;
  }
}

void ExpectOutputs(GoldenCase& golden) {
  const std::unique_ptr<Model> model = MakeModel(golden.spec);
  ASSERT_NE(model, nullptr);
  Session session(*model);
  session.executor.Resize(golden.batch);
  ASSERT_EQ(golden.lengths.size(), golden.batch);
  FillSession(golden, session);
  session.Forward();
  ASSERT_EQ(model->graph().outputs().size(), golden.outputs.size());
  for (size_t task = 0; task < golden.outputs.size(); ++task) {
    const std::vector<double>& expected = golden.outputs[task];
    const absl::Span<const float> output = session.executor.output(task);
    ASSERT_EQ(output.size(), expected.size());
    double largest = 1;
    for (const double value : expected) largest = std::max(largest, std::fabs(value));
    // float32 rounds sums of some hundred terms of the output's size, about 5e-7 of it.
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(output[i], expected[i], 4e-6 * largest) << "task " << task << ", element " << i;
    }
  }
}

TEST(Zoo, GivesWhatThePapersFormulasGive) {
  std::set<std::string> seen;
  for (GoldenCase& golden : ReadCases()) {
    SCOPED_TRACE(golden.model + " " + golden.spec.model().options().ShortDebugString());
    seen.insert(golden.model);
    ExpectOutputs(golden);
  }
  for (const std::string& name : ZooModelNames()) {
    EXPECT_TRUE(seen.contains(name)) << name << " has no case in tests/golden/zoo.py";
  }
}

}  // namespace
}  // namespace tessera::worker::testing
