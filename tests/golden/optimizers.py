#!/usr/bin/env python3
"""Writes optimizers.txt: sequences of updates by each optimizer of common/math/optim.

  case NAME PARAM...      parameters in the order of the optimizer's Params, the rate first
  start W SLOT...         state before the first step (row slots after the others)
  step RATE G L2 W SLOT...  gradient G (without the L2 term), the L2 factor, and the state after it

Each algorithm is written as its paper states it, in double precision; inputs are exact in float32.
FTRL keeps z and the previous learning rate, unlike the C++ form, which derives z from the weight.
"""

import math
import os

from float32 import f32, numbers


class Sgd:
    def __init__(self, params):
        pass

    def start(self, w):
        self.w = w
        return [w]

    def step(self, rate, g):
        self.w -= rate * g
        return [self.w]


class Adagrad:
    def __init__(self, params):
        self.n, self.epsilon = params

    def start(self, w):
        self.w = w
        return [w, self.n]

    def step(self, rate, g):
        self.n += g * g
        self.w -= rate * g / (math.sqrt(self.n) + self.epsilon)
        return [self.w, self.n]


class Adam:
    def __init__(self, params):
        self.beta1, self.beta2, self.epsilon = params

    def start(self, w):
        self.w, self.m, self.v, self.t = w, 0.0, 0.0, 0
        return [w, 0.0, 0.0, 0]

    def step(self, rate, g):
        self.t += 1
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.v = self.beta2 * self.v + (1 - self.beta2) * g * g
        m_hat = self.m / (1 - self.beta1**self.t)
        v_hat = self.v / (1 - self.beta2**self.t)
        self.w -= rate * m_hat / (math.sqrt(v_hat) + self.epsilon)
        return [self.w, self.m, self.v, self.t]


class Ftrl:
    def __init__(self, params):
        self.beta, self.l1, self.l2 = params
        self.inverse_eta = None

    def start(self, w):
        self.w, self.n = w, 0.0
        return [w, 0.0, 0.0]

    def step(self, rate, g):
        if self.inverse_eta is None:
            # The z whose closed form is the initial weight.
            self.inverse_eta = self.beta / rate
            sign = (self.w > 0) - (self.w < 0)
            self.z = -self.w * (self.inverse_eta + self.l2) - sign * self.l1
        self.n += g * g
        inverse_eta = (self.beta + math.sqrt(self.n)) / rate
        self.z += g - (inverse_eta - self.inverse_eta) * self.w
        self.inverse_eta = inverse_eta
        if abs(self.z) <= self.l1:
            self.w = 0.0
        else:
            self.w = (math.copysign(self.l1, self.z) - self.z) / (inverse_eta + self.l2)
        return [self.w, self.z, self.n]


ALGORITHMS = {"sgd": Sgd, "adagrad": Adagrad, "adam": Adam, "ftrl": Ftrl}
# name, rate, other parameters, initial weight, L2, scale of the gradients, whether the rate changes
CASES = [
    ("sgd", 0.1, [], 0.75, 0.0, 1.0, False),
    ("sgd", 0.1, [], -0.3, 0.05, 1.0, True),
    ("adagrad", 0.05, [0.1, 1e-10], 0.5, 0.0, 1.0, False),
    ("adagrad", 0.05, [0.0, 1e-6], -0.25, 0.01, 0.1, False),
    ("adagrad", 0.5, [1.0, 0.1], 0.0, 0.1, 10.0, True),
    ("adam", 0.01, [0.9, 0.999, 1e-8], 0.5, 0.0, 1.0, False),
    ("adam", 0.001, [0.9, 0.999, 1e-8], -0.125, 0.01, 0.001, True),
    ("adam", 0.1, [0.0, 0.9, 1e-3], 0.25, 0.0, 1.0, False),
    ("ftrl", 0.1, [1.0, 0.0, 0.0], 0.0, 0.0, 1.0, False),
    ("ftrl", 0.1, [1.0, 0.5, 0.1], 0.3, 0.0, 1.0, False),
    ("ftrl", 0.5, [1.0, 0.2, 0.0], -0.3, 0.01, 0.3, True),
    ("ftrl", 0.05, [0.0, 1.5, 1.0], 0.0, 0.0, 1.0, False),
]
STEPS = 12


def main():
    lines = []
    for index, (name, rate, others, w, l2, scale, moving) in enumerate(CASES):
        rate, w, l2 = f32(rate), f32(w), f32(l2)
        others = [f32(x) for x in others]
        optimizer = ALGORITHMS[name](others)
        row = lambda values: " ".join("%.17g" % v for v in values)
        lines.append("case %s %s" % (name, row([rate] + others)))
        lines.append("start " + row(optimizer.start(w)))
        for step, g in enumerate(numbers(1000 + index, STEPS, scale)):
            g = 0.0 if step == 5 else g
            now = f32(rate * (1 + step % 4) / 4) if moving else rate
            state = optimizer.step(now, g + l2 * optimizer.w)
            lines.append("step " + row([now, g, l2] + state))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizers.txt")
    with open(path, "w") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
