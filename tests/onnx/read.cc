// Reads networks from ONNX files and runs them: `onnx_read DIR`. tests/onnx/read_test.py writes the
// files and compares.
//
//   DIR/CASE/model.onnx  of inputs "dense" [batch, 3] and "vectors" [batch, 4, 8], or one of them,
//                        or the sequence "history" [batch, 5, 8] with its "lengths" [batch]
//   DIR/CASE/inputs      float32: all of "dense", of "vectors", of "history" and of "lengths"
//   DIR/CASE/found       float32 [batch], written
//   DIR/CASE/slope       float32 [3], written: of the squared errors' sum along a random direction
//                        of the parameters, as the gradient has it and as differences have it; and
//                        the sum of what the former adds up, without signs
//   DIR/CASE/trained     float32 [1], written: how many numbers are trained
//   DIR/CASE/error       why there is none, written
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "common/file_system.h"
#include "common/status_macros.h"
#include "tests/worker/dense_job_testing.h"
#include "worker/dense/model_inputs.h"
#include "worker/onnx/onnx_file.h"

namespace tessera::worker::testing {
namespace {

constexpr uint32_t kDense = 3, kFields = 4, kDim = 8, kPlaces = 5;

v1::JobSpec ReadingJob() {
  v1::JobSpec spec = Job("onnx", kFields, kDense);
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_onnx_file("model.onnx");
  model.set_loss(v1::MEAN_SQUARED_ERROR);
  spec.mutable_tables(0)->set_dim(kDim);
  auto& names = (*model.mutable_options()->mutable_fields())["inputs"];
  const std::string& table = spec.tables(0).name();
  v1::ColumnSpec* const history = spec.mutable_data()->add_columns();
  history->set_name("seen");
  history->set_role(v1::SPARSE);
  history->set_pooling(v1::SEQUENCE);
  history->set_max_length(kPlaces);
  history->add_table(table);
  for (const auto& [name, of] : {std::pair<std::string, std::string>{"vectors", table},
                                 {"history", SequenceInput("seen", table)},
                                 {"lengths", LengthInput("seen")}}) {
    (*names.mutable_struct_value()->mutable_fields())[name].set_string_value(of);
  }
  return spec;
}

void Write(const std::filesystem::path& path, const std::vector<float>& values) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
}

std::vector<float> Slope(Session& session) {
  session.labels.assign(session.executor.batch(), 0);
  session.Step();
  const std::vector<float> gradient = session.trained_gradient, before = session.trained;
  const std::vector<float> direction = Normals(5, before.size());
  double analytic = 0, size = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    analytic += static_cast<double>(direction[i] * gradient[i]);
    size += static_cast<double>(std::fabs(direction[i] * gradient[i]));
  }
  const auto loss = [&](float t) {
    for (size_t i = 0; i < before.size(); ++i) session.trained[i] = before[i] + t * direction[i];
    return session.Step().loss_sum;
  };
  constexpr float kStep = 2e-3f;
  const double numeric = (loss(-2 * kStep) - 8 * loss(-kStep) + 8 * loss(kStep) - loss(2 * kStep)) /
                         (12 * static_cast<double>(kStep));
  session.trained = before;
  return {static_cast<float>(analytic), static_cast<float>(numeric), static_cast<float>(size)};
}

absl::Status RunCase(const std::filesystem::path& folder) {
  const v1::JobSpec spec = ReadingJob();
  TESSERA_ASSIGN_OR_RETURN(const std::string file,
                           ReadOnnxFile(spec, PosixFileSystem(), folder.string()));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, NewModel(spec, kDense, file));
  TESSERA_ASSIGN_OR_RETURN(const std::string bytes,
                           ReadWholeFile(PosixFileSystem(), (folder / "inputs").string()));
  const size_t sample = kDense + (kFields + kPlaces) * kDim + 1;
  const absl::Span<const float> inputs(reinterpret_cast<const float*>(bytes.data()),
                                       bytes.size() / sizeof(float));
  const auto batch = static_cast<uint32_t>(inputs.size() / sample);
  Session session(*model);
  session.executor.Resize(batch);
  const absl::Span<float> dense = session.executor.dense();
  std::copy_n(inputs.begin(), dense.size(), dense.begin());
  for (size_t i = 0; i < model->inputs().size(); ++i) {
    const absl::Span<float> rows = session.executor.pooled(i);
    const size_t before = kDense + (model->inputs()[i].sequence.empty() ? 0 : kFields * kDim);
    std::copy_n(inputs.begin() + static_cast<int64_t>(batch * before), rows.size(), rows.begin());
  }
  for (size_t i = 0; i < model->lengths().size(); ++i) {
    std::copy_n(inputs.end() - batch, batch, session.executor.length(i).begin());
  }
  Write(folder / "found", session.Forward());
  Write(folder / "slope", Slope(session));
  Write(folder / "trained", {static_cast<float>(session.trained.size())});
  return absl::OkStatus();
}

}  // namespace
}  // namespace tessera::worker::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: onnx_read DIR\n");
    return 2;
  }
  for (const auto& folder : std::filesystem::directory_iterator(argv[1])) {
    const absl::Status ran = tessera::worker::testing::RunCase(folder.path());
    if (!ran.ok()) std::ofstream(folder.path() / "error") << ran.message();
  }
  return 0;
}
