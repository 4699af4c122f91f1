"""Reference forms of the dense ops over sequences."""

import math
from operator import mul

from dense_tensors import logistic, rows


def sequence_mask(case, inputs, trained):
    o = case["options"]
    return [
        o.get("valid", 1.0) if t + 1 <= length else o.get("padding", 0.0)
        for length in inputs[0]
        for t in range(o["size"])
    ]


def gru(attention):
    def forward(case, inputs, trained):
        places, width = case["inputs"][0]
        units = case["options"]["units"]
        lengths = inputs[-1] if len(inputs) > (2 if attention else 1) else [places] * case["batch"]
        weight = rows(rows(trained[0], width), units)
        recurrence = rows(rows(trained[1], units), units)
        bias = rows(trained[2], units)
        dot = lambda a, b: sum(p * q for p, q in zip(a, b))
        out = []
        for b, sample in enumerate(rows(inputs[0], places * width)):
            h, states = [0.0] * units, []
            for t, x in enumerate(rows(sample, width)):
                if t + 1 > lengths[b]:
                    states.append([0.0] * units)
                    continue
                a = inputs[1][b * places + t] if attention else 1.0
                after = []
                for j in range(units):
                    x_gates = [dot(weight[g][j], x) + bias[g][j] for g in range(3)]
                    h_gates = [dot(recurrence[g][j], h) + bias[3 + g][j] for g in range(3)]
                    update = a * (1 - logistic(x_gates[0] + h_gates[0]))
                    reset = logistic(x_gates[1] + h_gates[1])
                    candidate = math.tanh(x_gates[2] + reset * h_gates[2])
                    after.append((1 - update) * h[j] + update * candidate)
                h = after
                states.append(h)
            out += sum(states, []) if case["options"].get("sequence", True) else h
        return out

    return forward


def lstm(case, inputs, trained):
    """Hochreiter and Schmidhuber 1997 with a forget gate; gates in ONNX's order i, o, f, c."""
    o = case["options"]
    places, width = case["inputs"][0]
    units = o["units"]
    lengths = inputs[1] if len(inputs) > 1 else [places] * case["batch"]
    weight = rows(rows(trained[0], width), units)
    recurrence = rows(rows(trained[1], units), units)
    bias = rows(trained[2], units)
    dot = lambda a, b: sum(map(mul, a, b))
    out, memories = [], []
    for b, sample in enumerate(rows(inputs[0], places * width)):
        h, memory, states = [0.0] * units, [0.0] * units, []
        for t, x in enumerate(rows(sample, width)):
            if t + 1 > lengths[b]:
                states.append([0.0] * units)
                continue
            after = []
            for j in range(units):
                i, opened, f, c = (
                    dot(weight[g][j], x) + dot(recurrence[g][j], h) + bias[g][j] + bias[4 + g][j]
                    for g in range(4)
                )
                memory[j] = logistic(f) * memory[j] + logistic(i) * math.tanh(c)
                after.append(logistic(opened) * math.tanh(memory[j]))
            h = after
            states.append(h)
        out += sum(states, []) if o.get("sequence", True) else h
        memories += memory
    return [out, memories] if o.get("memory") else out


def attention(case, inputs, trained):
    """Vaswani et al. 2017, section 3.2, head by head; a query that sees no key gives zeros."""
    o = case["options"]
    (queries, width), (keys, _), (_, value_width) = case["inputs"][:3]
    heads = o.get("heads", 1)
    dim, value_dim = width // heads, value_width // heads
    scale = o.get("scale", dim**-0.5)
    lengths = inputs[3] if len(inputs) > 3 else [keys] * case["batch"]
    out = []
    for b, length in enumerate(lengths):
        x = [
            rows(part, w)[b * n : (b + 1) * n]
            for part, w, n in zip(
                inputs[:3], (width, width, value_width), (queries, keys, keys)
            )
        ]
        for t in range(queries):
            seen = [s for s in range(min(int(length), keys)) if s <= t or not o.get("causal")]
            for h in range(heads):
                at = slice(h * dim, (h + 1) * dim)
                raw = [math.exp(scale * sum(map(mul, x[0][t][at], x[1][s][at]))) for s in seen]
                for d in range(h * value_dim, (h + 1) * value_dim):
                    sums = sum(w * x[2][s][d] for w, s in zip(raw, seen))
                    out.append(sums / sum(raw) if seen else 0.0)
    return out
