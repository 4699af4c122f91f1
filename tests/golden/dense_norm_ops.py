"""Reference forms of the dense ops that normalise, and of activations with parameters."""

import math

from dense_tensors import element, indices, logistic, rows


def softmax(case, inputs, trained):
    dims = [case["batch"]] + case["inputs"][0]
    axis = case["options"].get("axis", -1) % len(dims)
    out = []
    for i in indices(dims):
        others = [
            element(inputs[0], dims, i[:axis] + (j,) + i[axis + 1 :]) for j in range(dims[axis])
        ]
        x = element(inputs[0], dims, i)
        out.append(1 / sum(math.exp(o - x) for o in others))
    return out


def layer_normalization(case, inputs, trained):
    width = case["inputs"][0][-1]
    out = []
    for r, row in enumerate(rows(inputs[0], width)):
        mean = sum(row) / width
        variance = sum(x * x for x in row) / width - mean * mean
        for j, x in enumerate(row):
            at = (r * width + j) % len(trained[0])
            scale = trained[0][at] / math.sqrt(variance + case["options"].get("epsilon", 1e-5))
            out.append((x - mean) * scale + trained[1][at])
    return out


def p_relu(case, inputs, trained):
    width = case["inputs"][0][-1]
    return [x if x > 0 else trained[0][i % width] * x for i, x in enumerate(inputs[0])]


def moments(case, x):
    width = case["inputs"][0][-1]
    n = len(x) // width
    columns = [[row[j] for row in rows(x, width)] for j in range(width)]
    means = [sum(c) / n for c in columns]
    return means, [sum((v - m) ** 2 for v in c) / n for c, m in zip(columns, means)]


def dice(case, inputs, trained):
    means, variances = moments(case, inputs[0])
    epsilon = case["options"].get("epsilon", 1e-9)
    out = []
    for i, x in enumerate(inputs[0]):
        j = i % len(means)
        p = logistic((x - means[j]) / math.sqrt(variances[j] + epsilon))
        out.append((p + trained[0][j] * (1 - p)) * x)
    return out


def batch_normalization(case, inputs, trained):
    means, variances = moments(case, inputs[0])
    epsilon = case["options"].get("epsilon", 1e-5)
    width = len(means)
    weight, bias = trained or ([1] * width, [0] * width)
    return [
        (x - means[i % width]) / math.sqrt(variances[i % width] + epsilon) * weight[i % width]
        + bias[i % width]
        for i, x in enumerate(inputs[0])
    ]
