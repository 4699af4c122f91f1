// Ops of ONNX that are written with several of ours, element by element. Truth values are 0 and 1.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

using Kind = OnnxValue::Kind;

Tensor Scaled(OnnxNodeReader& r, Tensor x, double factor) {
  return r.Layer("Mul", {x, NumberBeside(r, x, factor)});
}

// 1 - x
Tensor Inverse(OnnxNodeReader& r, Tensor x) { return r.Layer("Sub", {NumberBeside(r, x, 1), x}); }

// Whether a > b.
Tensor IsAbove(OnnxNodeReader& r, Tensor a, Tensor b) {
  return r.Layer("Step", {r.Layer("Sub", {a, b})});
}

// x to a power that is computed, as exp(p ln x); NaN below 0, and 0 at 0.
Tensor Power(OnnxNodeReader& r, Tensor x, Tensor p) {
  const Tensor other = r.Layer("Step", {r.Layer("Abs", {x})});
  const Tensor log = r.Layer("Log", {r.Layer("Where", {other, x, NumberBeside(r, x, 1)})});
  const Tensor power = r.Layer("Exp", {r.Layer("Mul", {log, p})});
  return r.Layer("Where", {other, power, NumberBeside(r, x, 0)});
}

}  // namespace

Tensor NumberBeside(OnnxNodeReader& r, Tensor x, double value) {
  const std::vector<int64_t> dims(r.shape(x).rank(), 1);
  return r.Layer("Constant", {}, Options().Set("shape", dims).Set("value", value));
}

Tensor Truncated(OnnxNodeReader& r, Tensor x) {
  const auto below = [&r](Tensor at) { return r.Layer("Floor", {r.Layer("Relu", {at})}); };
  const Tensor negative = r.Layer("Sub", {NumberBeside(r, x, 0), x});
  return r.Layer("Sub", {below(x), below(negative)});
}

// Of whole numbers without what is behind the point.
absl::Status ReadDiv(OnnxNodeReader& r) {
  if (AllInts(r)) return ReadIntArithmetic(r);
  const bool whole = r.IsWholeOf({0, 1});
  return SetBroadcast(r, [&](const std::vector<Tensor>& operands) {
    const Tensor quotient = r.Layer("Div", operands);
    return whole ? Truncated(r, quotient) : quotient;
  });
}

// x - y floor(x / y), or with fmod, which floats must have, x - y trunc(x / y).
absl::Status ReadMod(OnnxNodeReader& r) {
  if (AllInts(r)) return ReadIntArithmetic(r);
  const bool truncated = r.Int("fmod", 0) != 0;
  return SetBroadcast(r, [&](const std::vector<Tensor>& operands) {
    const Tensor quotient = r.Layer("Div", operands);
    const Tensor times = truncated ? Truncated(r, quotient) : r.Layer("Floor", {quotient});
    return r.Layer("Sub", {operands[0], r.Layer("Mul", {operands[1], times})});
  });
}

// (exp(x) - exp(-x)) / 2
absl::Status ReadSinh(OnnxNodeReader& r) {
  return SetElementwise(r, [&](Tensor x) {
    const Tensor falling = r.Layer("Exp", {Scaled(r, x, -1)});
    return Scaled(r, r.Layer("Sub", {r.Layer("Exp", {x}), falling}), 0.5);
  });
}

absl::Status ReadNeg(OnnxNodeReader& r) {
  if (AllInts(r)) return ReadIntArithmetic(r);
  return SetElementwise(r, [&](Tensor x) { return Scaled(r, x, -1); });
}

absl::Status ReadReciprocal(OnnxNodeReader& r) {
  return SetElementwise(r, [&](Tensor x) { return r.Layer("Div", {NumberBeside(r, x, 1), x}); });
}

// Erfc, Expm1 and Log1p are TensorFlow's, which tf2onnx leaves as they are: 1 - erf(x), exp(x) - 1
// and log(1 + x).
absl::Status ReadErfc(OnnxNodeReader& r) {
  return SetElementwise(r, [&](Tensor x) { return Inverse(r, r.Layer("Erf", {x})); });
}

absl::Status ReadExpm1(OnnxNodeReader& r) {
  return SetElementwise(r, [&](Tensor x) {
    return r.Layer("Sub", {r.Layer("Exp", {x}), NumberBeside(r, x, 1)});
  });
}

