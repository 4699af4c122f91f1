#include "worker/dense/unread_columns.h"

#include <algorithm>
#include <set>

#include "common/job/tasks.h"
#include "worker/dense/model_inputs.h"

namespace tessera::worker {
namespace {

// Marks the places of the first axis after the batch that a node reads: those that it cuts out, or
// all of them.
void MarkPlaces(const GraphNode& node, std::vector<bool>& places) {
  const auto number = [&](const char* name, double otherwise) {
    const auto it = node.options.fields().find(name);
    return it == node.options.fields().end() ? otherwise : it->second.number_value();
  };
  const auto size = static_cast<double>(places.size());
  const double start = number("start", 0), end = number("end", size);
  const bool cuts = node.op_name == "Slice" && number("axis", 1) == 1 && start >= 0 && end >= 0;
  const auto first = static_cast<size_t>(cuts ? std::min(start, size) : 0);
  const auto last = static_cast<size_t>(cuts ? std::min(end, size) : size);
  for (size_t i = first; i < last; ++i) places[i] = true;
}

// By place of the first axis after the batch: whether something reads it.
std::vector<bool> PlacesRead(const Graph& graph, int32_t tensor) {
  std::vector<bool> places(static_cast<size_t>(graph.tensors()[tensor].shape.dim(0)));
  for (const GraphNode& node : graph.nodes()) {
    if (std::find(node.inputs.begin(), node.inputs.end(), tensor) == node.inputs.end()) continue;
    MarkPlaces(node, places);
  }
  return places;
}

std::set<std::string> ReadDenseColumns(const ModelInputs& inputs, const Model& model) {
  std::set<std::string> read;
  if (model.dense_tensor() < 0) return read;
  const std::vector<bool> places = PlacesRead(model.graph(), model.dense_tensor());
  for (const ModelInputs::DenseColumn& column : inputs.dense_columns) {
    const auto begin = places.begin() + column.offset;
    if (std::find(begin, begin + column.width, true) != begin + column.width) {
      read.insert(column.name);
    }
  }
  return read;
}

std::set<std::string> ReadSparseColumns(const ModelInputs& inputs, const Model& model) {
  std::set<std::string> read;
  for (const Model::Input& input : model.inputs()) {
    if (!input.sequence.empty()) {
      read.insert(input.sequence);
      continue;
    }
    const std::vector<bool> places = PlacesRead(model.graph(), input.tensor);
    const ModelInputs::Table* const table = inputs.FindTable(input.table);
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i]) read.insert(table->columns[i]);
    }
  }
  for (const Model::Length& length : model.lengths()) {
    for (const ModelInputs::Sequence& sequence : inputs.sequences) {
      if (sequence.sparse_index == length.sparse_index) read.insert(sequence.column);
    }
  }
  return read;
}

}  // namespace

std::vector<std::string> UnreadColumns(const v1::JobSpec& spec, const Model& model) {
  const ModelInputs inputs = InputsOf(spec);
  std::set<std::string> read = ReadDenseColumns(inputs, model);
  read.merge(ReadSparseColumns(inputs, model));
  read.insert({spec.model().group_by(), EvaluationGroups(spec)});
  std::vector<std::string> unread;
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    const bool is_feature = column.role() == v1::DENSE || column.role() == v1::SPARSE;
    if (is_feature && !read.contains(column.name())) unread.push_back(column.name());
  }
  return unread;
}

}  // namespace tessera::worker
