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

std::string Graph::Summary() const {
  // layer, op, inputs, output shape, trained parameters
  std::vector<std::vector<std::string>> rows = {{"layer", "op", "inputs", "output", "parameters"}};
  for (const int32_t input : inputs_) {
    if (!IsUsed(input)) continue;
    rows.push_back({tensors_[input].name, "Input", "", tensors_[input].shape.ToString(), "0"});
  }
  for (const GraphNode& node : nodes_) {
    std::vector<std::string> inputs, shapes;
    for (const int32_t t : node.inputs) inputs.push_back(tensors_[t].name);
    for (const int32_t t : node.outputs) shapes.push_back(tensors_[t].shape.ToString());
    uint64_t floats = 0;
    for (const int32_t p : node.parameters) {
      if (parameters_[p].spec.trained) floats += parameters_[p].floats;
    }
    rows.push_back(
        {node.name, node.op_name, absl::StrJoin(inputs, ", "), absl::StrJoin(shapes, ", "),
         node.parameters_of.empty() ? Grouped(floats) : absl::StrCat("of ", node.parameters_of)});
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
