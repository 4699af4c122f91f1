"""Reference forms of the dense ops over sequences."""

import math

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
