#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "worker/onnx/read.h"

// Files whose batch has a fixed size, that of the example that an exporter traced: sizes and
// constants in them are those of the example. They are read as files for a batch of any size.
namespace tessera::worker {

// The size of the batch that the graph's inputs agree on, but for those that leave it open; 0: all
// do, or they differ. `is_read`: whether nodes read the input.
int64_t ExampleBatchOf(const onnx::GraphProto& graph,
                       const std::function<bool(const onnx::ValueInfoProto&)>& is_read);

// The shape `dims` to which the example of `value` is reshaped, as one for a batch of any size: -1
// becomes a number, 0 where `allow_zero` is not set the size there, and the axis that has the
// batch's numbers a BatchTimes. In an example of one sample several may have: then it is one of
// size 1, or the place that it had, or, of fewer axes than before, the one that ends with the
// batch. Unchanged where there is no such axis, or where `dims` or the file says which it is.
std::vector<int64_t> OfAnyBatch(const OnnxNodeReader& r, const std::vector<int64_t>& dims,
                                const OnnxValue& value, bool allow_zero);

// Gives inputs of the node the batch of such an example (OnnxNodeReader::TakeExample): beside an
// input that has it along the axis, and as rows of a product or as places of a table.
void TakeExamples(OnnxNodeReader& r);

// Where what is computed of parameters is repeated, axes of sizes `from` to `to`, of which none has
// the batch: the axis that gets as many places as such an example has samples, the first of
// several, or the one behind it, as of the states of a recurrence; nullopt: none.
std::optional<size_t> RepeatedToExample(const OnnxNodeReader& r, const std::vector<int64_t>& from,
                                        const std::vector<int64_t>& to);

}  // namespace tessera::worker
