#!/usr/bin/env python3
"""Writes dense_ops.txt: every op of the dense graph in training, forward and backward.

  case OP BATCH
  option NAME number X | bool true/false | numbers X...
  input DIMS... : X...           dims of one sample
  trained X...                   in the order of the op's parameters
  statistic X...
  output DIMS... : Y...
  output_gradient X...
  input_gradient X...            one line for each input
  trained_gradient X...          one line for each parameter
  statistic_gradient X...
  end

Forward passes are written here anew, in double precision. Gradients are not formulas at all: they are central
differences of sum(output * output_gradient), of fourth order, in double precision, good to about 1e-10.
"""

import math
import os

from float32 import f32, numbers

STEP = 2.0**-10


def product(dims):
    return math.prod(dims)


def rows(flat, width):
    return [flat[i : i + width] for i in range(0, len(flat), width)]


def add(case, inputs, trained):
    return [sum(values) for values in zip(*inputs)]


def mul(case, inputs, trained):
    return [a * b for a, b in zip(*inputs)]


def bias(case, inputs, trained):
    return [x + trained[0][i % len(trained[0])] for i, x in enumerate(inputs[0])]


def gemm(case, inputs, trained):
    width = case["inputs"][0][-1]
    units = case["options"]["units"]
    weight = rows(trained[0], width)
    out = []
    for x in rows(inputs[0], width):
        for j in range(units):
            y = sum(a * b for a, b in zip(x, weight[j]))
            out.append(y + (trained[1][j] if len(trained) > 1 else 0.0))
    return out


