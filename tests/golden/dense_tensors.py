"""Row-major tensors as flat lists, for the reference forms of dense ops."""

import itertools
import math


def product(dims):
    return math.prod(dims)


def rows(flat, width):
    return [flat[i : i + width] for i in range(0, len(flat), width)]


def indices(dims):
    """Every index of a tensor of these dims, in row-major order."""
    return itertools.product(*map(range, dims))


def element(flat, dims, index):
    """Element `index` of a row-major tensor; an axis of size 1 stands for every index."""
    at = 0
    for size, i in zip(dims, index):
        at = at * size + (i if size > 1 else 0)
    return flat[at]


def broadcast(function):
    def forward(case, inputs, trained):
        dims = [[case["batch"]] + d for d in case["inputs"]]
        return [
            function([element(x, d, i) for x, d in zip(inputs, dims)])
            for i in indices([max(sizes) for sizes in zip(*dims)])
        ]

    return forward


def reduce(function):
    """Over the axes of the option, counted with the batch as 0."""

    def forward(case, inputs, trained):
        dims = [case["batch"]] + case["inputs"][0]
        axes = case["options"].get("axes", list(range(1, len(dims))))
        out = []
        for kept in indices([1 if a in axes else d for a, d in enumerate(dims)]):
            ranges = [range(d) if a in axes else [kept[a]] for a, d in enumerate(dims)]
            out.append(function([element(inputs[0], dims, i) for i in itertools.product(*ranges)]))
        return out

    return forward


def take(case, inputs, axis, chosen):
    """The chosen indices of an axis."""
    dims = [case["batch"]] + case["inputs"][0]
    shape = dims[:axis] + [len(chosen)] + dims[axis + 1 :]
    return [
        element(inputs[0], dims, i[:axis] + (chosen[i[axis]],) + i[axis + 1 :])
        for i in indices(shape)
    ]


def elementwise(function):
    return lambda case, inputs, trained: [function(x, case["options"]) for x in inputs[0]]


def logistic(x):
    return 1 / (1 + math.exp(-x))
