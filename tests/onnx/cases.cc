// Writes models with random parameters as ONNX files, each with inputs and with the worker's own
// predictions for them: `onnx_cases DIR`. tests/onnx/onnxruntime_test.py compares.
//
//   DIR/CASE/model.onnx
//   DIR/CASE/case.json   {"inputs": [{"name", "dims"}], "outputs": [{"name", "file"}], "batch": N}
//   DIR/CASE/inputs      float32, one input after another
//   DIR/CASE/FILE        float32, of one output
#include <cstdio>
#include <fstream>
#include <set>

#include "common/job/tasks.h"
#include "common/math/metrics/predictions.h"
#include "nlohmann/json.hpp"
#include "tests/worker/onnx_testing.h"
#include "worker/dense/model_inputs.h"
#include "worker/onnx/export.h"

namespace tessera::worker::testing {
namespace {

constexpr uint32_t kBatch = 7;

class CaseFolder {
 public:
  explicit CaseFolder(std::filesystem::path path) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
  }
  void Write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }
  void Write(const std::string& name, const std::vector<float>& values) const {
    Write(name,
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  }

 private:
  const std::filesystem::path path_;
};

absl::Status WriteCase(const OnnxCase& test, const std::string& root) {
  const ModelInputs offered = InputsOf(test.spec);
  absl::StatusOr<std::unique_ptr<Model>> model = NewModel(test.spec, offered.dense_width);
  if (!model.ok()) return model.status();
  Session session(**model);
  FillParameters(session, 1);
  session.Fill(kBatch, 2);
  absl::StatusOr<onnx::ModelProto> file =
      ExportModel(test.spec, **model, session.trained, session.statistics, {});
  if (!file.ok()) return file.status();

  // Inputs of the file are columns cut out of the executor's.
  nlohmann::json inputs = nlohmann::json::array(), outputs = nlohmann::json::array();
  std::vector<float> values;
  const auto add = [&](const std::string& name, absl::Span<const float> all, size_t row,
                       size_t begin, size_t width) {
    inputs.push_back({{"name", name}, {"dims", {kBatch, width}}});
    for (uint32_t b = 0; b < kBatch; ++b) {
      for (size_t j = 0; j < width; ++j) values.push_back(all[b * row + begin + j]);
    }
  };
  const int32_t dense = (*model)->dense_tensor();
  for (const ModelInputs::DenseColumn& column : offered.dense_columns) {
    if (!(*model)->graph().IsUsedByOutputs(dense)) continue;
    add(column.name, session.executor.dense(), offered.dense_width, column.offset, column.width);
  }
  for (size_t i = 0; i < (*model)->inputs().size(); ++i) {
    const Model::Input& input = (*model)->inputs()[i];
    if (!(*model)->graph().IsUsedByOutputs(input.tensor)) continue;
    const absl::Span<const float> rows = session.executor.pooled(i);
    const size_t sample = input.fields * input.dim;
    if (!input.sequence.empty()) {
      add(SequenceInput(input.sequence, input.table), rows, sample, 0, sample);
      inputs.back()["dims"] = {kBatch, input.fields, input.dim};
      continue;
    }
    const std::vector<std::string>& columns = offered.FindTable(input.table)->columns;
    for (size_t f = 0; f < columns.size(); ++f) {
      add(columns[f] + "." + input.table, rows, sample, f * input.dim, input.dim);
    }
  }
  for (size_t i = 0; i < (*model)->lengths().size(); ++i) {
    for (const ModelInputs::Sequence& sequence : offered.sequences) {
      if (sequence.sparse_index != (*model)->lengths()[i].sparse_index) continue;
      if (!(*model)->graph().IsUsedByOutputs((*model)->lengths()[i].tensor)) continue;
      add(LengthInput(sequence.column), session.executor.length(i), 1, 0, 1);
    }
  }
  session.Forward();
  const CaseFolder folder(std::filesystem::path(root) / test.name);
  const std::vector<JobTask> tasks = TasksOf(test.spec);
  for (size_t t = 0; t < tasks.size(); ++t) {
    const absl::Span<const float> raw = session.executor.output(t);
    const auto write = [&](const std::string& name, const std::vector<float>& expected) {
      const std::string file = absl::StrCat("output", outputs.size());
      outputs.push_back({{"name", tasks[t].MetricName(name)}, {"file", file}});
      folder.Write(file, expected);
    };
    const bool logits = OutputsOf(tasks[t].loss) == math::Outputs::kLogits;
    const math::Predictions predictions(raw, logits);
    std::vector<float> expected;
    for (size_t i = 0; i < raw.size(); ++i) expected.push_back(static_cast<float>(predictions[i]));
    write("prediction", expected);
    if (logits) write("logit", {raw.begin(), raw.end()});
  }
  folder.Write("model.onnx", file->SerializeAsString());
  folder.Write("inputs", values);
  folder.Write("case.json",
               nlohmann::json{{"inputs", inputs}, {"outputs", outputs}, {"batch", kBatch}}.dump());
  return absl::OkStatus();
}

int Main(const std::string& root) {
  std::vector<OnnxCase> cases = OpCases();
  std::set<std::string> seen;
  for (const OnnxCase& test : cases) seen.insert(test.op);
  int failed = 0;
  for (const OpEntry& entry : AllOps()) {
    if (seen.count(entry.name) > 0) continue;
    std::fprintf(stderr, "%s: no case in tests/golden/dense_ops.py\n", entry.name);
    ++failed;
  }
  for (const std::vector<OnnxCase>& more : {JobCases(), ZooCases()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  for (OnnxCase& test : cases) {
    // Dense columns come as the network gets them.
    for (auto& column : *test.spec.mutable_data()->mutable_columns()) column.clear_transform();
    if (const absl::Status written = WriteCase(test, root); !written.ok()) {
      std::fprintf(stderr, "%s: %s\n", test.name.c_str(), written.ToString().c_str());
      ++failed;
    }
  }
  std::printf("%zu cases, %d failed\n", cases.size(), failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tessera::worker::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: onnx_cases DIR\n");
    return 2;
  }
  return tessera::worker::testing::Main(argv[1]);
}
