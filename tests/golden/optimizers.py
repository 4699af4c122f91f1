#!/usr/bin/env python3
"""Writes optimizers.txt: sequences of updates by each optimizer of common/math/optim.

  case NAME PARAM...      parameters in the order of the optimizer's Params, the rate first
  start W SLOT...         state before the first step (row slots after the others)
  step RATE G L2 DECAY W SLOT...  gradient G (without the L2 term), the L2 factor, that of decoupled
                                  weight decay, and the state after it
  row_case NAME PARAM... DIM    optimizers whose rows move together; then the same with DIM numbers for G, W and each
                                slot but the row's:
  step RATE L2 DECAY G... W... SLOT...
  clip VALUE NORM DIM G... OUT...   a row's gradient before and after clipping; 0: not clipped

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


class Momentum:
    def __init__(self, params):
        self.mu, self.nesterov = params

    def start(self, w):
        self.w, self.v = w, 0.0
        return [w, 0.0]

    def step(self, rate, g):
        self.v = self.mu * self.v + g
        self.w -= rate * (g + self.mu * self.v if self.nesterov else self.v)
        return [self.w, self.v]


class Adagrad:
    def __init__(self, params):
        self.n, self.epsilon, self.decay = params

    def start(self, w):
        self.w = w
        return [w, self.n]

    def step(self, rate, g):
        self.n = self.decay * self.n + g * g
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


class Amsgrad(Adam):
    def start(self, w):
        state = super().start(w)
        self.u = 0.0
        return state[:3] + [self.u] + state[3:]

    def step(self, rate, g):
        self.t += 1
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.v = self.beta2 * self.v + (1 - self.beta2) * g * g
        self.u = max(self.u, self.v)
        m_hat = self.m / (1 - self.beta1**self.t)
        u_hat = self.u / (1 - self.beta2**self.t)
        self.w -= rate * m_hat / (math.sqrt(u_hat) + self.epsilon)
        return [self.w, self.m, self.v, self.u, self.t]


class Rmsprop:
    def __init__(self, params):
        self.decay, self.epsilon, self.mu = params

    def start(self, w):
        self.w, self.v, self.b = w, 0.0, 0.0
        return [w, 0.0] + ([0.0] if self.mu else [])

    def step(self, rate, g):
        self.v = self.decay * self.v + (1 - self.decay) * g * g
        self.b = self.mu * self.b + g / (math.sqrt(self.v) + self.epsilon)
        self.w -= rate * self.b
        return [self.w, self.v] + ([self.b] if self.mu else [])


class Adadelta:
    def __init__(self, params):
        self.decay, self.epsilon = params

    def start(self, w):
        self.w, self.v, self.u = w, 0.0, 0.0
        return [w, 0.0, 0.0]

    def step(self, rate, g):
        self.v = self.decay * self.v + (1 - self.decay) * g * g
        d = g * math.sqrt((self.u + self.epsilon) / (self.v + self.epsilon))
        self.u = self.decay * self.u + (1 - self.decay) * d * d
        self.w -= rate * d
        return [self.w, self.v, self.u]


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


class RowWiseAdagrad:
    def __init__(self, params):
        self.n, self.epsilon = params

    def start(self, row):
        self.row = row
        return row + [self.n]

    def step(self, rate, gradient):
        self.n += sum(g * g for g in gradient) / len(gradient)
        divisor = math.sqrt(self.n) + self.epsilon
        self.row = [w - rate * g / divisor for w, g in zip(self.row, gradient)]
        return self.row + [self.n]


class Lamb:
    def __init__(self, params):
        self.beta1, self.beta2, self.epsilon = params

    def start(self, row):
        self.row, self.t = row, 0
        self.m, self.v = [0.0] * len(row), [0.0] * len(row)
        return row + self.m + self.v + [0]

    def step(self, rate, gradient, decay):
        self.t += 1
        self.m = [self.beta1 * m + (1 - self.beta1) * g for m, g in zip(self.m, gradient)]
        self.v = [self.beta2 * v + (1 - self.beta2) * g * g for v, g in zip(self.v, gradient)]
        ratios = [m / (1 - self.beta1**self.t) / (math.sqrt(v / (1 - self.beta2**self.t)) + self.epsilon)
                  for m, v in zip(self.m, self.v)]
        update = [r + decay * w for r, w in zip(ratios, self.row)]
        of_weights, of_update = math.hypot(*self.row), math.hypot(*update)
        trust = of_weights / of_update if of_weights > 0 and of_update > 0 else 1.0
        self.row = [w - rate * trust * u for w, u in zip(self.row, update)]
        return self.row + self.m + self.v + [self.t]


ALGORITHMS = {"sgd": Sgd, "momentum": Momentum, "adagrad": Adagrad, "adam": Adam,
              "amsgrad": Amsgrad, "rmsprop": Rmsprop, "adadelta": Adadelta, "ftrl": Ftrl}
# name, rate, other parameters, initial weight, L2, scale of the gradients, whether the rate changes
CASES = [
    ("sgd", 0.1, [], 0.75, 0.0, 1.0, False),
    ("sgd", 0.1, [], -0.3, 0.05, 1.0, True),
    ("adagrad", 0.05, [0.1, 1e-10, 1.0], 0.5, 0.0, 1.0, False),
    ("adagrad", 0.05, [0.0, 1e-6, 1.0], -0.25, 0.01, 0.1, False),
    ("adagrad", 0.5, [1.0, 0.1, 1.0], 0.0, 0.1, 10.0, True),
    ("adam", 0.01, [0.9, 0.999, 1e-8], 0.5, 0.0, 1.0, False),
    ("adam", 0.001, [0.9, 0.999, 1e-8], -0.125, 0.01, 0.001, True),
    ("adam", 0.1, [0.0, 0.9, 1e-3], 0.25, 0.0, 1.0, False),
    ("ftrl", 0.1, [1.0, 0.0, 0.0], 0.0, 0.0, 1.0, False),
    ("ftrl", 0.1, [1.0, 0.5, 0.1], 0.3, 0.0, 1.0, False),
    ("ftrl", 0.5, [1.0, 0.2, 0.0], -0.3, 0.01, 0.3, True),
    ("ftrl", 0.05, [0.0, 1.5, 1.0], 0.0, 0.0, 1.0, False),
    ("adagrad", 0.05, [0.1, 1e-8, 0.9], 0.5, 0.02, 1.0, True),
    ("momentum", 0.05, [0.9, 0.0], 0.5, 0.0, 1.0, False),
    ("momentum", 0.05, [0.5, 1.0], -0.25, 0.05, 1.0, True),
    ("momentum", 0.01, [0.9, 1.0], 0.1, 0.0, 10.0, False),
    ("amsgrad", 0.01, [0.9, 0.999, 1e-8], 0.5, 0.0, 1.0, False),
    ("amsgrad", 0.05, [0.5, 0.5, 1e-6], -0.5, 0.02, 0.1, True),
    ("rmsprop", 0.01, [0.9, 1e-8, 0.0], 0.5, 0.0, 1.0, False),
    ("rmsprop", 0.02, [0.99, 1e-3, 0.0], -0.5, 0.05, 0.1, True),
    ("rmsprop", 0.01, [0.9, 1e-6, 0.9], 0.5, 0.01, 1.0, True),
    ("adadelta", 1.0, [0.95, 1e-6], 0.5, 0.0, 1.0, False),
    ("adadelta", 0.5, [0.9, 1e-3], -0.25, 0.05, 0.1, True),
]
# Besides: the factor of decoupled weight decay. With adam it is AdamW.
DECAYED_CASES = [
    ("adam", 0.01, [0.9, 0.999, 1e-8], 0.5, 0.0, 1.0, True, 0.5),
    ("sgd", 0.1, [], -0.5, 0.01, 1.0, False, 0.1),
    ("momentum", 0.05, [0.9, 1.0], 0.75, 0.0, 1.0, False, 0.2),
]
# name, rate, other parameters, initial row, L2, decay, scale of the gradients, whether the rate changes
ROW_CASES = [
    ("row_wise_adagrad", 0.05, [0.1, 1e-10], [0.5, -0.25, 0.0], 0.0, 0.0, 1.0, False),
    ("row_wise_adagrad", 0.1, [0.0, 1e-4], [0.125, 0.75, -0.5], 0.05, 0.0, 0.1, True),
    ("lamb", 0.05, [0.9, 0.999, 1e-6], [0.5, -0.25, 0.125, 1.0, -0.75], 0.0, 0.01, 1.0, False),
    ("lamb", 0.1, [0.5, 0.9, 1e-3], [0.125, 0.75, -0.5], 0.05, 0.0, 0.1, True),
    ("lamb", 0.01, [0.9, 0.999, 1e-6], [0.0, 0.0, 0.0], 0.0, 0.0, 1.0, False),
]
# bound of the elements, of the norm, scale of the gradients
CLIP_CASES = [(0.5, 0.0, 1.0), (0.0, 1.0, 1.0), (1.0, 2.0, 1.0), (5.0, 100.0, 1.0), (0.0, 1.0, 1e30)]
CLIP_DIM = 11
STEPS = 12


def row(values):
    return " ".join("%.17g" % v for v in values)


def element_cases(lines):
    cases = [case + (0.0,) for case in CASES] + DECAYED_CASES
    for index, (name, rate, others, w, l2, scale, moving, decay) in enumerate(cases):
        rate, w, l2, decay = f32(rate), f32(w), f32(l2), f32(decay)
        others = [f32(x) for x in others]
        optimizer = ALGORITHMS[name](others)
        lines.append("case %s %s" % (name, row([rate] + others)))
        lines.append("start " + row(optimizer.start(w)))
        for step, g in enumerate(numbers(1000 + index, STEPS, scale)):
            g = 0.0 if step == 5 else g
            now = f32(rate * (1 + step % 4) / 4) if moving else rate
            before = optimizer.w
            state = optimizer.step(now, g + l2 * before)
            # As AdamW states it: beside the step, from the weight before it.
            optimizer.w -= now * decay * before
            lines.append("step " + row([now, g, l2, decay, optimizer.w] + state[1:]))


def row_cases(lines):
    for index, (name, rate, others, weights, l2, decay, scale, moving) in enumerate(ROW_CASES):
        rate, l2, decay = f32(rate), f32(l2), f32(decay)
        others = [f32(x) for x in others]
        optimizer = {"row_wise_adagrad": RowWiseAdagrad, "lamb": Lamb}[name](others)
        lines.append("row_case %s %s" % (name, row([rate] + others + [len(weights)])))
        lines.append("start " + row(optimizer.start([f32(w) for w in weights])))
        gradients = numbers(2000 + index, STEPS * len(weights), scale)
        for step in range(STEPS):
            g = gradients[step * len(weights) : (step + 1) * len(weights)]
            now = f32(rate * (1 + step % 4) / 4) if moving else rate
            with_l2 = [x + l2 * w for x, w in zip(g, optimizer.row)]
            state = optimizer.step(now, with_l2, decay) if name == "lamb" else optimizer.step(now, with_l2)
            lines.append("step " + row([now, l2, decay] + g + state))


def clip_cases(lines):
    for index, (value, norm, scale) in enumerate(CLIP_CASES):
        gradient = numbers(3000 + index, CLIP_DIM, scale)
        clipped = [min(max(g, -value), value) if value else g for g in gradient]
        length = math.sqrt(sum(g * g for g in clipped))
        if norm and length > norm:
            clipped = [g * norm / length for g in clipped]
        lines.append("clip " + row([value, norm, CLIP_DIM] + gradient + clipped))


def main():
    lines = []
    element_cases(lines)
    row_cases(lines)
    clip_cases(lines)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizers.txt")
    with open(path, "w") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