absl::Status ReadLog1p(OnnxNodeReader& r) {
  return SetElementwise(r, [&](Tensor x) {
    return r.Layer("Log", {r.Layer("Add", {x, NumberBeside(r, x, 1)})});
  });
}

// x / (1 + |x|)
absl::Status ReadSoftsign(OnnxNodeReader& r) {
  return SetElementwise(r, [&](Tensor x) {
    const Tensor one = NumberBeside(r, x, 1);
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

// x sigmoid(alpha x)
absl::Status ReadSwish(OnnxNodeReader& r) {
  const double alpha = static_cast<double>(r.Float("alpha", 1));
  return SetElementwise(r, [&](Tensor x) {
    if (alpha == 1) return r.Layer("Silu", {x});
    const Tensor scaled = r.Layer("Mul", {x, NumberBeside(r, x, alpha)});
    return r.Layer("Mul", {x, r.Layer("Sigmoid", {scaled})});
  });
}

// x tanh(softplus(x))
absl::Status ReadMish(OnnxNodeReader& r) {
  return SetElementwise(r, [&](Tensor x) {
    return r.Layer("Mul", {x, r.Layer("Tanh", {r.Layer("Softplus", {x})})});
  });
}

// max(x, 0) + min(alpha (exp(x / alpha) - 1), 0) = alpha Elu(x / alpha)
absl::Status ReadCelu(OnnxNodeReader& r) {
  const double alpha = static_cast<double>(r.Float("alpha", 1));
  if (alpha == 0) return absl::InvalidArgumentError("alpha is 0");
  return SetElementwise(r, [&](Tensor x) {
    if (alpha == 1) return r.Layer("Elu", {x});
    return Scaled(r, r.Layer("Elu", {Scaled(r, x, 1 / alpha)}), alpha);
  });
}

// Exact, or x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
absl::Status ReadGelu(OnnxNodeReader& r) {
  const onnx::AttributeProto* form = r.Attribute("approximate");
  const std::string name = form == nullptr ? "none" : form->s();
  if (name != "none" && name != "tanh") {
    return absl::InvalidArgumentError(
        absl::StrCat("approximate \"", name, "\"; expected \"none\" or \"tanh\""));
  }
  return SetElementwise(r, [&](Tensor x) {
    if (name == "none") return r.Layer("Gelu", {x});
    const double factor = std::sqrt(2 / M_PI);
    const Tensor square = r.Layer("Mul", {x, x}), one = NumberBeside(r, x, 1);
    const Tensor slope =
        r.Layer("Add", {Scaled(r, square, 0.044715 * factor), NumberBeside(r, x, factor)});
    const Tensor gate = r.Layer("Tanh", {r.Layer("Mul", {x, slope})});
    return r.Layer("Mul", {Scaled(r, x, 0.5), r.Layer("Add", {gate, one})});
  });
}

// A number to a tensor's power: exp(x ln c). The exponent may be a parameter.
absl::Status ReadPow(OnnxNodeReader& r) {
  const bool of_number = r.IsTensor(1) && r.in(0).floats.size() == 1 && !r.in(0).trained &&
                         r.in(0).dims.size() <= r.in(1).axes.size();
  if (of_number && r.in(0).floats[0] > 0) {
    const double factor = std::log(static_cast<double>(r.in(0).floats[0]));
    r.Set(r.in(1), r.Layer("Exp", {Scaled(r, r.in(1).tensor, factor)}));
    return absl::OkStatus();
  }
  if (r.in(1).trained || (r.IsTensor(1) && r.in(1).IsUnbatched())) {
    return SetBroadcast(
        r, [&](const std::vector<Tensor>& operands) { return Power(r, operands[0], operands[1]); });
  }
  double exponent = 0;
  if (r.in(1).floats.size() == 1) {
    exponent = static_cast<double>(r.in(1).floats[0]);
  } else if (r.in(1).ints.size() == 1 && !r.IsTensor(1)) {
    exponent = static_cast<double>(r.in(1).ints[0]);
  } else {
    return absl::UnimplementedError(
        "expected one constant number as its exponent, or one above 0 as its base");
  }
  return SetElementwise(r, [&](Tensor x) {
    if (exponent == 2) return r.Layer("Mul", {x, x});
    if (exponent == 0.5) return r.Layer("Sqrt", {x});
    return r.Layer("Pow", {x}, Options().Set("exponent", exponent));
  });
}

absl::Status ReadMaxMin(OnnxNodeReader& r) {
  if (AllInts(r)) return ReadIntArithmetic(r);
  return SetBroadcast(r, [&](const std::vector<Tensor>& operands) {
    Tensor result = operands[0];
    for (size_t i = 1; i < operands.size(); ++i) {
      result = r.Layer(r.node().op_type(), {result, operands[i]});
    }
    return result;
  });
}

absl::Status ReadMean(OnnxNodeReader& r) {
  return SetBroadcast(r, [&](const std::vector<Tensor>& operands) {
    if (operands.size() == 1) return operands[0];
    return Scaled(r, r.Layer("Add", operands), 1.0 / static_cast<double>(operands.size()));
  });
}

// x where x > alpha, else 0
absl::Status ReadThresholdedRelu(OnnxNodeReader& r) {
  const double alpha = static_cast<double>(r.Float("alpha", 1));
  return SetElementwise(r, [&](Tensor x) {
    const Tensor above = IsAbove(r, x, NumberBeside(r, x, alpha));
    return r.Layer("Where", {above, x, NumberBeside(r, x, 0)});
  });
}

absl::Status ReadSign(OnnxNodeReader& r) {
  return SetElementwise(r, [&](Tensor x) {
    return r.Layer("Sub", {r.Layer("Step", {x}), r.Layer("Step", {Scaled(r, x, -1)})});
  });
}

// Without a gradient.
absl::Status ReadCompare(OnnxNodeReader& r) {
  if (AllInts(r)) return ReadIntArithmetic(r);
  const std::string& op = r.node().op_type();
  if (r.inputs() != 2) return absl::InvalidArgumentError("expected two inputs");
  return SetBroadcast(r, [&](const std::vector<Tensor>& operands) {
    const Tensor a = operands[0], b = operands[1];
    if (op == "Greater") return IsAbove(r, a, b);
    if (op == "Less") return IsAbove(r, b, a);
    if (op == "GreaterOrEqual") return Inverse(r, IsAbove(r, b, a));
    if (op == "LessOrEqual") return Inverse(r, IsAbove(r, a, b));
    const Tensor apart = r.Layer("Abs", {r.Layer("Sub", {a, b})});
    return Inverse(r, r.Layer("Step", {apart}));
  });
}

absl::Status ReadNot(OnnxNodeReader& r) {
  if (AllInts(r)) return ReadIntArithmetic(r);
  return SetElementwise(r, [&](Tensor x) { return Inverse(r, x); });
}

absl::Status ReadIsInf(OnnxNodeReader& r) {
  if (r.Int("detect_negative", 1) == 0 || r.Int("detect_positive", 1) == 0) {
    return absl::UnimplementedError("of one sign alone");
  }
  return SetElementwise(r, [&](Tensor x) {
    const double most = static_cast<double>(std::numeric_limits<float>::max());
    return IsAbove(r, r.Layer("Abs", {x}), NumberBeside(r, x, most));
  });
}

// |x| + 1 is above 0 for all that is a number.
absl::Status ReadIsNan(OnnxNodeReader& r) {
  return SetElementwise(r, [&](Tensor x) {
    const Tensor above = r.Layer("Add", {r.Layer("Abs", {x}), NumberBeside(r, x, 1)});
    return Inverse(r, r.Layer("Step", {above}));
  });
}

// a and b: a b; a or b: a + b - a b; one of them: |a - b|
absl::Status ReadLogic(OnnxNodeReader& r) {
  if (AllInts(r)) return ReadIntArithmetic(r);
  if (r.inputs() != 2) return absl::InvalidArgumentError("expected two inputs");
  return SetBroadcast(r, [&](const std::vector<Tensor>& operands) {
    if (r.node().op_type() == "Xor") return r.Layer("Abs", {r.Layer("Sub", operands)});
    const Tensor both = r.Layer("Mul", operands);
    if (r.node().op_type() == "And") return both;
    return r.Layer("Sub", {r.Layer("Add", operands), both});
  });
}

absl::Status ReadWhere(OnnxNodeReader& r) {
  if (AllInts(r)) return ReadIntArithmetic(r);
  if (r.inputs() != 3) return absl::InvalidArgumentError("expected three inputs");
  return SetBroadcast(
      r, [&](const std::vector<Tensor>& operands) { return r.Layer("Where", operands); });
}

}  // namespace tessera::worker
