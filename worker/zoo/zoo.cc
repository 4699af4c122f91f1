#include "worker/zoo/zoo.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/zoo/models.h"

namespace tessera::worker {
namespace {

struct ZooEntry {
  const char* name;
  Tensor (*build)(ModelParts& parts);
};

// Sorted by name. To add a model: README.md.
const ZooEntry kZoo[] = {
    {"afm", &BuildAfm},
    {"afn", &BuildAfn},
    {"autoint", &BuildAutoInt},
    {"dcn", &BuildDcn},
    {"dcn_v2", &BuildDcnV2},
    {"deepfm", &BuildDeepFm},
    {"dien", &BuildDien},
    {"din", &BuildDin},
    {"dlrm", &BuildDlrm},
    {"dnn", &BuildDnn},
    {"edcn", &BuildEdcn},
    {"ffm", &BuildFfm},
    {"finalmlp", &BuildFinalMlp},
    {"finalnet", &BuildFinalNet},
    {"fm", &BuildFm},
    {"fwfm", &BuildFwfm},
    {"lr", &BuildLr},
    {"masknet", &BuildMaskNet},
    {"mmoe", &BuildMmoe},
    {"nfm", &BuildNfm},
    {"shared_bottom", &BuildSharedBottom},
    {"wide_deep", &BuildWideDeep},
    {"xdeepfm", &BuildXDeepFm},
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
