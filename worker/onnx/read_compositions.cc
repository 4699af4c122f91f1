// Ops of ONNX that are written with several of ours.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"

namespace tessera::worker {
namespace {

using Kind = OnnxValue::Kind;

// One number beside x.
Tensor Number(OnnxNodeReader& r, Tensor x, double value) {
  const std::vector<int64_t> dims(r.shape(x).rank(), 1);
  google::protobuf::Struct options = Options().Set("shape", dims).Set("value", value);
  return r.Layer("Constant", {}, std::move(options));
}

// Sets what `make` does of the input, elementwise; what is [batch] stays so.
template <typename Make>
absl::Status SetElementwise(OnnxNodeReader& r, const Make& make) {
  if (!r.Has(0) || r.in(0).kind != Kind::kTensor) return r.TensorIn(0).status();
  OnnxValue y = r.in(0);
  y.tensor = make(y.tensor);
  r.Set(std::move(y));
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadNeg(OnnxNodeReader& r) {
  return SetElementwise(r, [&](Tensor x) { return r.Layer("Mul", {x, Number(r, x, -1)}); });
}

absl::Status ReadReciprocal(OnnxNodeReader& r) {
  return SetElementwise(r, [&](Tensor x) { return r.Layer("Div", {Number(r, x, 1), x}); });
}

// x / (1 + |x|)
absl::Status ReadSoftsign(OnnxNodeReader& r) {
  return SetElementwise(r, [&](Tensor x) {
    const Tensor one = Number(r, x, 1);
    return r.Layer("Div", {x, r.Layer("Add", {r.Layer("Abs", {x}), one})});
  });
}

// x HardSigmoid(x), of slope 1/6
absl::Status ReadHardSwish(OnnxNodeReader& r) {
  return SetElementwise(r, [&](Tensor x) {
    const Tensor gate = r.Layer("HardSigmoid", {x}, Options().Set("alpha", 1.0 / 6));
    return r.Layer("Mul", {x, gate});
  });
}

// With alpha 1 it is Elu.
absl::Status ReadCelu(OnnxNodeReader& r) {
  if (r.Float("alpha", 1) != 1) return absl::UnimplementedError("alpha other than 1");
  return SetElementwise(r, [&](Tensor x) { return r.Layer("Elu", {x}); });
}

// Squares and roots.
absl::Status ReadPow(OnnxNodeReader& r) {
  double exponent = 0;
  if (r.in(1).floats.size() == 1) exponent = static_cast<double>(r.in(1).floats[0]);
  if (r.in(1).ints.size() == 1) exponent = static_cast<double>(r.in(1).ints[0]);
  if (exponent != 2 && exponent != 0.5) {
    return absl::UnimplementedError("expected the constant exponent 2 or 0.5");
  }
  return SetElementwise(r, [&](Tensor x) {
    return exponent == 2 ? r.Layer("Mul", {x, x}) : r.Layer("Sqrt", {x});
  });
}

// max(a, b) = a + relu(b - a), min(a, b) = a - relu(a - b)
absl::Status ReadMaxMin(OnnxNodeReader& r) {
  size_t rank = 0;
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (r.in(i).kind != Kind::kTensor) continue;
    TESSERA_ASSIGN_OR_RETURN(const Tensor x, r.TensorIn(i));
    rank = std::max(rank, r.shape(x).rank());
  }
  if (rank == 0) return absl::UnimplementedError("all its inputs are constants");
  Tensor result;
  for (size_t i = 0; i < r.inputs(); ++i) {
    Tensor next = r.in(i).tensor;
    if (r.in(i).kind != Kind::kTensor) {
      TESSERA_ASSIGN_OR_RETURN(next, r.Materialize(i, rank));
    }
    if (i == 0) {
      result = next;
    } else if (r.node().op_type() == "Max") {
      result = r.Layer("Add", {result, r.Layer("Relu", {r.Layer("Sub", {next, result})})});
    } else {
      result = r.Layer("Sub", {result, r.Layer("Relu", {r.Layer("Sub", {result, next})})});
    }
  }
  r.Set(result);
  return absl::OkStatus();
}

// ReduceSumSquare, and ReduceL2, its root.
absl::Status ReadReduceSquares(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor x, r.TensorIn(0));
  TESSERA_RETURN_IF_ERROR(ReadReduction(r, "ReduceSum", r.Layer("Mul", {x, x})));
  if (r.node().op_type() == "ReduceSumSquare") return absl::OkStatus();
  OnnxValue y = r.out();
  y.tensor = r.Layer("Sqrt", {y.tensor});
  r.Set(std::move(y));
  return absl::OkStatus();
}

// Of a kernel of one element: a linear layer over axis 1, as the compressed interactions of xDeepFM
// are written.
absl::Status ReadConv(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor x, r.TensorIn(0));
  const std::vector<int64_t> dims = r.in(1).dims;
  const auto list_is = [&](absl::string_view name, int64_t expected) {
    const onnx::AttributeProto* list = r.Attribute(name);
    return list == nullptr || std::all_of(list->ints().begin(), list->ints().end(),
                                          [&](int64_t v) { return v == expected; });
  };
  if (r.shape(x).rank() != 2 || dims.size() != 3 || dims[2] != 1 || r.Int("group", 1) != 1 ||
      !list_is("strides", 1) || !list_is("pads", 0)) {
    return absl::UnimplementedError(
        "expected an input [batch, channels, n], a kernel of 1 element, one group, no padding");
  }
  if (dims[1] != r.shape(x).dim(0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("its kernel has ", dims[1], " channels, the input ", r.shape(x).dim(0)));
  }
  TESSERA_ASSIGN_OR_RETURN(std::vector<float> weight, r.WeightIn(1));
  std::vector<float> bias;
  if (r.Has(2)) {
    TESSERA_ASSIGN_OR_RETURN(bias, r.WeightIn(2));
    if (static_cast<int64_t>(bias.size()) != dims[0]) {
      return absl::InvalidArgumentError(
          absl::StrCat("its bias has ", bias.size(), " numbers, expected ", dims[0]));
    }
  }
  const google::protobuf::Struct perm = Options().Set("perm", std::vector<int64_t>{0, 2, 1});
  const Tensor turned = r.Layer("Transpose", {x}, perm);
  const Tensor y =
      r.Layer("Gemm", {turned},
              Options().Set("units", static_cast<double>(dims[0])).Set("bias", !bias.empty()));
  r.Start("weight", std::move(weight));
  if (!bias.empty()) r.Start("bias", std::move(bias));
  r.Set(r.Layer("Transpose", {y}, perm));
  return absl::OkStatus();
}

}  // namespace tessera::worker
