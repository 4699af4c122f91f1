#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "worker/dense/graph.h"

namespace tessera::worker {
namespace {

// 1234567 as "1,234,567".
std::string Grouped(uint64_t number) {
  std::string digits = absl::StrCat(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, 1, ',');
  return digits;
}

}  // namespace

std::vector<Graph::Layer> Graph::Layers() const {
  std::vector<Layer> layers;
  for (const int32_t input : inputs_) {
    if (!IsUsed(input)) continue;
    const GraphTensor& tensor = tensors_[input];
    layers.push_back({tensor.name, "Input", {}, {tensor.name}, {tensor.shape}});
  }
  for (const GraphNode& node : nodes_) {
    Layer& layer = layers.emplace_back();
    layer.name = node.name;
    layer.op = node.op_name;
    layer.parameters_of = node.parameters_of;
    for (const int32_t t : node.inputs) layer.inputs.push_back(tensors_[t].name);
    for (const int32_t t : node.outputs) {
      layer.outputs.push_back(tensors_[t].name);
      layer.shapes.push_back(tensors_[t].shape);
    }
    for (const int32_t p : node.parameters) {
      if (node.parameters_of.empty() && parameters_[p].spec.trained)
        layer.trained_floats += parameters_[p].floats;
    }
  }
  return layers;
}

std::string Graph::Summary() const {
  // layer, op, inputs, output shape, trained parameters
  std::vector<std::vector<std::string>> rows = {{"layer", "op", "inputs", "output", "parameters"}};
  for (const Layer& layer : Layers()) {
    std::vector<std::string> shapes;
    for (const Shape& shape : layer.shapes) shapes.push_back(shape.ToString());
    rows.push_back({layer.name, layer.op, absl::StrJoin(layer.inputs, ", "),
                    absl::StrJoin(shapes, ", "),
                    layer.parameters_of.empty() ? Grouped(layer.trained_floats)
                                                : absl::StrCat("of ", layer.parameters_of)});
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto& row = rows[r];
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      absl::StrAppend(&out, absl::StrFormat("%-*s  ", static_cast<int>(widths[i]), row[i]));
    }
    absl::StrAppend(&out, absl::StrFormat("%*s\n", static_cast<int>(widths.back()), row.back()));
    if (r == 0) {
      size_t total = 2 * (widths.size() - 1);
      for (const size_t width : widths) total += width;
      absl::StrAppend(&out, std::string(total, '-'), "\n");
    }
  }
  absl::StrAppend(&out, "total: ", Grouped(trained_floats_), " trained parameters, ",
                  Grouped(statistics_floats_), " running statistics (tables not counted)\n");
  return out;
}

}  // namespace tessera::worker
