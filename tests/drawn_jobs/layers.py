"""Networks of `layers:` that nobody thought of: ops over each other's outputs, drawn by seed."""
import math
import pathlib

# Not drawn are ops that are not in ONNX, and those that need options, inputs or outputs that other ops here have not. Of functions, by
# the names of their files:
JUMP = ("ceil", "floor", "round", "step")  # the last bits of a float decide, which are not the same in two runtimes
NOT_FINITE = ("exp", "log", "pow", "sqrt")  # everywhere, or soon
OF_OPTIONS = ("clip",)
FUNCTIONS = pathlib.Path(__file__).resolve().parents[2] / "common" / "math" / "activation"
ALIKE = ("batch_norm", "bias", "dropout", "layer_norm", "prelu", "softmax", "stop_gradient",
         *sorted({file.stem for file in FUNCTIONS.glob("*.h")}.difference(JUMP, NOT_FINITE, OF_OPTIONS)))


# Each: (op, inputs, the output's shape without the batch, options), or None where it does not apply to that tensor.

def linear(draw, name, shapes):
    units = draw.choice((1, 2, 5, 16))
    return "linear", [name], (*shapes[name][:-1], units), {"units": units}


def combine(draw, name, shapes):
    other = draw.choice([n for n in shapes if shapes[n] == shapes[name]])
    return draw.choice(("add", "multiply", "subtract")), [name, other], shapes[name], {}


def concat(draw, name, shapes):
    shape = shapes[name]
    axis = draw.randrange(len(shape))
    fits = [n for n, s in shapes.items() if len(s) == len(shape) and all(i == axis or s[i] == shape[i] for i in range(len(s)))]
    others = [draw.choice(fits) for _ in range(draw.choice((1, 2)))]
    size = sum(shapes[n][axis] for n in (name, *others))
    return "concat", [name, *others], (*shape[:axis], size, *shape[axis + 1:]), {"axis": axis + 1}


def reduce(draw, name, shapes):
    shape = shapes[name]
    axis = draw.randrange(len(shape))
    keep = len(shape) == 1 or draw.random() < 0.5
    return (draw.choice(("reduce_sum", "reduce_mean", "reduce_max")), [name], (*shape[:axis], *([1] if keep else []), *shape[axis + 1:]),
            {"axes": [axis + 1], "keepdims": keep})


def cut(draw, name, shapes):
    shape = shapes[name]
    axis = draw.randrange(len(shape))
    start = draw.randrange(shape[axis])
    end = draw.randrange(start, shape[axis]) + 1
    return "slice", [name], (*shape[:axis], end - start, *shape[axis + 1:]), {"axis": axis + 1, "start": start, "end": end}


def gather(draw, name, shapes):
    shape = shapes[name]
    axis = draw.randrange(len(shape))
    indices = [draw.randrange(-shape[axis], shape[axis]) for _ in range(draw.randrange(1, 5))]
    return "gather", [name], (*shape[:axis], len(indices), *shape[axis + 1:]), {"axis": axis + 1, "indices": indices}


def transpose(draw, name, shapes):
    order = draw.sample(range(len(shapes[name])), len(shapes[name]))
    return "transpose", [name], tuple(shapes[name][i] for i in order), {"perm": [0, *(i + 1 for i in order)]}


def reshape(draw, name, shapes):
    numbers = math.prod(shapes[name])
    rows = draw.choice([n for n in range(1, numbers + 1) if numbers % n == 0])
    return "reshape", [name], (rows, numbers // rows), {"shape": [0, rows, -1]}


def recurrence(draw, name, shapes):
    if len(shapes[name]) != 2:
        return None
    units, whole = draw.choice((2, 5)), draw.random() < 0.5
    return draw.choice(("gru", "lstm")), [name], (shapes[name][0], units) if whole else (units,), {"units": units, "sequence": whole}


def attention(draw, name, shapes):
    if len(shapes[name]) != 2:
        return None
    queries = draw.choice([n for n, s in shapes.items() if len(s) == 2 and s[1] == shapes[name][1]])
    heads = draw.choice([h for h in (1, 2) if shapes[name][1] % h == 0])
    return "attention", [queries, name, name], shapes[queries], {"heads": heads}


def alike(draw, name, shapes):
    return draw.choice(ALIKE), [name], shapes[name], {}


RULES = (alike, alike, alike, linear, linear, combine, combine, concat, reduce, cut, gather, transpose, reshape, recurrence, attention)
MOST_NUMBERS = 600  # of a tensor


def draw_layers(draw, inputs):
    """`inputs`: their shapes without the batch, by name. The last layer is the output."""
    shapes, layers, read = dict(inputs), [], set()

    def add(op, names, shape, options):
        layers.append({"name": f"n{len(layers)}", "op": op, "inputs": names, "options": options})
        shapes[layers[-1]["name"]] = shape
        read.update(names)

    wanted = draw.randrange(4, 15)
    while len(layers) < wanted:
        # What came last more often: networks are deep.
        layer = draw.choice(RULES)(draw, draw.choice(list(shapes)[-6:]), shapes)
        if layer is not None and math.prod(layer[2]) <= MOST_NUMBERS:
            add(*layer)
    ends = [name for name in shapes if name not in read]
    for name in ends:
        add("flatten", [name], (math.prod(shapes[name]),), {})
    flat = [layer["name"] for layer in layers[-len(ends):]]
    if len(flat) > 1:
        add("concat", flat, (sum(shapes[name][0] for name in flat),), {"axis": 1})
    add("tanh", [layers[-1]["name"]], shapes[layers[-1]["name"]], {})
    add("linear", [layers[-1]["name"]], (1,), {"units": 1})
    return layers
