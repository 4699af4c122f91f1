#!/usr/bin/env python3
"""Writes elementwise.txt: values and derivatives of activations and of the binary loss.

  activation NAME PARAM X Y DY   (PARAM is 0 where the function has none)
  loss X LABEL VALUE GRADIENT

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
    "silu": (lambda x, a: Decimal(x) * sigmoid(x),
             lambda x, a: sigmoid(x) * (1 + Decimal(x) * sigmoid(-x))),
}
PARAMS = {"leaky_relu": [0.01, 0.2], "elu": [1.0, 0.5]}


def main():
    points = [0.0, 1e-6, -1e-6, 0.5, -0.5, 1.0, -1.0, 5.0, -5.0, 12.0, -12.0, 30.0, -30.0, 88.0, -88.0]
    points = [f32(x) for x in points] + numbers(7, 10, 2.0)
    lines = []
    for name, (value, derivative) in ACTIVATIONS.items():
        for param in PARAMS.get(name, [0.0]):
            param = f32(param)
            for x in points:
                lines.append("activation %s %.17g %.17g %.17g %.17g"
                             % (name, param, x, value(x, param), derivative(x, param)))
    for label in (0.0, 1.0, 0.25):
        for x in points:
            loss = Decimal(label) * softplus(-x) + (1 - Decimal(label)) * softplus(x)
            gradient = sigmoid(x) - Decimal(label)
            lines.append("loss %.17g %.17g %.17g %.17g" % (x, label, loss, gradient))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "elementwise.txt")
    with open(path, "w") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
