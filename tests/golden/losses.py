#!/usr/bin/env python3
"""Writes losses.txt: every loss, with its gradient.

  case LOSS WIDTH
  outputs X...        [n, WIDTH]
  labels Y...         [n]; nan: the sample has none
  groups G...         [n]
  value L             the sum over samples, or of a loss of ranking n times the mean that it is
  gradient X...       [n, WIDTH]
  end

Values are taken from the definitions: products of probabilities, pair by pair and group by group, in double
precision; gradients are central differences of fourth order. Samples without a label are taken out before: a loss is that of
the others, and where it is n times a mean, n counts all.
"""

import math
import os

from float32 import numbers

STEP = 2.0**-9


def softmax(x):
    total = sum(math.exp(v) for v in x)
    return [math.exp(v) / total for v in x]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def binary(x, labels, groups, width):
    return sum(-y * math.log(sigmoid(v)) - (1 - y) * math.log(sigmoid(-v)) for v, y in zip(x, labels))


def squares(x, labels, groups, width):
    return sum((v - y) ** 2 for v, y in zip(x, labels))


def huber(x, labels, groups, width):
    return sum(e * e / 2 if e <= 1 else e - 1 / 2 for e in (abs(v - y) for v, y in zip(x, labels)))


def classes(x, labels, groups, width):
    rows = [x[i : i + width] for i in range(0, len(x), width)]
    return sum(-math.log(softmax(row)[int(y)]) for row, y in zip(rows, labels))


def pairs(x, labels, groups, width):
    terms = [
        -math.log(sigmoid(x[p] - x[n]))
        for p in range(len(x))
        for n in range(len(x))
        if groups[p] == groups[n] and labels[p] == 1 and labels[n] == 0
    ]
    return len(x) * sum(terms) / len(terms)


def lists(x, labels, groups, width):
    terms = []
    for g in sorted(set(groups)):
        members = [i for i in range(len(x)) if groups[i] == g]
        total = sum(labels[i] for i in members)
        if total == 0:
            continue
        chances = softmax([x[i] for i in members])
        terms.append(-sum(labels[i] / total * math.log(c) for i, c in zip(members, chances)))
    return len(x) * sum(terms) / len(terms)


# Of each value of job.proto's Loss its function; huber_delta and positive_weight are 1.
LOSSES = {
    "BINARY_CROSS_ENTROPY": binary,
    "MEAN_SQUARED_ERROR": squares,
    "HUBER": huber,
    "SOFTMAX_CROSS_ENTROPY": classes,
    "BAYESIAN_PERSONALIZED_RANKING": pairs,
    "LISTWISE_SOFTMAX": lists,
}

# Those that are n times a mean.
MEANS = ("BAYESIAN_PERSONALIZED_RANKING", "LISTWISE_SOFTMAX")

NONE = math.nan

CASES = [
    ("SOFTMAX_CROSS_ENTROPY", 3, [0, 2, 1, 1], [0, 0, 0, 0]),
    ("SOFTMAX_CROSS_ENTROPY", 7, [6, 0], [0, 0]),
    ("BAYESIAN_PERSONALIZED_RANKING", 1, [0, 1, 1, 0, 1, 0, 0, 1], [5, 5, 5, 5, 2, 9, 2, 2]),
    ("LISTWISE_SOFTMAX", 1, [0, 3, 1, 0.5, 0, 0, 2, 1], [5, 5, 5, 2, 2, 9, 9, 7]),
    ("BINARY_CROSS_ENTROPY", 1, [0, 1, 1, 0], [0, 0, 0, 0]),
    ("MEAN_SQUARED_ERROR", 1, [-2.5, 0, 1, 4], [0, 0, 0, 0]),
    ("HUBER", 1, [-2.5, 0, 1, 4], [0, 0, 0, 0]),
    ("SOFTMAX_CROSS_ENTROPY", 3, [NONE, 2, 1, NONE], [0, 0, 0, 0]),
    ("BAYESIAN_PERSONALIZED_RANKING", 1, [0, 1, NONE, 0, 1, NONE, 0, 1], [5, 5, 5, 5, 2, 2, 2, 9]),
    ("LISTWISE_SOFTMAX", 1, [NONE, 3, 1, 0.5, NONE, 0, 2, NONE], [5, 5, 5, 2, 2, 9, 9, 7]),
    ("BINARY_CROSS_ENTROPY", 1, [0, NONE, 1, NONE], [0, 0, 0, 0]),
    ("MEAN_SQUARED_ERROR", 1, [NONE, 0, 1, 4], [0, 0, 0, 0]),
    ("HUBER", 1, [-2.5, 0, NONE, 4], [0, 0, 0, 0]),
]


def of_labelled(name, x, labels, groups, width):
    kept = [i for i, y in enumerate(labels) if not math.isnan(y)]
    outputs = [v for i in kept for v in x[i * width : (i + 1) * width]]
    value = LOSSES[name](outputs, [labels[i] for i in kept], [groups[i] for i in kept], width)
    return value * len(labels) / len(kept) if name in MEANS else value


def gradient(loss, x):
    out = []
    for i, value in enumerate(x):
        at = []
        for k in (-2, -1, 1, 2):
            x[i] = value + k * STEP
            at.append(loss())
        x[i] = value
        out.append((at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * STEP))
    return out


def text(values):
    return " ".join(repr(float(v)) for v in values)


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "losses.txt")
    with open(path, "w") as out:
        print("# Made by losses.py; see there.", file=out)
        for i, (name, width, labels, groups) in enumerate(CASES):
            x = numbers(9000 + i, width * len(labels))
            loss = lambda: of_labelled(name, x, labels, groups, width)
            print("case", name, width, file=out)
            print("outputs", text(x), file=out)
            print("labels", text(labels), file=out)
            print("groups", *groups, file=out)
            print("value", repr(loss()), file=out)
            print("gradient", text(gradient(loss, x)), file=out)
            print("end", file=out)


if __name__ == "__main__":
    main()