def concat(case, inputs, trained):
    # Along the last axis (axis -1) or the first after the batch (axis 1) of two-dimensional samples.
    out = []
    axis = case["options"].get("axis", -1)
    dims = case["inputs"]
    if axis == 1:
        for b in range(case["batch"]):
            for x, d in zip(inputs, dims):
                out += x[b * product(d) : (b + 1) * product(d)]
        return out
    for r in range(len(inputs[0]) // dims[0][-1]):
        for x, d in zip(inputs, dims):
            out += x[r * d[-1] : (r + 1) * d[-1]]
    return out


def slice_(case, inputs, trained):
    fields, dim = case["inputs"][0]
    o = case["options"]
    out = []
    for sample in rows(inputs[0], fields * dim):
        for f in range(fields):
            for d in range(dim):
                at = f if o.get("axis", 1) == 1 else d
                if o["start"] <= at < o["end"]:
                    out.append(sample[f * dim + d])
    return out


def reduce_sum(case, inputs, trained):
    fields, dim = case["inputs"][0]
    axes = case["options"].get("axes", [1, 2])
    out = []
    for sample in rows(inputs[0], fields * dim):
        if axes == [1]:
            out += [sum(sample[f * dim + d] for f in range(fields)) for d in range(dim)]
        elif axes == [2]:
            out += [sum(row) for row in rows(sample, dim)]
        else:
            out.append(sum(sample))
    return out


def fm(case, inputs, trained):
    # As the sum over pairs of fields of their dot products: not the form that the op computes.
    fields, dim = case["inputs"][0]
    out = []
    for sample in rows(inputs[0], fields * dim):
        v = rows(sample, dim)
        out.append(
            sum(
                sum(a * b for a, b in zip(v[i], v[j]))
                for i in range(fields)
                for j in range(i + 1, fields)
            )
        )
    return out


def moments(case, x):
    width = case["inputs"][0][0]
    n = case["batch"]
    columns = [[row[j] for row in rows(x, width)] for j in range(width)]
    means = [sum(c) / n for c in columns]
    return means, [sum((v - m) ** 2 for v in c) / n for c, m in zip(columns, means)]


def batch_normalization(case, inputs, trained):
    means, variances = moments(case, inputs[0])
    epsilon = case["options"].get("epsilon", 1e-5)
    width = len(means)
    return [
        (x - means[i % width]) / math.sqrt(variances[i % width] + epsilon) * trained[0][i % width]
        + trained[1][i % width]
        for i, x in enumerate(inputs[0])
    ]


def elementwise(function):
    return lambda case, inputs, trained: [function(x, case["options"]) for x in inputs[0]]


def logistic(x):
    return 1 / (1 + math.exp(-x))


OPS = {
    "Add": add,
    "BatchNormalization": batch_normalization,
    "Bias": bias,
    "Concat": concat,
    "Elu": elementwise(lambda x, o: x if x > 0 else o.get("alpha", 1.0) * math.expm1(x)),
    "FM": fm,
    "Gelu": elementwise(lambda x, o: x * 0.5 * math.erfc(-x / math.sqrt(2))),
    "Gemm": gemm,
    "LeakyRelu": elementwise(lambda x, o: x if x > 0 else o.get("alpha", 0.01) * x),
    "Mul": mul,
    "ReduceSum": reduce_sum,
    "Relu": elementwise(lambda x, o: max(x, 0.0)),
    "Sigmoid": elementwise(lambda x, o: logistic(x)),
    "Silu": elementwise(lambda x, o: x * logistic(x)),
    "Slice": slice_,
    "Softplus": elementwise(lambda x, o: math.log1p(math.exp(x))),
    "Tanh": elementwise(lambda x, o: math.tanh(x)),
}

# op, batch, dims of the inputs, sizes of the trained parameters, dims of the output, options
CASES = [
    ("Add", 3, [[5], [5]], [], [5], {}),
    ("Add", 2, [[2, 3], [2, 3], [2, 3]], [], [2, 3], {}),
    ("Mul", 3, [[2, 3], [2, 3]], [], [2, 3], {}),
    ("Bias", 4, [[3]], [3], [3], {}),
    ("Bias", 2, [[2, 5]], [5], [2, 5], {}),
    ("Gemm", 4, [[3]], [15, 5], [5], {"units": 5}),
    ("Gemm", 1, [[7]], [7, 1], [1], {"units": 1}),
    ("Gemm", 3, [[4]], [8], [2], {"units": 2, "bias": False}),
    ("Gemm", 2, [[3, 4]], [20, 5], [3, 5], {"units": 5}),
    ("Concat", 3, [[2], [1], [4]], [], [7], {}),
    ("Concat", 2, [[2, 3], [1, 3]], [], [3, 3], {"axis": 1}),
    ("Concat", 2, [[2, 3], [2, 2]], [], [2, 5], {"axis": 2}),
    ("Slice", 3, [[4, 3]], [], [2, 3], {"start": 1, "end": 3}),
    ("Slice", 2, [[3, 5]], [], [3, 2], {"axis": 2, "start": 3, "end": 5}),
    ("ReduceSum", 3, [[4, 3]], [], [3], {"axes": [1], "keepdims": False}),
    ("ReduceSum", 2, [[3, 2]], [], [3, 1], {"axes": [2]}),
    ("ReduceSum", 2, [[3, 2]], [], [1, 1], {}),
    ("FM", 3, [[4, 5]], [], [1], {}),
    ("FM", 2, [[1, 3]], [], [1], {}),
    ("FM", 2, [[2, 70]], [], [1], {}),
    ("BatchNormalization", 5, [[3]], [3, 3], [3], {}),
    ("BatchNormalization", 2, [[4]], [4, 4], [4], {"momentum": 0.25, "epsilon": 0.125}),
] + [
    (name, 3, [[4]], [], [4], options)
    for name, options in [
        ("Elu", {}),
        ("Elu", {"alpha": 0.5}),
        ("Gelu", {}),
        ("LeakyRelu", {}),
        ("LeakyRelu", {"alpha": 0.25}),
        ("Relu", {}),
        ("Sigmoid", {}),
        ("Silu", {}),
        ("Softplus", {}),
        ("Tanh", {}),
    ]
]


def away_from_zero(values):
    """No activation has its kink within the steps of a difference."""
    return [v if abs(v) > 0.0625 else v + 0.25 for v in values]


def gradients(loss, arrays):
    """Of loss() by every element of every array."""
    out = []
    for array in arrays:
        gradient = []
        for i, value in enumerate(array):
            at = []
            for k in (-2, -1, 1, 2):
                array[i] = value + k * STEP
                at.append(loss())
            array[i] = value
            gradient.append((at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * STEP))
        out.append(gradient)
    return out


def text(values):
    return " ".join(repr(float(v)) for v in values)


def write(out, seed, op, batch, input_dims, trained_sizes, output_dims, options):
    case = {"batch": batch, "inputs": input_dims, "options": options}
    inputs = [
        away_from_zero(numbers(seed + k, batch * product(d))) for k, d in enumerate(input_dims)
    ]
    trained = [numbers(seed + 10 + k, n) for k, n in enumerate(trained_sizes)]
    forward = lambda: OPS[op](case, inputs, trained)
    output = forward()
    assert len(output) == batch * product(output_dims), op
    weights = numbers(seed + 20, len(output))
    loss = lambda: sum(a * b for a, b in zip(forward(), weights))

    print("case", op, batch, file=out)
    for name, value in options.items():
        if isinstance(value, bool):
            print("option", name, "bool", str(value).lower(), file=out)
        elif isinstance(value, list):
            print("option", name, "numbers", text(value), file=out)
        else:
            print("option", name, "number", repr(float(value)), file=out)
    for dims, values in zip(input_dims, inputs):
        print("input", *dims, ":", text(values), file=out)
    for values in trained:
        print("trained", text(values), file=out)
    statistics = []
    if op == "BatchNormalization":
        width = input_dims[0][0]
        statistics = [numbers(seed + 30, width), [abs(v) + 0.5 for v in numbers(seed + 31, width)]]
        statistics = [[f32(v) for v in s] for s in statistics]
        for values in statistics:
            print("statistic", text(values), file=out)
    print("output", *output_dims, ":", text(output), file=out)
    print("output_gradient", text(weights), file=out)
    for values in gradients(loss, inputs):
        print("input_gradient", text(values), file=out)
    for values in gradients(loss, trained):
        print("trained_gradient", text(values), file=out)
    if statistics:
        means, variances = moments(case, inputs[0])
        momentum = options.get("momentum", 0.1)
        unbiased = [v * batch / (batch - 1) for v in variances]
        for running, measured in zip(statistics, (means, unbiased)):
            moved = [momentum * (r - m) for r, m in zip(running, measured)]
            print("statistic_gradient", text(moved), file=out)
    print("end", file=out)


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dense_ops.txt")
    with open(path, "w") as out:
        print("# Made by dense_ops.py; see there.", file=out)
        for i, case in enumerate(CASES):
            write(out, 1000 + 100 * i, *case)


if __name__ == "__main__":
    main()
