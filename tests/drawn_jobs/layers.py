"""Networks of `layers:` that nobody thought of: ops over each other's outputs, drawn by seed."""
import math
import pathlib

# Not drawn is roll_batch, which compares the samples of a batch: what is measured would hang on how many workers measure.
# Of these the last bits of a float decide, which are not the same in two runtimes.
JUMP = ("ceil", "floor", "round", "step")
# Of numbers from 0.3 to 1.3 alone: elsewhere they or their gradients are not finite, or soon.
GUARDED = {"exp": {}, "log": {}, "sqrt": {}, "power": {"exponent": -1.5}}
OPTIONS = {"clip": {"min": -0.7, "max": 0.5}, "dropout": {"ratio": 0.3}, "elu": {"alpha": 0.5}, "leaky_relu": {"alpha": 0.2},
           "batch_norm": {"momentum": 0.3}, "prelu": {"alpha": 0.1}, "dice": {"momentum": 0.3}, "hard_sigmoid": {"alpha": 0.4}}
FUNCTIONS = pathlib.Path(__file__).resolve().parents[2] / "common" / "math" / "activation"
ALIKE = ("batch_norm", "bias", "dice", "dropout", "layer_norm", "prelu", "softmax", "stop_gradient",
         *sorted({file.stem for file in FUNCTIONS.glob("*.h")}.difference(GUARDED, ("pow",))))
MOST_NUMBERS = 600  # of a tensor


class TooLarge(Exception):
    """Of a layer that is left out."""


class Network:
    """`shapes`: of inputs and layers, without the batch, by name. `lengths`: the inputs that are lengths of sequences, by their places."""

    def __init__(self, draw, inputs, lengths):
        self.draw, self.shapes, self.lengths = draw, dict(inputs), lengths
        self.layers, self.read = [], set()

    def add(self, op, inputs, shape, options=None, **more):
        """Its output's name."""
        if math.prod(shape) > MOST_NUMBERS:
            raise TooLarge
        layer = {"name": f"n{len(self.layers)}", "op": op, "inputs": list(inputs), **({"options": options} if options else {}), **more}
        self.layers.append(layer)
        self.read.update(inputs)
        if "outputs" not in more:
            self.shapes[layer["name"]] = tuple(shape)
        return layer["name"]

    def alike(self, fits):
        """A tensor whose shape fits."""
        return self.draw.choice([name for name, shape in self.shapes.items() if fits(shape)])

    def lengths_of(self, name):
        """The input of lengths, at times, for a tensor of as many places; or nothing."""
        fits = [length for length, places in self.lengths.items() if places == self.shapes[name][0]]
        return [self.draw.choice(fits)] if fits and self.draw.random() < 0.7 else []

    def bounded(self, name):
        """The tensor, between 0.3 and 1.3."""
        shape = self.shapes[name]
        return self.add("softplus", [self.add("tanh", [name], shape)], shape)


# Rules: functions of (network, the name of a tensor), which add layers on it. None where they do not apply to its shape.
RULES = []


def rule(axes=None, times=1):
    """For tensors of so many axes."""
    def register(body):
        RULES.extend([lambda net, name: body(net, name, net.shapes[name]) if axes in (None, len(net.shapes[name])) else None] * times)
        return body
    return register


@rule(times=4)
def alike(net, name, shape):
    op = net.draw.choice(ALIKE)
    net.add(op, [name], shape, OPTIONS.get(op) if op == "clip" or net.draw.random() < 0.5 else None)


@rule()
def guarded(net, name, shape):
    op = net.draw.choice(list(GUARDED))
    net.add(op, [net.bounded(name)], shape, GUARDED[op])


@rule(times=2)
def linear(net, name, shape):
    units = net.draw.choice((1, 2, 5, 16))
    net.add("linear", [name], (*shape[:-1], units), {"units": units, **net.draw.choice(({}, {}, {"bias": False}, {"init": "he_uniform", "gain": 0.5, "bias_value": 0.2}))})


@rule()
def twin(net, name, shape):
    """Two layers with one set of parameters."""
    other = net.alike(lambda s: s[-1] == shape[-1])
    first = net.add("linear", [name], (*shape[:-1], 3), {"units": 3})
    net.add("linear", [other], (*net.shapes[other][:-1], 3), {"units": 3}, parameters_of=first)


