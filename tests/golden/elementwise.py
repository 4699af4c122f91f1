#!/usr/bin/env python3
"""Writes elementwise.txt: values and derivatives of activations and of losses.

  activation NAME PARAM X Y DY   (PARAM is 0 where the function has none)
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


# name -> (value(x, param), derivative(x, param))
ACTIVATIONS = {
    "relu": (lambda x, a: max(x, 0.0), lambda x, a: 1.0 if x > 0 else 0.0),
    "leaky_relu": (lambda x, a: x if x > 0 else a * x, lambda x, a: 1.0 if x > 0 else a),
    "elu": (lambda x, a: x if x > 0 else Decimal(a) * (exp(x) - 1),
            lambda x, a: 1.0 if x > 0 else Decimal(a) * exp(x)),
    "sigmoid": (lambda x, a: sigmoid(x), lambda x, a: sigmoid(x) * sigmoid(-x)),
    "tanh": (lambda x, a: tanh(x), lambda x, a: 1 - tanh(x) ** 2),
    "softplus": (lambda x, a: softplus(x), lambda x, a: sigmoid(x)),
    "gelu": (lambda x, a: x * normal_cdf(x), lambda x, a: normal_cdf(x) + x * normal_pdf(x)),
    "abs": (lambda x, a: abs(x), lambda x, a: (x > 0) - (x < 0)),
    "exp": (lambda x, a: exp(x), lambda x, a: exp(x)),
    "log": (lambda x, a: Decimal(x).ln(), lambda x, a: 1 / Decimal(x)),
    "sin": (lambda x, a: math.sin(x), lambda x, a: math.cos(x)),
    "cos": (lambda x, a: math.cos(x), lambda x, a: -math.sin(x)),
    "atan": (lambda x, a: math.atan2(x, 1.0), lambda x, a: 1 / (1 + Decimal(x) ** 2)),
    "ceil": (lambda x, a: -(-x // 1), lambda x, a: 0.0),
    "floor": (lambda x, a: x // 1, lambda x, a: 0.0),
    "round": (lambda x, a: float(round(x)), lambda x, a: 0.0),
    "step": (lambda x, a: 1.0 if x > 0 else 0.0, lambda x, a: 0.0),
    "pow": (lambda x, a: Decimal(x) ** Decimal(a), lambda x, a: Decimal(a) * Decimal(x) ** (Decimal(a) - 1)),
    # kept within [-a, a]
    "clip": (lambda x, a: min(max(x, -a), a), lambda x, a: 1.0 if abs(x) <= a else 0.0),
    "selu": (lambda x, a: GAMMA * (Decimal(x) if x > 0 else ALPHA * (exp(x) - 1)),
             lambda x, a: GAMMA * (1 if x > 0 else ALPHA * exp(x))),
    # of slope a
    "hard_sigmoid": (lambda x, a: min(max(a * x + 0.5, 0.0), 1.0),
                     lambda x, a: a if 0 < a * x + 0.5 < 1 else 0.0),
    "silu": (lambda x, a: Decimal(x) * sigmoid(x),
             lambda x, a: sigmoid(x) * (1 + Decimal(x) * sigmoid(-x))),
    "erf": (lambda x, a: math.erf(x), lambda x, a: 2 / Decimal(math.pi).sqrt() * exp(-Decimal(x) ** 2)),
    "sqrt": (lambda x, a: Decimal(x).sqrt(), lambda x, a: 1 / (2 * Decimal(x).sqrt())),
}
PARAMS = {"pow": [3.0, -1.5, 0.25], "leaky_relu": [0.01, 0.2], "elu": [1.0, 0.5], "clip": [1.5], "hard_sigmoid": [0.2, 0.05]}
# Klambauer et al. 2017, arXiv:1706.02515: with these SELU keeps mean 0 and variance 1.
ALPHA, GAMMA = Decimal("1.6732632423543772848170429916717"), Decimal("1.0507009873554804934193349852946")


def main():
    points = [0.0, 1e-6, -1e-6, 0.5, -0.5, 1.0, -1.0, 5.0, -5.0, 12.0, -12.0, 30.0, -30.0, 88.0, -88.0]
    points = [f32(x) for x in points] + numbers(7, 10, 2.0)
    lines = []
    for name, (value, derivative) in ACTIVATIONS.items():
        for param in PARAMS.get(name, [0.0]):
            param = f32(param)
            for x in [x for x in points if x > 0 or name not in ("log", "pow", "sqrt")]:
                lines.append("activation %s %.17g %.17g %.17g %.17g"
                             % (name, param, x, value(x, param), derivative(x, param)))
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
