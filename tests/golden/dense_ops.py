#!/usr/bin/env python3
"""Writes dense_ops.txt: every op of the dense graph in training, forward and backward.

  case OP BATCH
  option NAME number X | bool true/false | numbers X...
  input DIMS... : X...           dims of one sample
  trained X...                   in the order of the op's parameters
  statistic X...
  output DIMS... : Y...          one line for each output
  output_gradient X...           the same
  input_gradient X...            one line for each input
  trained_gradient X...          one line for each parameter
  statistic_gradient X...
  end

Forward passes are written here anew, in double precision. Gradients are not formulas at all: they are central
differences of sum(output * output_gradient), of fourth order, in double precision, good to about 1e-10.
"""

import math
import os

from dense_layout_ops import (
    concat,
    constant,
    expand,
    gather,
    parameter,
    roll_batch,
    slice_,
    split,
    transpose,
)
from dense_norm_ops import batch_normalization, dice, layer_normalization, moments, p_relu, softmax
from dense_product_ops import (
    bias,
    bilinear,
    dot_interaction,
    ffm,
    field_pairs,
    fm,
    gemm,
    mat_mul,
)
from dense_sequence_ops import attention, gru, lstm, sequence_mask
from dense_tensors import broadcast, elementwise, product, reduce
from elementwise import ACTIVATIONS, OPTIONS, POSITIVE
from float32 import f32, numbers

STEP = 2.0**-10


def op_name(activation):
    return "".join(word.capitalize() for word in activation.split("_"))


OPS = {
    "Add": broadcast(sum),
    "Attention": attention,
    "AUGRU": gru(attention=True),
    "BatchNormalization": batch_normalization,
    "Bias": bias,
    "Bilinear": bilinear,
    "Concat": concat,
    "Constant": constant,
    "Dice": dice,
    "Div": broadcast(lambda v: v[0] / v[1]),
    "DotInteraction": dot_interaction,
    "Expand": expand,
    "FFM": ffm,
    "FieldPairs": field_pairs,
    "FM": fm,
    "Gather": gather,
    "Gemm": gemm,
    "GRU": gru(attention=False),
    "LayerNormalization": layer_normalization,
    "LSTM": lstm,
    "MatMul": mat_mul,
    "Max": broadcast(max),
    "Min": broadcast(min),
    "Mul": broadcast(math.prod),
    "Parameter": parameter,
    "PRelu": p_relu,
    "ReduceMax": reduce(max),
    "ReduceMean": reduce(lambda v: sum(v) / len(v)),
    "ReduceSum": reduce(sum),
    "RollBatch": roll_batch,
    "SequenceMask": sequence_mask,
    "Slice": slice_,
    "Softmax": softmax,
    "Split": split,
    "StopGradient": elementwise(lambda x, o: x),
    "Sub": broadcast(lambda v: v[0] - v[1]),
    "Transpose": transpose,
    "Where": broadcast(lambda v: v[1] if v[0] != 0 else v[2]),
}
OPS.update(
    (op_name(name), elementwise(lambda x, o, value=value: float(value(x, o))))
    for name, (value, _) in ACTIVATIONS.items()
)

