"""Reference forms of the dense ops that move numbers about."""

from dense_tensors import element, indices, product, rows, take


def parameter(case, inputs, trained):
    return trained[0] * case["batch"]


def constant(case, inputs, trained):
    value = case["options"]["value"]
    if not isinstance(value, list):
        value = [value] * product(case["options"]["shape"])
    return [float(v) for v in value] * case["batch"]


def transpose(case, inputs, trained):
    dims = [case["batch"]] + case["inputs"][0]
    perm = case["options"]["perm"]
    out = []
    for i in indices([dims[a] for a in perm]):
        source = [0] * len(dims)
        for a, index in zip(perm, i):
            source[a] = index
        out.append(element(inputs[0], dims, source))
    return out


def gather(case, inputs, trained):
    axis = case["options"].get("axis", 1)
    size = ([case["batch"]] + case["inputs"][0])[axis]
    return take(case, inputs, axis, [i % size for i in case["options"]["indices"]])


def split(case, inputs, trained):
    o = case["options"]
    dims = [case["batch"]] + case["inputs"][0]
    axis = o.get("axis", -1) % len(dims)
    sizes = o.get("split") or [dims[axis] // o["num_outputs"]] * o["num_outputs"]
    outputs, first = [], 0
    for size in sizes:
        outputs.append(take(case, inputs, axis, range(first, first + size)))
        first += size
    return outputs


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
    axis = o.get("axis", 1)
    taken = range([fields, dim][axis - 1])[o["start"] : o["end"]]
    out = []
    for sample in rows(inputs[0], fields * dim):
        for f in range(fields):
            for d in range(dim):
                if [f, d][axis - 1] in taken:
                    out.append(sample[f * dim + d])
    return out


def roll_batch(case, inputs, trained):
    n = case["batch"]
    samples = rows(inputs[0], product(case["inputs"][0]))
    if n == 1:
        return [0.0 for _ in samples[0]]
    return sum((samples[(i + n // 2) % n] for i in range(n)), [])


def expand(case, inputs, trained):
    dims = [case["batch"]] + case["inputs"][0]
    return [element(inputs[0], dims, i) for i in indices([dims[0]] + case["options"]["shape"][1:])]
