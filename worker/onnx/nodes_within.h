#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/onnx/onnx_proto.h"
#include "worker/onnx/read.h"
#include "worker/onnx/writer.h"

namespace tessera::worker {

// Nodes that are in no file, in place of which one node of a file stands: they align what they read
// as any node does. Names of tensors are what Input and the other functions return.
class NodesWithin {
 public:
  // Borrows the reader of the node.
  explicit NodesWithin(OnnxNodeReader& r) : r_(r) {}

  std::string Input(OnnxValue value);
  std::string Ints(const std::vector<int64_t>& ints, const std::vector<int64_t>& dims);
  std::string Add(const char* op, const std::vector<std::string>& inputs,
                  const std::vector<OnnxAttribute>& attributes = {});
  // The sum over an axis, which is gone then.
  std::string Sum(const std::string& x, int64_t axis);
  // Whether indices [..., 1, after] name the places [size, after] of an axis, before `after` axes
  // of size 1; negative ones count from its end.
  std::string Names(const std::string& indices, int64_t size, size_t after);

  // Reads the nodes, and returns one of their tensors; `part` names them.
  absl::StatusOr<OnnxValue> Read(const std::string& part, const std::string& output);

 private:
  OnnxNodeReader& r_;
  onnx::GraphProto graph_;
  std::vector<OnnxValue> inputs_;
  int made_ = 0;
};

}  // namespace tessera::worker