@rule(times=2)
def combine(net, name, shape):
    other = net.alike(lambda s: s == shape)
    op = net.draw.choice(("add", "multiply", "subtract", "divide", "maximum", "minimum"))
    net.add(op, [name, net.bounded(other) if op == "divide" else other], shape)


@rule()
def add_many(net, name, shape):
    net.add("add", [name, *(net.alike(lambda s: s == shape) for _ in range(2))], shape)


@rule(axes=2)
def broadcast(net, name, shape):
    """[batch, n, 1] or [batch, 1, d] by [batch, n, d]."""
    axis = net.draw.randrange(2)
    thin = net.add("reduce_mean", [name], (*shape[:axis], 1, *shape[axis + 1:]), {"axes": [axis + 1], "keepdims": True})
    net.add(net.draw.choice(("multiply", "subtract")), [name, thin], shape)
    net.add("expand", [thin], shape, {"shape": [0, *shape]})


@rule()
def with_leaf(net, name, shape):
    """By numbers that no column has: trained ones, or constants."""
    op, options = net.draw.choice((("parameter", {"value": 0.5}), ("parameter", {"stddev": 0.3}), ("constant", {"value": 0.7})))
    net.add(net.draw.choice(("add", "multiply")), [name, net.add(op, [], shape, {"shape": list(shape), **options})], shape)


@rule()
def choose(net, name, shape):
    """What a sign decides."""
    other, by = (net.alike(lambda s: s == shape) for _ in range(2))
    net.add("where", [net.add("step", [by], shape), name, other], shape)


@rule(axes=2)
def masked(net, name, shape):
    length = net.lengths_of(name)
    if length:
        mask = net.add("sequence_mask", length, (shape[0], 1), {"size": shape[0], **net.draw.choice(({}, {"padding": -1, "valid": 0.5}))})
        net.add("multiply", [name, mask], shape)


@rule()
def concat(net, name, shape):
    axis = net.draw.randrange(len(shape))
    fits = lambda s: len(s) == len(shape) and all(i == axis or s[i] == shape[i] for i in range(len(s)))
    names = [name, *(net.alike(fits) for _ in range(net.draw.choice((1, 2))))]
    size = sum(net.shapes[n][axis] for n in names)
    net.add("concat", names, (*shape[:axis], size, *shape[axis + 1:]), {"axis": axis + 1})


@rule()
def reduce(net, name, shape):
    axis = net.draw.randrange(len(shape))
    keep = len(shape) == 1 or net.draw.random() < 0.5
    net.add(net.draw.choice(("reduce_sum", "reduce_mean", "reduce_max")), [name], (*shape[:axis], *([1] if keep else []), *shape[axis + 1:]),
            {"axes": [axis + 1], "keepdims": keep})


@rule()
def cut(net, name, shape):
    axis = net.draw.randrange(len(shape))
    start = net.draw.randrange(shape[axis])
    end = net.draw.randrange(start, shape[axis]) + 1
    net.add("slice", [name], (*shape[:axis], end - start, *shape[axis + 1:]), {"axis": axis + 1, "start": start, "end": end})


@rule()
def split(net, name, shape):
    """Several outputs."""
    axis = net.draw.randrange(len(shape))
    if shape[axis] < 2:
        return
    first = net.draw.randrange(1, shape[axis])
    outputs = [f"n{len(net.layers)}_{i}" for i in range(2)]
    net.add("split", [name], shape, {"axis": axis + 1, "split": [first, shape[axis] - first]}, outputs=outputs)
    for output, size in zip(outputs, (first, shape[axis] - first)):
        net.shapes[output] = (*shape[:axis], size, *shape[axis + 1:])


@rule()
def gather(net, name, shape):
    axis = net.draw.randrange(len(shape))
    indices = [net.draw.randrange(-shape[axis], shape[axis]) for _ in range(net.draw.randrange(1, 5))]
    net.add("gather", [name], (*shape[:axis], len(indices), *shape[axis + 1:]), {"axis": axis + 1, "indices": indices})


