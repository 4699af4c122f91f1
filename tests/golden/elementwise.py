#!/usr/bin/env python3
"""Writes elementwise.txt: values and derivatives of activations and of losses.

  activation NAME X Y DY [OPTION VALUE]...
  loss X LABEL VALUE GRADIENT    (the binary one)
  squared_error X LABEL VALUE GRADIENT
  huber DELTA X LABEL VALUE GRADIENT

In double precision, by other routes than the C++: derivatives of the activations are taken from
their definitions in x alone, logarithms from the Decimal module with 60 digits.
"""

import math
import os
from decimal import Decimal, getcontext

from float32 import f32, numbers

getcontext().prec = 60


def exp(x):
    return Decimal(x).exp()


def sigmoid(x):
    return 1 / (1 + exp(-Decimal(x)))


def softplus(x):
    return (1 + exp(x)).ln()


def normal_cdf(x):
    # erfc is within a few units of the last place of a double at both ends.
    return 0.5 * math.erfc(-x / math.sqrt(2))


def normal_pdf(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def tanh(x):
    e = exp(2 * Decimal(x))
    return (e - 1) / (e + 1)


def selu_options(o):
    return Decimal(o.get("alpha", ALPHA)), Decimal(o.get("gamma", GAMMA))


# name -> (value(x, o), derivative(x, o)), o being the options that are set. dense_ops.py makes the ops' cases of these.
ACTIVATIONS = {
    "relu": (lambda x, o: max(x, 0.0), lambda x, o: 1.0 if x > 0 else 0.0),
    "leaky_relu": (lambda x, o: x if x > 0 else o.get("alpha", 0.01) * x, lambda x, o: 1.0 if x > 0 else o.get("alpha", 0.01)),
    "elu": (lambda x, o: x if x > 0 else Decimal(o.get("alpha", 1)) * (exp(x) - 1),
            lambda x, o: 1.0 if x > 0 else Decimal(o.get("alpha", 1)) * exp(x)),
    "sigmoid": (lambda x, o: sigmoid(x), lambda x, o: sigmoid(x) * sigmoid(-x)),
    "tanh": (lambda x, o: tanh(x), lambda x, o: 1 - tanh(x) ** 2),
    "softplus": (lambda x, o: softplus(x), lambda x, o: sigmoid(x)),
    "gelu": (lambda x, o: x * normal_cdf(x), lambda x, o: normal_cdf(x) + x * normal_pdf(x)),
    "abs": (lambda x, o: abs(x), lambda x, o: (x > 0) - (x < 0)),
    "exp": (lambda x, o: exp(x), lambda x, o: exp(x)),
    "log": (lambda x, o: Decimal(x).ln(), lambda x, o: 1 / Decimal(x)),
    "sin": (lambda x, o: math.sin(x), lambda x, o: math.cos(x)),
    "cos": (lambda x, o: math.cos(x), lambda x, o: -math.sin(x)),
    "atan": (lambda x, o: math.atan2(x, 1.0), lambda x, o: 1 / (1 + Decimal(x) ** 2)),
    "ceil": (lambda x, o: -(-x // 1), lambda x, o: 0.0),
    "floor": (lambda x, o: x // 1, lambda x, o: 0.0),
    "round": (lambda x, o: float(round(x)), lambda x, o: 0.0),
    "step": (lambda x, o: 1.0 if x > 0 else 0.0, lambda x, o: 0.0),
    "pow": (lambda x, o: Decimal(x) ** Decimal(o["exponent"]) if o["exponent"] else 1.0,
            lambda x, o: Decimal(o["exponent"]) * Decimal(x) ** (Decimal(o["exponent"]) - 1) if o["exponent"] else 0.0),
    "clip": (lambda x, o: min(max(x, o.get("min", -math.inf)), o.get("max", math.inf)),
             lambda x, o: 1.0 if o.get("min", -math.inf) <= x <= o.get("max", math.inf) else 0.0),
    "selu": (lambda x, o: selu_options(o)[1] * (Decimal(x) if x > 0 else selu_options(o)[0] * (exp(x) - 1)),
             lambda x, o: selu_options(o)[1] * (1 if x > 0 else selu_options(o)[0] * exp(x))),
    "hard_sigmoid": (lambda x, o: min(max(o.get("alpha", 0.2) * x + o.get("beta", 0.5), 0.0), 1.0),
                     lambda x, o: o.get("alpha", 0.2) if 0 < o.get("alpha", 0.2) * x + o.get("beta", 0.5) < 1 else 0.0),
    "silu": (lambda x, o: Decimal(x) * sigmoid(x),
             lambda x, o: sigmoid(x) * (1 + Decimal(x) * sigmoid(-x))),
    "erf": (lambda x, o: math.erf(x), lambda x, o: 2 / Decimal(math.pi).sqrt() * exp(-Decimal(x) ** 2)),
    "sqrt": (lambda x, o: Decimal(x).sqrt(), lambda x, o: 1 / (2 * Decimal(x).sqrt()) if x else 0.0),
    "asinh": (lambda x, o: (abs(Decimal(x)) + (1 + Decimal(x) ** 2).sqrt()).ln().copy_sign(Decimal(x)),
              lambda x, o: 1 / (1 + Decimal(x) ** 2).sqrt()),
}
# The options of the cases, for those that have any.
OPTIONS = {
    "clip": [{"min": -0.75, "max": 0.75}, {"min": -0.5}, {"max": 1.5}],
    "elu": [{}, {"alpha": 0.5}],
    "hard_sigmoid": [{}, {"alpha": 0.0625}, {"alpha": 0.5, "beta": 0.25}],
    "leaky_relu": [{}, {"alpha": 0.25}],
    "pow": [{"exponent": 3.0}, {"exponent": -1.5}, {"exponent": 0.25}, {"exponent": 0.0}],
    "selu": [{}, {"alpha": 1.5, "gamma": 0.75}],
}
# Those of positive numbers alone.
POSITIVE = ("log", "pow", "sqrt")
# Klambauer et al. 2017, arXiv:1706.02515: with these SELU keeps mean 0 and variance 1.
ALPHA, GAMMA = Decimal("1.6732632423543772848170429916717"), Decimal("1.0507009873554804934193349852946")


def main():
    points = [0.0, 1e-6, -1e-6, 0.5, -0.5, 1.0, -1.0, 5.0, -5.0, 12.0, -12.0, 30.0, -30.0, 88.0, -88.0]
    points = [f32(x) for x in points] + numbers(7, 10, 2.0)
    lines = []
    for name, (value, derivative) in ACTIVATIONS.items():
        for options in OPTIONS.get(name, [{}]):
            set_to = "".join(" %s %.17g" % option for option in options.items())
            positive = name in POSITIVE and options.get("exponent") != 0
            for x in [x for x in points if x > 0 or not positive or (x == 0 and name == "sqrt")]:
                lines.append("activation %s %.17g %.17g %.17g%s" % (name, x, value(x, options), derivative(x, options), set_to))
    for label in (0.0, 1.0, 0.25):
        for x in points:
            loss = Decimal(label) * softplus(-x) + (1 - Decimal(label)) * softplus(x)
            gradient = sigmoid(x) - Decimal(label)
            lines.append("loss %.17g %.17g %.17g %.17g" % (x, label, loss, gradient))
    for label in (0.0, 1.0, -2.5):
        for x in points:
            e = Decimal(x) - Decimal(label)
            lines.append("squared_error %.17g %.17g %.17g %.17g" % (x, label, e * e, 2 * e))
            for delta in (1.0, 0.25):
                d = Decimal(delta)
                inside = abs(e) <= d
                value = e * e / 2 if inside else d * (abs(e) - d / 2)
                gradient = e if inside else d.copy_sign(e)
                lines.append("huber %.17g %.17g %.17g %.17g %.17g" % (delta, x, label, value, gradient))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "elementwise.txt")
    with open(path, "w") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
