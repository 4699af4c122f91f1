#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/onnx/read.h"

// Every op of ONNX that can be read: the table of read_ops.cc, and its entries by subject.
namespace tessera::worker {

// Adds the layers that compute the node and sets its outputs. Errors say what is wrong; the caller
// adds the node's name.
using OnnxRead = absl::Status (*)(OnnxNodeReader& r);

// Reads the node; errors name it.
absl::Status ReadOnnxNode(OnnxNodeReader reader);

struct OnnxOp {
  const char* type;
  size_t least_inputs;  // the number of first inputs that every node of the op must have
  OnnxRead read;
};

// nullptr: the op cannot be read.
const OnnxOp* FindOnnxOp(absl::string_view op_type);
std::vector<std::string> ReadableOnnxOps();

// Functions element by element (OpEntry::elementwise) that ONNX has as they are here: attributes
// are options (same_op.cc). All of them, for the table of those that can be read.
std::vector<OnnxOp> SameOnnxOps();

// Computes a node of untrained known numbers (read_known.cc). nullopt: the node is no such
// arithmetic.
std::optional<absl::Status> ReadKnown(OnnxNodeReader& r);
absl::Status ReadTrilu(OnnxNodeReader& r);
// Parameters as tensors without the batch (read_unbatched.cc).
//
// The parameters that nodes, matrix products among them, read in several forms, such as a matrix
// and its transpose. Without those that layers with weights of another kind read. Nodes come in the
// order of the file.
std::set<std::string> InSeveralForms(const std::vector<const onnx::NodeProto*>& nodes);
// Makes inputs that are such parameters tensors. Does the same with those of a node that reads
// nothing of a sample, unless the node only moves numbers or has them as weights; if all inputs are
// known, with the first.
absl::Status TakeParametersUnbatched(OnnxNodeReader& r);

// Nodes with graphs within (read_control_flow.cc). UNIMPLEMENTED: which graph runs, or how often,
// depends on samples.
absl::Status ReadIf(OnnxNodeReader& r);
absl::Status ReadLoop(OnnxNodeReader& r);
absl::Status ReadScan(OnnxNodeReader& r);

// Over windows (read_windows.cc).
absl::Status ReadConv(OnnxNodeReader& r);
absl::Status ReadPool(OnnxNodeReader& r);

// Products (read_products.cc, read_einsum.cc).
absl::Status ReadEinsum(OnnxNodeReader& r);
// A tensor times matrices that all samples share, or they times a tensor: a stack of three axes or
// more, of the file or computed of parameters alone.
absl::StatusOr<OnnxValue> TimesStack(OnnxNodeReader& r);
absl::Status ReadGemm(OnnxNodeReader& r);
absl::Status ReadMatMul(OnnxNodeReader& r);

// Sequences (read_sequences.cc, read_attention.cc).
absl::Status ReadAttention(OnnxNodeReader& r);
absl::Status ReadCumSum(OnnxNodeReader& r);
absl::Status ReadGru(OnnxNodeReader& r);
absl::Status ReadLstm(OnnxNodeReader& r);
absl::Status ReadRnn(OnnxNodeReader& r);
// Whether the input of a recurrence has other axes with the batch in one (read_rows.cc).
bool HasRowsBesideBatch(const OnnxNodeReader& r);
absl::Status ReadRowByRow(OnnxNodeReader& r);

// Over whole axes (read_reductions.cc).
absl::Status ReadGlobalPool(OnnxNodeReader& r);
absl::Status ReadReduce(OnnxNodeReader& r);
absl::Status ReadReduceComposed(OnnxNodeReader& r);
absl::Status ReadReduceProd(OnnxNodeReader& r);
absl::Status ReadSoftmax(OnnxNodeReader& r);

// Normalisations over axes of a sample (read_normalizations.cc).
absl::Status ReadGroupNormalization(OnnxNodeReader& r);
absl::Status ReadInstanceNormalization(OnnxNodeReader& r);
absl::Status ReadLayerNormalization(OnnxNodeReader& r);
absl::Status ReadLpNormalization(OnnxNodeReader& r);
absl::Status ReadRmsNormalization(OnnxNodeReader& r);

// Arithmetic of known whole numbers, as exporters write it about shapes (read_ints.cc).
bool AllInts(const OnnxNodeReader& r);
absl::Status ReadConstantOfShape(OnnxNodeReader& r);
absl::Status ReadEyeLike(OnnxNodeReader& r);
absl::Status ReadNonZero(OnnxNodeReader& r);
absl::Status ReadIntArithmetic(OnnxNodeReader& r);
absl::StatusOr<int64_t> IntProduct(int64_t a, int64_t b);
absl::Status ReadOneHot(OnnxNodeReader& r);
absl::Status ReadRange(OnnxNodeReader& r);

// Ops made of several ops of the dense graph (read_compositions.cc).
absl::Status ReadCelu(OnnxNodeReader& r);
absl::Status ReadCompare(OnnxNodeReader& r);
absl::Status ReadDiv(OnnxNodeReader& r);
absl::Status ReadErfc(OnnxNodeReader& r);
absl::Status ReadExpm1(OnnxNodeReader& r);
absl::Status ReadGelu(OnnxNodeReader& r);
absl::Status ReadHardSwish(OnnxNodeReader& r);
absl::Status ReadIsInf(OnnxNodeReader& r);
absl::Status ReadIsNan(OnnxNodeReader& r);
absl::Status ReadLog1p(OnnxNodeReader& r);
absl::Status ReadLogic(OnnxNodeReader& r);
absl::Status ReadMaxMin(OnnxNodeReader& r);
absl::Status ReadMean(OnnxNodeReader& r);
absl::Status ReadMish(OnnxNodeReader& r);
absl::Status ReadMod(OnnxNodeReader& r);
absl::Status ReadNeg(OnnxNodeReader& r);
absl::Status ReadNot(OnnxNodeReader& r);
absl::Status ReadPow(OnnxNodeReader& r);
absl::Status ReadReciprocal(OnnxNodeReader& r);
absl::Status ReadSign(OnnxNodeReader& r);
absl::Status ReadSinh(OnnxNodeReader& r);
absl::Status ReadSoftsign(OnnxNodeReader& r);
absl::Status ReadSwish(OnnxNodeReader& r);
absl::Status ReadThresholdedRelu(OnnxNodeReader& r);
absl::Status ReadWhere(OnnxNodeReader& r);

// Whether an input counts the samples of a batch (OnnxValue::CountsSamples).
bool CountsSamples(const OnnxNodeReader& r);
// Reads such a node with `read`, which need not know it (read_counted.cc). UNIMPLEMENTED: it is
// none of those that only lead to an index of the batch's axis.
absl::Status ReadCounted(OnnxNodeReader& r, OnnxRead read);

// The most numbers that a sample may choose from or compare, for all places that it wants.
constexpr int64_t kMostChosen = 1 << 20;
// How many numbers of these dimensions a sample has; at most kMostChosen + 1.
int64_t NumbersOf(const std::vector<int64_t>& dims);

// Gathers by indices that samples may compute (read_chosen.cc).
//
// INVALID_ARGUMENT: one that is known when the file is read is below `least`, or not below `size`.
absl::Status CheckPlaces(const OnnxValue& indices, int64_t least, int64_t size);
// Of data [batch, size, ...] and indices [batch, places...] the places [batch, places..., ...].
// INVALID_ARGUMENT: known ones are not from -size to size - 1; UNIMPLEMENTED: they have other
// forms, or too many numbers to choose from.
absl::StatusOr<OnnxValue> ChosenBySample(OnnxNodeReader& r, const OnnxValue& data,
                                         const OnnxValue& indices);
absl::Status ReadGatherElements(OnnxNodeReader& r);
// Gather of a table of the file, and OneHot, by indices that samples compute: input 1 and input 0.
absl::StatusOr<OnnxValue> RowsBySample(OnnxNodeReader& r);
absl::StatusOr<OnnxValue> OneHotBySample(OnnxNodeReader& r);

// The largest or smallest numbers of an axis (read_ranks.cc).
absl::Status ReadArgMax(OnnxNodeReader& r);
absl::Status ReadTopK(OnnxNodeReader& r);

// Samples in another order (read_sorted.cc).
//
// Whether the node sorts the batch, takes samples in a sorted order or leads back from it.
bool IsOfOrder(const OnnxNodeReader& r);
absl::Status ReadOfOrder(OnnxNodeReader& r);
// In which order the node's inputs have their samples. UNIMPLEMENTED: in different ones.
absl::StatusOr<std::string> OrderOfInputs(const OnnxNodeReader& r);

// What takes the place of other numbers (read_scattered.cc).
absl::Status ReadScatterElements(OnnxNodeReader& r);
absl::Status ReadScatterNd(OnnxNodeReader& r);
// The value with `updates`, [places, ...], at these places of the axes from `first` on: lists of
// `named` indices each, one after another. UNIMPLEMENTED: they do not fit.
absl::StatusOr<OnnxValue> WithPlaces(OnnxNodeReader& r, OnnxValue x, size_t first, size_t named,
                                     const std::vector<int64_t>& indices, OnnxValue updates);

// Ops that only move numbers or compute shapes (read_shapes.cc, read_gathers.cc).
absl::Status ReadCast(OnnxNodeReader& r);
absl::Status ReadCastLike(OnnxNodeReader& r);
absl::Status ReadConcat(OnnxNodeReader& r);
absl::Status ReadConstant(OnnxNodeReader& r);
absl::Status ReadExpand(OnnxNodeReader& r);
absl::Status ReadFlatten(OnnxNodeReader& r);
absl::Status ReadGather(OnnxNodeReader& r);
absl::Status ReadGatherNd(OnnxNodeReader& r);
absl::Status ReadIdentity(OnnxNodeReader& r);
absl::Status ReadPad(OnnxNodeReader& r);
absl::Status ReadReshape(OnnxNodeReader& r);
absl::Status ReadReverseSequence(OnnxNodeReader& r);
absl::Status ReadShape(OnnxNodeReader& r);
absl::Status ReadSize(OnnxNodeReader& r);
absl::Status ReadSlice(OnnxNodeReader& r);
absl::Status ReadSplit(OnnxNodeReader& r);
absl::Status ReadSqueeze(OnnxNodeReader& r);
absl::Status ReadTile(OnnxNodeReader& r);
absl::Status ReadTranspose(OnnxNodeReader& r);
absl::Status ReadUnsqueeze(OnnxNodeReader& r);

}  // namespace tessera::worker