@rule()
def transpose(net, name, shape):
    order = net.draw.sample(range(len(shape)), len(shape))
    net.add("transpose", [name], tuple(shape[i] for i in order), {"perm": [0, *(i + 1 for i in order)]})


@rule()
def reshape(net, name, shape):
    numbers = math.prod(shape)
    rows = net.draw.choice([n for n in range(1, numbers + 1) if numbers % n == 0])
    net.add("reshape", [name], (rows, numbers // rows), {"shape": [0, rows, -1]})


@rule(axes=2)
def recurrence(net, name, shape):
    units, whole, op = net.draw.choice((2, 5)), net.draw.random() < 0.5, net.draw.choice(("gru", "lstm", "augru"))
    inputs, options = [name], {"units": units, "sequence": whole}
    if op == "augru":
        scores = net.add("linear", [name], (shape[0], 1), {"units": 1})
        inputs.append(net.add("sigmoid", [scores], (shape[0], 1)))
    inputs += net.lengths_of(name)
    states = (shape[0], units) if whole else (units,)
    if op == "lstm" and net.draw.random() < 0.3:
        outputs = [f"n{len(net.layers)}_{i}" for i in range(2)]
        net.add(op, inputs, states, {**options, "memory": True}, outputs=outputs)
        net.shapes.update({outputs[0]: states, outputs[1]: (units,)})
        return
    net.add(op, inputs, states, options)


@rule(axes=2)
def attention(net, name, shape):
    queries = net.alike(lambda s: len(s) == 2 and s[1] == shape[1])
    options = {"heads": net.draw.choice([h for h in (1, 2) if shape[1] % h == 0]),
               **net.draw.choice(({}, {"dropout": 0.2}, {"causal": True}, {"scale": 0.3}))}
    net.add("attention", [queries, name, name, *net.lengths_of(name)], net.shapes[queries], options)


@rule(axes=2)
def matmul(net, name, shape):
    other = net.alike(lambda s: len(s) == 2 and s[1] == shape[1])
    net.add("matmul", [name, other], (shape[0], net.shapes[other][0]), {"transB": True, "alpha": 0.5})


@rule()
def bilinear(net, name, shape):
    other = net.alike(lambda s: s[:-1] == shape[:-1])
    net.add("bilinear", [name, other], (*shape[:-1], 3), {"units": 3, "bias": net.draw.random() < 0.5})


@rule(axes=2, times=2)
def interaction(net, name, shape):
    """What models of click data do with the vectors of fields."""
    fields, dim = shape
    pairs = fields * (fields - 1) // 2
    choices = [("fm", (1,), {}), ("fm", (dim,), {"sum": False})]
    if fields > 1:
        choices += [("field_pairs", (pairs, dim), {}), ("dot_interaction", (pairs,), {}), ("dot_interaction", (pairs + fields,), {"self": True})]
        if dim % (fields - 1) == 0:
            choices.append(("ffm", (1,), {}))
    op, output, options = net.draw.choice(choices)
    net.add(op, [name], output, options)


def draw_layers(draw, inputs, lengths, outputs):
    """`inputs`: their shapes without the batch, by name; `lengths`: see Network; `outputs`: the widths of the tensors that losses read.
    The layers, and the names of those tensors. Of a single one the layer is the last."""
    net = Network(draw, inputs, lengths)
    wanted = draw.randrange(4, 15)
    while len(net.layers) < wanted:
        try:
            # What came last more often: networks are deep.
            draw.choice(RULES)(net, draw.choice(list(net.shapes)[-6:]))
        except TooLarge:
            pass
    ends = [name for name in net.shapes if name not in net.read]
    flat = [net.add("flatten", [name], (math.prod(net.shapes[name]),)) for name in ends]
    # Not by add(): all ends together may have more numbers than a layer.
    heads = [f"head{i}" for i in range(len(outputs))]
    return [*net.layers, *({"name": "all", "op": "concat", "inputs": flat, "options": {"axis": 1}} for _ in flat[1:2]),
            {"name": "bounded", "op": "tanh", "inputs": ["all" if len(flat) > 1 else flat[0]]},
            *({"name": head, "op": "linear", "inputs": ["bounded"], "options": {"units": width}} for head, width in zip(heads, outputs))], heads
