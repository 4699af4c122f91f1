"""Reference forms of the dense ops that multiply."""

import itertools

from dense_tensors import element, indices, rows


def mat_mul(case, inputs, trained):
    o = case["options"]
    dims = [[case["batch"]] + d for d in case["inputs"]]
    turned = [o.get("transA", False), o.get("transB", False)]
    m, k = dims[0][-2:][::-1] if turned[0] else dims[0][-2:]
    n = dims[1][-2] if turned[1] else dims[1][-1]
    at = lambda side, outer, i, j: element(
        inputs[side], dims[side], outer + ((j, i) if turned[side] else (i, j))
    )
    return [
        o.get("alpha", 1.0) * sum(at(0, outer, i, p) * at(1, outer, p, j) for p in range(k))
        for outer in indices(dims[0][:-2])
        for i in range(m)
        for j in range(n)
    ]


def bilinear(case, inputs, trained):
    (m, n), units = [d[-1] for d in case["inputs"]], case["options"]["units"]
    out = []
    for a, b in zip(rows(inputs[0], m), rows(inputs[1], n)):
        for k, weight in enumerate(rows(trained[0], m * n)):
            form = sum(w * x for w, x in zip(weight, [x * y for x in a for y in b]))
            out.append(form + (trained[1][k] if len(trained) > 1 else 0.0))
    assert len(rows(trained[0], m * n)) == units
    return out


def dot_interaction(case, inputs, trained):
    fields, dim = case["inputs"][0]
    out = []
    for sample in rows(inputs[0], fields * dim):
        v = rows(sample, dim)
        for i in range(fields):
            for j in range(i + 1 if case["options"].get("self") else i):
                out.append(sum(a * b for a, b in zip(v[i], v[j])))
    return out


def field_pairs(case, inputs, trained):
    fields, dim = case["inputs"][0]
    out = []
    for sample in rows(inputs[0], fields * dim):
        for a, b in itertools.combinations(rows(sample, dim), 2):
            out += [x * y for x, y in zip(a, b)]
    return out


def ffm(case, inputs, trained):
    fields, width = case["inputs"][0]
    out = []
    for sample in rows(inputs[0], fields * width):
        towards = {}
        for i, row in enumerate(rows(sample, width)):
            others = [j for j in range(fields) if j != i]
            for j, vector in zip(others, rows(row, width // (fields - 1))):
                towards[i, j] = vector
        out.append(
            sum(
                a * b
                for i, j in itertools.combinations(range(fields), 2)
                for a, b in zip(towards[i, j], towards[j, i])
            )
        )
    return out


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


def fm(case, inputs, trained):
    # As the sum over pairs of fields of their dot products: not the form that the op computes.
    fields, dim = case["inputs"][0]
    out = []
    for sample in rows(inputs[0], fields * dim):
        v = rows(sample, dim)
        pairs = list(itertools.combinations(v, 2))
        addends = [sum(a[d] * b[d] for a, b in pairs) for d in range(dim)]
        out += [sum(addends)] if case["options"].get("sum", True) else addends
    return out
