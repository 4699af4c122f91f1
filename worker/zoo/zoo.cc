#include "worker/zoo/zoo.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/zoo/model_files.h"
#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// A model is one file of this folder, and has its name: nfm.cc has BuildNfm, dcn_v2.cc BuildDcnV2.
// It reads the model's options and returns the logits [batch, 1]; one of several tasks leaves them
// in tensors named like the tasks.
#define TESSERA_DECLARE(Name, file) Tensor Build##Name(ModelParts& parts);
TESSERA_MODEL_FILES(TESSERA_DECLARE)
#undef TESSERA_DECLARE

namespace {

struct ZooEntry {
  const char* name;
  Tensor (*build)(ModelParts& parts);
};

// Sorted by name.
const ZooEntry kZoo[] = {
#define TESSERA_MODEL(Name, file) {#file, &Build##Name},
    TESSERA_MODEL_FILES(TESSERA_MODEL)
#undef TESSERA_MODEL
};

}  // namespace

Tensor BuildZooModel(const v1::ModelSpec& model, const ModelInputs& inputs, GraphBuilder& graph,
                     std::vector<OptionValue>* options) {
  for (const ZooEntry& entry : kZoo) {
    if (model.name() != entry.name) continue;
    OptionReader reader(model.options(), "model.options");
    ModelParts parts(model, inputs, reader, graph);
    const Tensor output = entry.build(parts);
    // An error of an option comes before errors that it caused.
    if (const absl::Status read = reader.Finish(); !read.ok()) graph.Replace(read);
    *options = reader.read();
    return output;
  }
  std::vector<std::string> names = ZooModelNames();
  names.push_back("layers");
  names.push_back("onnx");
  graph.Fail(absl::InvalidArgumentError(absl::StrCat("model.name: unknown model \"", model.name(),
                                                     "\"", KnownNames(model.name(), names))));
  return {};
}

std::vector<std::string> ZooModelNames() {
  std::vector<std::string> names;
  for (const ZooEntry& entry : kZoo) names.push_back(entry.name);
  return names;
}

}  // namespace tessera::worker