# op, batch, dims of the inputs, sizes of the trained parameters, dims of the output or a list of those of
# several, options
CASES = [
    ("Add", 3, [[5], [5]], [], [5], {}),
    ("Add", 2, [[2, 3], [2, 3], [2, 3]], [], [2, 3], {}),
    ("Add", 3, [[1, 4], [3, 1], [3, 4]], [], [3, 4], {}),
    ("Add", 2, [[1], [5]], [], [5], {}),
    ("Mul", 3, [[2, 3], [2, 3]], [], [2, 3], {}),
    ("Mul", 2, [[3, 1], [3, 4]], [], [3, 4], {}),
    ("Mul", 3, [[9], [1]], [], [9], {}),
    ("Mul", 2, [[3, 1, 2], [1, 4, 2]], [], [3, 4, 2], {}),
    ("Sub", 2, [[3, 4], [3, 4]], [], [3, 4], {}),
    ("Sub", 2, [[1, 4], [3, 1]], [], [3, 4], {}),
    ("Div", 2, [[2, 3], [2, 3]], [], [2, 3], {}),
    ("Div", 2, [[1, 2], [9, 1]], [], [9, 2], {}),
    ("Parameter", 3, [], [6], [3, 2], {"shape": [3, 2]}),
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
    ("ReduceSum", 3, [[3, 2, 2]], [], [3, 1, 1], {"axes": [2, 3]}),
    ("ReduceMean", 2, [[4, 3]], [], [1, 3], {"axes": [1]}),
    ("ReduceMean", 2, [[4, 11]], [], [4], {"axes": [2], "keepdims": False}),
    ("ReduceMax", 3, [[5, 3]], [], [3], {"axes": [1], "keepdims": False}),
    ("ReduceMax", 2, [[2, 4]], [], [2, 1], {"axes": [2]}),
    ("Softmax", 3, [[5]], [], [5], {}),
    ("Softmax", 2, [[4, 3]], [], [4, 3], {"axis": 1}),
    ("LayerNormalization", 3, [[5]], [5, 5], [5], {}),
    ("LayerNormalization", 2, [[2, 9]], [9, 9], [2, 9], {"epsilon": 0.125}),
    ("LayerNormalization", 2, [[3, 4]], [12, 12], [3, 4], {"affine_axis": 1}),
    ("MatMul", 2, [[3, 4], [4, 5]], [], [3, 5], {}),
    ("MatMul", 2, [[2, 3, 4], [2, 5, 4]], [], [2, 3, 5], {"transB": True, "alpha": 0.5}),
    ("MatMul", 2, [[4, 3], [4, 9]], [], [3, 9], {"transA": True}),
    ("MatMul", 1, [[4, 3], [2, 4]], [], [3, 2], {"transA": True, "transB": True}),
    ("MatMul", 2, [[1, 19], [3, 19]], [], [1, 3], {"transB": True}),
    ("Transpose", 2, [[3, 4]], [], [4, 3], {"perm": [0, 2, 1]}),
    ("Transpose", 2, [[2, 3, 4]], [], [3, 2, 4], {"perm": [0, 2, 1, 3]}),
    ("Transpose", 2, [[2, 3, 4]], [], [4, 2, 3], {"perm": [0, 3, 1, 2]}),
    ("Split", 3, [[7]], [], [[2], [4], [1]], {"split": [2, 4, 1]}),
    ("Split", 2, [[4, 3]], [], [[2, 3], [2, 3]], {"axis": 1, "num_outputs": 2}),
    ("Gather", 2, [[4, 3]], [], [3, 3], {"indices": [2, 0, 2]}),
    ("Gather", 3, [[2, 5]], [], [2, 2], {"axis": 2, "indices": [4, 1]}),
    ("Bilinear", 3, [[4], [5]], [40, 2], [2], {"units": 2}),
    ("Bilinear", 2, [[2, 3], [2, 9]], [27], [2, 1], {"units": 1, "bias": False}),
    ("PRelu", 4, [[3]], [3], [3], {}),
    ("PRelu", 2, [[2, 3]], [3], [2, 3], {"alpha": 0.5}),
    ("Dice", 5, [[3]], [3], [3], {}),
    ("Dice", 3, [[2, 2]], [2], [2, 2], {"momentum": 0.25, "epsilon": 0.125}),
    ("DotInteraction", 3, [[4, 5]], [], [6], {}),
    ("DotInteraction", 2, [[3, 70]], [], [6], {"self": True}),
    ("DotInteraction", 1, [[19, 3]], [], [171], {}),
    ("FieldPairs", 2, [[4, 3]], [], [6, 3], {}),
    ("FFM", 2, [[4, 6]], [], [1], {}),
    ("FFM", 2, [[2, 9]], [], [1], {}),
    ("FM", 3, [[4, 5]], [], [1], {}),
    ("FM", 2, [[4, 5]], [], [5], {"sum": False}),
    ("FM", 2, [[1, 3]], [], [1], {}),
    ("FM", 2, [[2, 70]], [], [1], {}),
    ("BatchNormalization", 5, [[3]], [3, 3], [3], {}),
    ("BatchNormalization", 2, [[4]], [4, 4], [4], {"momentum": 0.25, "epsilon": 0.125}),
    ("BatchNormalization", 3, [[2, 3]], [3, 3], [2, 3], {}),
    ("Expand", 2, [[1, 3]], [], [4, 3], {"shape": [0, 4, 3]}),
    ("Expand", 2, [[3, 1]], [], [3, 5], {"shape": [0, 3, 5]}),
    ("SequenceMask", 5, [[1]], [], [3, 1], {"size": 3}),
    ("SequenceMask", 4, [[1]], [], [2, 1], {"size": 2, "valid": 0.5, "padding": -4.0}),
    ("GRU", 2, [[3, 4]], [24, 12, 12], [3, 2], {"units": 2}),
    ("GRU", 5, [[3, 2], [1]], [18, 27, 18], [3, 3], {"units": 3}),
    ("GRU", 4, [[2, 3], [1]], [18, 12, 12], [2], {"units": 2, "sequence": False}),
    ("AUGRU", 2, [[3, 4], [3, 1]], [24, 12, 12], [3, 2], {"units": 2}),
    ("AUGRU", 5, [[3, 2], [3, 1], [1]], [18, 27, 18], [3], {"units": 3, "sequence": False}),
    ("Constant", 3, [], [], [2, 2], {"shape": [2, 2], "value": [0.5, -1.25, 3.0, 0.0]}),
    ("Constant", 2, [], [], [3], {"shape": [3], "value": 0.75}),
    ("RollBatch", 5, [[2, 3]], [], [2, 3], {}),
    ("RollBatch", 4, [[3]], [], [3], {}),
    ("RollBatch", 1, [[2]], [], [2], {}),
    ("StopGradient", 3, [[2, 3]], [], [2, 3], {}),
    ("Attention", 2, [[3, 4], [3, 4], [3, 4]], [], [3, 4], {"heads": 2}),
    ("Attention", 5, [[2, 6], [4, 6], [4, 3], [1]], [], [2, 3], {"heads": 3, "scale": 0.75}),
    ("Attention", 2, [[4, 2], [4, 2], [4, 9]], [], [4, 9], {"causal": True}),
    ("Attention", 4, [[3, 2], [4, 2], [4, 2], [1]], [], [3, 2], {"heads": 2, "causal": True}),
    ("Attention", 1, [[34, 8], [35, 8], [35, 10]], [], [34, 10], {"heads": 1}),
    ("LSTM", 2, [[3, 4]], [32, 16, 16], [3, 2], {"units": 2}),
    ("LSTM", 5, [[3, 2], [1]], [24, 36, 24], [3, 3], {"units": 3}),
    ("LSTM", 4, [[2, 3], [1]], [24, 16, 16], [2], {"units": 2, "sequence": False}),
    (
        "LSTM",
        5,
        [[3, 2], [1]],
        [24, 36, 24],
        [[3], [3]],
        {"units": 3, "sequence": False, "memory": True},
    ),
    ("LSTM", 3, [[2, 2]], [16, 16, 16], [[2, 2], [2]], {"units": 2, "memory": True}),
    ("Slice", 2, [[4, 3]], [], [2, 3], {"start": -3, "end": -1}),
    ("Gather", 2, [[2, 5]], [], [2, 3], {"axis": 2, "indices": [-1, 0, -5]}),
    ("Where", 3, [[4], [4], [4]], [], [4], {}),
    ("Where", 2, [[3, 1], [1, 4], [3, 4]], [], [3, 4], {}),
    ("Where", 2, [[3, 4], [3, 1], [1, 1]], [], [3, 4], {}),
    ("Max", 3, [[2, 3], [2, 3]], [], [2, 3], {}),
    ("Max", 2, [[3, 1], [1, 4]], [], [3, 4], {}),
    ("Min", 3, [[2, 3], [2, 3]], [], [2, 3], {}),
    ("Min", 2, [[3, 1], [3, 4]], [], [3, 4], {}),
] + [
    (op_name(name), 3, [[4]], [], [4], options)
    for name in ACTIVATIONS
    for options in OPTIONS.get(name, [{}])
] + [
    ("BatchNormalization", 5, [[3]], [], [3], {"affine": False}),
    ("BatchNormalization", 3, [[2, 3]], [], [2, 3], {"affine": False, "momentum": 0.25}),
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
    if op in map(op_name, POSITIVE):
        inputs = [[abs(x) for x in inputs[0]]]
    if op == "Div":  # by what is not near zero
        inputs[1] = [x + math.copysign(0.5, x) for x in inputs[1]]
    if op == "Where":
        inputs[0] = [max(x, 0.0) for x in inputs[0]]
    if op in ("Attention", "AUGRU", "GRU", "LSTM", "SequenceMask") and input_dims[-1] == [1]:
        # Lengths of every kind, where a step of a difference reaches no other one.
        inputs[-1] = [k % 5 + 0.5 for k in range(batch)]
    trained = [numbers(seed + 10 + k, n) for k, n in enumerate(trained_sizes)]
    several = isinstance(output_dims[0], list)
    outputs_dims = output_dims if several else [output_dims]
    parts = OPS[op](case, inputs, trained) if several else [OPS[op](case, inputs, trained)]
    assert [len(p) for p in parts] == [batch * product(d) for d in outputs_dims], op
    part_weights = [numbers(seed + 20 + k, len(p)) for k, p in enumerate(parts)]
    weights = sum(part_weights, [])

    def forward():
        output = OPS[op](case, inputs, trained)
        return sum(output, []) if several else output

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
    if op in ("BatchNormalization", "Dice"):
        width = input_dims[0][-1]
        statistics = [numbers(seed + 30, width), [abs(v) + 0.5 for v in numbers(seed + 31, width)]]
        statistics = [[f32(v) for v in s] for s in statistics]
        for values in statistics:
            print("statistic", text(values), file=out)
    for dims, values in zip(outputs_dims, parts):
        print("output", *dims, ":", text(values), file=out)
    for values in part_weights:
        print("output_gradient", text(values), file=out)
    for k, values in enumerate(gradients(loss, inputs)):
        if op == "StopGradient" or (op == "Where" and k == 0):
            values = [0] * len(values)
        print("input_gradient", text(values), file=out)
    for values in gradients(loss, trained):
        print("trained_gradient", text(values), file=out)
    if statistics:
        means, variances = moments(case, inputs[0])
        momentum = options.get("momentum", 0.1)
        n = len(inputs[0]) // width
        unbiased = [v * n / (n - 1) for v in variances]
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
