"""Networks of onnx.helper in the forms that exporters write, old and new, of dense [batch, 3] and vectors [batch, 4, 8].

They are read and give what onnxruntime gives; tests/onnx/read_test.py holds them. What is not read is in onnx_refused.py.
"""
import numpy
from onnx import TensorProto, helper, numpy_helper

import onnx_control_flow  # noqa: F401  adds its cases
import onnx_elementwise  # noqa: F401  adds its cases
import onnx_functions  # noqa: F401  adds its cases
import onnx_parameters  # noqa: F401  adds its cases
import onnx_places  # noqa: F401  adds its cases
import onnx_products  # noqa: F401  adds its cases
from onnx_network import CASES, DENSE, DIM, FIELDS, case

# Where the batch is, and what shares an axis with it.


@case()
def batch_last(n):
    last = n.Transpose(n.vectors, perm=[1, 2, 0])
    moved = n.Mul(n.Add(last, n.drawn(DIM, 1)), n.drawn(FIELDS, 1, 1))
    return n.Transpose(moved, perm=[2, 0, 1])


@case()
def batch_with_fields(n):
    rows = n.Reshape(n.vectors, n.ints(-1, DIM))
    wide = n.Tanh(n.Add(n.MatMul(rows, n.drawn(DIM, 6)), n.drawn(6)))
    return n.Reshape(wide, n.ints(-1, FIELDS, 6))


@case()
def batch_times_fields_as_a_number(n):
    rows = n.Concat(n.Mul(n.batch(), n.ints(FIELDS)), n.ints(DIM), axis=0)
    x = n.Gemm(n.Reshape(n.vectors, rows), n.drawn(6, DIM), n.drawn(6), transB=1, alpha=0.5, beta=2.0)
    return n.Reshape(x, n.Concat(n.Div(n.Mul(n.batch(), n.ints(FIELDS)), n.ints(FIELDS)), n.ints(FIELDS, 6), axis=0))


@case()
def fields_first(n):
    x = n.MatMul(n.Transpose(n.vectors, perm=[1, 0, 2]), n.drawn(DIM, 6))
    return n.Transpose(n.Softmax(x, axis=0), perm=[1, 2, 0])


@case(20)
def heads_beside_the_batch(n):
    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    three = n.Reshape(n.Add(n.MatMul(first, n.drawn(DIM, 3 * DIM)), n.drawn(3 * DIM)), n.ints(FIELDS, -1, 3, DIM))
    apart = n.Squeeze(n.Transpose(n.Unsqueeze(three, n.ints(0)), perm=[3, 1, 2, 0, 4]), n.ints(-2))
    heads = [n.Transpose(n.Reshape(n.Gather(apart, n.int(k), axis=0), n.ints(FIELDS, -1, 4)), perm=[1, 0, 2]) for k in range(3)]
    q, k, v = (n.Reshape(x, n.ints(-1, 2, FIELDS, 4)) for x in heads)
    weights = n.Softmax(n.MatMul(n.Mul(q, n.float(0.5)), n.Transpose(k, perm=[0, 1, 3, 2])), axis=-1)
    joined = n.Reshape(n.Transpose(n.MatMul(weights, v), perm=[2, 0, 1, 3]), n.ints(-1, DIM))
    out = n.Reshape(n.Gemm(joined, n.drawn(DIM, DIM), n.drawn(DIM), transB=1), n.ints(FIELDS, -1, DIM))
    return n.Transpose(out, perm=[1, 0, 2])


@case()
def heads_within_the_batch_axis(n):
    heads = n.Transpose(n.Reshape(n.vectors, n.ints(0, FIELDS, 2, 4)), perm=[0, 2, 1, 3])
    folded = n.Reshape(heads, n.ints(-1, FIELDS, 4))
    scores = n.Softmax(n.MatMul(folded, n.Transpose(folded, perm=[0, 2, 1])), axis=2)
    return n.Reshape(n.MatMul(scores, folded), n.ints(-1, 2, FIELDS, 4))


@case()
def merged_batches_meet(n):
    turned = n.Transpose(n.MatMul(n.Transpose(n.vectors, perm=[0, 2, 1]), n.drawn(FIELDS, FIELDS)), perm=[0, 2, 1])
    behind = n.Mul(n.Reshape(n.vectors, n.ints(-1, DIM)), n.Reshape(turned, n.ints(-1, DIM)))
    before = n.Add(n.Reshape(n.Transpose(n.vectors, perm=[1, 0, 2]), n.ints(-1, DIM)),
                   n.Mul(n.Reshape(n.Transpose(turned, perm=[1, 0, 2]), n.ints(-1, DIM)), n.drawn(DIM)))
    second = n.Transpose(n.Reshape(before, n.ints(FIELDS, -1, DIM)), perm=[1, 0, 2])
    halves = lambda x: n.Reshape(n.Transpose(n.Reshape(x, n.ints(0, FIELDS, 2, 4)), perm=[1, 0, 2, 3]), n.ints(-1, 4))
    around = n.Reshape(n.Sub(halves(n.vectors), halves(n.Exp(turned))), n.ints(FIELDS, -1, DIM))
    return n.Concat(n.Reshape(behind, n.ints(-1, FIELDS, DIM)), second, n.Transpose(around, perm=[1, 0, 2]), axis=1)


@case()
def cuts_that_do_not_divide(n):
    x = n.Relu(n.Transpose(n.Reshape(n.flat(), n.ints(-1, 5, 7)), perm=[0, 2, 1]))
    return n.Mul(n.Reshape(x, n.ints(0, 5, 7)), n.drawn(5, 7))


@case()
def elements_by_known_indices(n):
    picks = n.Expand(n.numbers(numpy.array([[[2], [-4], [0]]], dtype=numpy.int64)), n.Concat(n.batch(), n.ints(3, DIM), axis=0))
    return n.GatherElements(n.vectors, picks, axis=1)


@case()
def axes_of_one(n):
    x = n.Unsqueeze(n.Unsqueeze(n.dense, n.ints(-1)), n.ints(1))
    x = n.Mul(x, n.drawn(1, 1, DENSE, 2))
    return n.Squeeze(n.ReduceSum(x, n.ints(3), keepdims=1), n.ints(1, -1))


@case()
def squeezed_without_axes(n):
    return n.Squeeze(n.Unsqueeze(n.Unsqueeze(n.dense, n.ints(2)), n.ints(1)))


@case()
def flattened_behind_the_fields(n):
    x = n.MatMul(n.Flatten(n.vectors, axis=2), n.drawn(DIM, 3))
    return n.Reshape(x, n.ints(-1, FIELDS, 3))


@case()
def one_number_a_sample(n):
    first = n.ReduceSum(n.vectors, n.ints(1, 2), keepdims=0)
    second = n.Reshape(n.MatMul(n.dense, n.drawn(DENSE, 1)), n.ints(-1))
    return n.Unsqueeze(n.Mul(n.Add(first, second), n.float(1.5)), n.ints(1))


@case()
def meets_of_other_ranks(n):
    x = n.Add(n.Unsqueeze(n.dense, n.ints(2)), n.drawn(1, DENSE, 5))
    y = n.Sub(n.Unsqueeze(n.vectors, n.ints(1)), n.drawn(3, 1, DIM))
    return n.Concat(n.Flatten(x), n.Flatten(n.Div(y, n.float(3))), axis=1)


# Parts and repeats.


@case()
def gathers(n):
    one = n.Gather(n.vectors, n.int(-1), axis=1)
    some = n.Gather(n.vectors, n.ints(3, 0, 0), axis=2)
    table = n.Gather(n.vectors, n.numbers(numpy.array([[0, 1], [3, 2]], dtype=numpy.int64)), axis=1)
    return n.Concat(one, n.Flatten(some), n.Flatten(table), axis=1)


@case()
def gathers_of_pairs(n):
    i, j = numpy.triu_indices(FIELDS, 1)
    products = n.MatMul(n.vectors, n.Transpose(n.vectors, perm=[0, 2, 1]))
    pairs = n.GatherND(n.Transpose(products, perm=[1, 2, 0]), n.numbers(numpy.stack([i, j], 1)))
    return n.Transpose(pairs, perm=[1, 0])


@case()
def slices(n):
    step = n.Slice(n.vectors, n.ints(1), n.ints(2**31 - 1), n.ints(2), n.ints(3))
    back = n.Slice(n.vectors, n.ints(-1), n.ints(-(2**63)), n.ints(1), n.ints(-1))
    part = n.Slice(n.vectors, n.ints(0, 1, -3), n.ints(2**63 - 1, 3, -1), n.ints(0, 1, 2))
    return n.Concat(*[n.Flatten(x) for x in (step, back, part)], axis=1)


@case(18)
def uneven_split(n):
    first, second, third = n.Split(n.vectors, outputs=3, axis=2, num_outputs=3)
    return n.Concat(n.Flatten(n.Mul(first, second)), n.Flatten(third), axis=1)


@case()
def repeats(n):
    tiled = n.Tile(n.vectors, n.ints(1, 2, 1))
    wide = n.Expand(n.Unsqueeze(n.dense, n.ints(1)), n.ints(1, FIELDS, DENSE))
    return n.Concat(n.Flatten(tiled), n.Flatten(wide), axis=1)


@case()
def constants_for_the_batch(n):
    zeros = n.ConstantOfShape(n.Concat(n.batch(), n.ints(2), axis=0), value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.25]))
    token = n.Expand(n.drawn(1, 1, DIM), n.Concat(n.batch(), n.ints(1, DIM), axis=0))
    rows = n.MatMul(n.Concat(token, n.vectors, axis=1), n.drawn(DIM, 3))
    return n.Concat(zeros, n.Flatten(rows), n.dense, axis=1)


@case()
def one_number_for_the_batch_in_other_shapes(n):
    """As views of torch.zeros and torch.ones, across the batch's axis and back."""
    def filled(value, *dims):
        return n.ConstantOfShape(n.Concat(*dims, axis=0), value=helper.make_tensor("v", TensorProto.FLOAT, [1], [value]))

    rows = n.Reshape(filled(0.25, n.batch(), n.ints(FIELDS, DIM)), n.Concat(n.Mul(n.batch(), n.ints(FIELDS)), n.ints(DIM), axis=0))
    back = n.Reshape(rows, n.ints(-1, FIELDS, DIM))
    turned = n.Reshape(filled(0.5, n.ints(2), n.batch(), n.ints(DIM // 2)), n.ints(-1, 1, DIM))
    whole = n.Reshape(n.Expand(n.ints(3), n.Concat(n.ints(DIM), n.batch(), axis=0)), n.ints(-1, 1, DIM))
    state = n.Reshape(filled(0.5, n.batch(), n.ints(1, 6)), n.ints(1, -1, 6))
    last = n.GRU(n.Transpose(n.vectors, perm=[1, 0, 2]), n.drawn(1, 18, DIM), n.drawn(1, 18, 6), "", "", state, outputs=2, hidden_size=6,
                 linear_before_reset=1)[1]
    parts = n.Mul(n.Add(n.vectors, back), turned), n.Div(n.vectors, n.Cast(whole, to=TensorProto.FLOAT))
    return n.Concat(n.Flatten(n.Add(*parts)), n.Flatten(n.Transpose(last, perm=[1, 0, 2])), axis=1)


@case()
def constants_for_the_rows_of_the_batch(n):
    """As PyTorch's attention makes one of a mask: one number for the batch and the heads, which share an axis."""
    rows = n.Reshape(n.vectors, n.ints(-1, DIM))
    ones = n.ConstantOfShape(n.Shape(rows), value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]))
    beside = n.Expand(n.drawn(1, 2), n.Concat(n.Mul(n.batch(), n.ints(FIELDS)), n.ints(2), axis=0))
    return n.Reshape(n.Concat(n.Where(n.Greater(rows, n.float(0)), n.Tanh(rows), ones), beside, axis=1), n.ints(-1, FIELDS, DIM + 2))


@case()
def copies_for_the_batch(n):
    """As torch.repeat has a token, and places that tell rows of a table."""
    once = n.Tile(n.Tanh(n.drawn(1, 2, DIM)), n.Concat(n.batch(), n.ints(1, 1), axis=0))
    table, line, one = n.drawn(FIELDS, DIM), n.ints(*range(FIELDS)), n.ints(1)
    copies = n.Tile(n.Unsqueeze(line, n.ints(0)), n.Concat(n.batch(), one, axis=0))
    placed = n.Add(n.vectors, n.Gather(table, copies, axis=0))
    expanded = n.Gather(n.Tanh(table), n.Expand(n.Unsqueeze(line, n.ints(1)), n.Concat(one, n.batch(), axis=0)), axis=0)
    known = n.Gather(n.Constant(value=numpy_helper.from_array(numpy.linspace(0, 1, 6, dtype=numpy.float32))), copies, axis=0)
    weighed = n.Mul(n.vectors, n.Unsqueeze(n.Tile(known, n.ints(1, 1)), n.ints(2)))
    alike = n.Gather(table, n.Expand(n.ints(2), n.batch()), axis=0)
    return n.Concat(once, placed, n.Transpose(expanded, perm=[1, 0, 2]), weighed, n.Unsqueeze(alike, one), axis=1)


@case()
def triangles_of_samples(n):
    products = n.MatMul(n.vectors, n.Transpose(n.vectors, perm=[0, 2, 1]))
    places = n.Tile(n.ints(1), n.ints(3))
    below = n.Trilu(n.Transpose(products, perm=[0, 2, 1]), n.int(-1), upper=0)
    wide = n.Trilu(n.Reshape(n.vectors, n.ints(-1, 2, 2, DIM)), n.int(2))
    signs = n.Trilu(n.Cast(n.Greater(products, n.float(0)), to=TensorProto.INT64), upper=0)
    whole = n.Mul(n.Cast(n.Trilu(n.Expand(places, n.ints(3, 3))), to=TensorProto.FLOAT), n.Unsqueeze(n.dense, n.ints(1)))
    return n.Concat(*[n.Flatten(part) for part in (below, wide, n.Mul(products, n.Cast(signs, to=TensorProto.FLOAT)), whole)], axis=1)


@case()
def arithmetic_of_constants(n):
    width = n.Cast(n.Gather(n.Shape(n.vectors), n.int(2)), to=TensorProto.FLOAT)
    half = n.Constant(value_floats=[0.5, 2.0, 1.0])
    scale = n.Div(half, n.Sqrt(n.Add(width, n.float(1))))
    return n.Mul(n.dense, n.Reciprocal(n.Exp(n.Neg(scale))))


@case()
def tables_of_constants(n):
    pads = n.Reshape(n.numbers(numpy.array([2, 0, 0, 1, 0, 0], dtype=numpy.int64)), n.ints(-1, 2))
    turned = n.Transpose(n.Slice(pads, n.ints(-1), n.ints(-(2**63)), n.ints(0), n.ints(-1)), perm=[1, 0])
    padded = n.Pad(n.vectors, n.Cast(n.Reshape(turned, n.ints(-1)), to=TensorProto.INT64), n.float(0))
    below = n.Trilu(n.Expand(n.float(1), n.ints(FIELDS, FIELDS)), upper=0)
    row = n.Gather(n.numbers(numpy.array([[3, 3], [2, 1]], dtype=numpy.int64)), n.int(1), axis=0)
    size = n.Max(n.Gather(n.Shape(n.vectors), n.int(1)), n.int(1))
    return n.Concat(n.Gather(n.dense, row, axis=1), n.Flatten(padded), n.Flatten(n.MatMul(n.vectors, n.Transpose(n.Mul(n.vectors, n.Gather(below, n.ints(0), axis=1)), perm=[0, 2, 1]))),
                    n.Flatten(n.Reshape(n.vectors, n.Concat(n.ints(-1), n.Unsqueeze(size, n.ints(0)), n.ints(DIM), axis=0))), axis=1)


@case()
def running_sums(n):
    return n.CumSum(n.vectors, n.int(1))


@case(18)
def padded(n):
    first = n.Pad(n.vectors, n.ints(0, 1, 0, 0, 0, 2), n.float(0.5))
    return n.Concat(n.Flatten(first), n.Flatten(n.Pad(n.vectors, n.ints(1, 1), "", n.ints(2))), axis=1)


# Over whole axes.


def reductions(op):
    @case(17)
    def each(n):
        axes = lambda *a: {"axes": list(a)} if op != "ReduceSum" else {}
        over = lambda x, keep, *a: getattr(n, op)(x, *([n.ints(*a)] if op == "ReduceSum" else []), keepdims=keep, **axes(*a))
        x = n.Abs(n.vectors) if op == "ReduceLogSum" else n.vectors
        four = n.Reshape(x, n.ints(0, FIELDS, 2, 4))
        parts = [over(x, 0, 1), over(x, 1, -1), over(four, 0, 1, 3) if op != "ReduceProd" else over(four, 0, 2),
                 over(n.Transpose(x, perm=[2, 0, 1]), 0, 0)]
        return n.Concat(*[n.Flatten(p) for p in parts], axis=1)

    CASES[-1] = (op, 17, each)


for reduction in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
                  "ReduceSum", "ReduceSumSquare"):
    reductions(reduction)


@case()
def softmaxes(n):
    far = n.Mul(n.vectors, n.float(200))
    return n.Concat(n.Flatten(n.Softmax(n.vectors, axis=1)), n.Flatten(n.Mul(n.LogSoftmax(far, axis=-1), n.float(0.01))), axis=1)


@case(12)
def softmax_over_all_that_follows(n):
    return n.Concat(n.Flatten(n.Softmax(n.vectors, axis=1)), n.Flatten(n.LogSoftmax(n.vectors, axis=2)), axis=1)


@case()
def normalizations(n):
    deviation = n.numbers(numpy.linspace(0.5, 2, FIELDS).astype(numpy.float32))
    batch = n.BatchNormalization(n.vectors, n.drawn(FIELDS), n.drawn(FIELDS), n.drawn(FIELDS), deviation)
    layer = n.LayerNormalization(n.vectors, n.drawn(FIELDS, DIM), n.drawn(FIELDS, DIM), axis=1)
    last = n.LayerNormalization(n.Transpose(n.vectors, perm=[1, 0, 2]), n.drawn(DIM), axis=-1)
    instance = n.InstanceNormalization(n.vectors, n.drawn(FIELDS), n.drawn(FIELDS))
    return n.Concat(*[n.Flatten(x) for x in (batch, layer, n.Transpose(last, perm=[1, 0, 2]), instance)], axis=1)


@case()
def weights_that_are_alike(n):  # as exporters merge them, which makes nobody share them
    ones, zeros = n.numbers(numpy.ones(DIM, numpy.float32)), n.numbers(numpy.zeros(DIM, numpy.float32))
    last = n.Transpose(n.vectors, perm=[0, 2, 1])
    return n.LayerNormalization(n.Transpose(n.BatchNormalization(last, ones, zeros, zeros, ones), perm=[0, 2, 1]), ones, zeros)


@case()
def pools(n):
    return n.Concat(n.Flatten(n.GlobalMaxPool(n.vectors)), n.Flatten(n.GlobalAveragePool(n.vectors)),
                    n.Flatten(n.MaxPool(n.vectors, kernel_shape=[DIM])), n.Flatten(n.AveragePool(n.vectors, kernel_shape=[DIM])), axis=1)


# Products.


@case()
def matrices_before_vectors(n):
    return n.MatMul(n.drawn(5, FIELDS), n.vectors)


@case()
def vectors_of_weights(n):
    first = n.MatMul(n.Transpose(n.vectors, perm=[1, 0, 2]), n.drawn(DIM))
    return n.Concat(n.Transpose(first, perm=[1, 0]), n.Unsqueeze(n.MatMul(n.dense, n.drawn(DENSE)), n.ints(1)), axis=1)


@case()
def a_matrix_a_head(n):
    heads = n.Unsqueeze(n.Reshape(n.flat(), n.ints(-1, 5, 7)), n.ints(2))
    return n.MatMul(heads, n.drawn(5, 7, 3))


@case()
def a_constant_for_the_batch_times_a_matrix(n):
    ones = n.ConstantOfShape(n.Concat(n.batch(), n.ints(2), axis=0), value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]))
    return n.Mul(n.MatMul(ones, n.drawn(2, DENSE)), n.dense)


@case()
def a_matrix_a_field(n):
    x = n.Add(n.MatMul(n.Transpose(n.vectors, perm=[1, 0, 2]), n.drawn(FIELDS, DIM, 3)), n.drawn(FIELDS, 1, 3))
    return n.Transpose(x, perm=[1, 0, 2])


@case()
def shared_weights(n):
    weights, bias = n.drawn(6, DIM), n.drawn(6)
    towers = [n.Relu(n.Gemm(n.Gather(n.vectors, n.int(k), axis=1), weights, bias, transB=1)) for k in range(2)]
    return n.Mul(*towers)


@case()
def convolutions(n):
    x = n.Conv(n.vectors, n.drawn(5, FIELDS, 3), n.drawn(5), pads=[1, 1])
    y = n.Conv(n.vectors, n.drawn(2, FIELDS, 2), pads=[1, 0])
    z = n.Conv(n.vectors, n.drawn(3, FIELDS, 1))
    image = n.Unsqueeze(n.vectors, n.ints(2))
    upper = n.Conv(image, n.drawn(2, FIELDS, 1, 4), auto_pad="SAME_UPPER")
    lower = n.Conv(n.Transpose(image, perm=[0, 1, 3, 2]), n.drawn(2, FIELDS, 4, 1), auto_pad="SAME_LOWER")
    return n.Concat(*[n.Flatten(t) for t in (x, y, z, upper, lower)], axis=1)


@case()
def convolutions_with_strides(n):
    image = n.Reshape(n.vectors, n.ints(0, 2, FIELDS, 4))
    parts = [n.Conv(n.vectors, n.drawn(5, FIELDS, 2), n.drawn(5), strides=[3]),
             n.Conv(n.vectors, n.drawn(3, FIELDS, 3), dilations=[2], pads=[1, 2]),
             n.Conv(n.vectors, n.drawn(6, 2, 3), n.drawn(6), group=2, auto_pad="SAME_LOWER", strides=[2]),
             n.Conv(n.vectors, n.drawn(FIELDS, 1, 3), group=FIELDS, pads=[1, 1]),
             n.Conv(image, n.drawn(3, 2, 3, 2), n.drawn(3), pads=[1, 0, 1, 1]),
             n.Conv(image, n.drawn(2, 2, 2, 3), strides=[2, 1], dilations=[1, 1], auto_pad="SAME_UPPER")]
    return n.Concat(*[n.Flatten(t) for t in parts], axis=1)


@case()
def windows_that_are_pooled(n):
    image = n.Reshape(n.vectors, n.ints(0, 2, FIELDS, 4))
    parts = [n.MaxPool(n.vectors, kernel_shape=[2], strides=[2]), n.MaxPool(n.vectors, kernel_shape=[3], pads=[1, 1]),
             n.AveragePool(n.vectors, kernel_shape=[4], strides=[2]), n.MaxPool(image, kernel_shape=[2, 1], strides=[2, 1]),
             n.AveragePool(image, kernel_shape=[3, 2], pads=[1, 1, 1, 0], count_include_pad=1),
             n.MaxPool(n.vectors, kernel_shape=[3], auto_pad="SAME_UPPER", strides=[2]),
             n.MaxPool(n.Transpose(n.vectors, perm=[0, 2, 1]), kernel_shape=[2], dilations=[2]),
             n.MaxPool(n.Reshape(n.Concat(*[n.vectors] * 10, axis=1), n.ints(0, 1, -1)), kernel_shape=[320]),
             n.AveragePool(image, kernel_shape=[FIELDS, 4])]
    return n.Concat(*[n.Flatten(t) for t in parts], axis=1)


@case()
def recurrence(n):
    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    start = n.ConstantOfShape(n.Concat(n.ints(1), n.batch(), n.ints(6), axis=0))
    weights = [n.drawn(1, 18, DIM), n.drawn(1, 18, 6)]
    all_, last = n.GRU(first, *weights, n.drawn(1, 36), "", start, outputs=2, hidden_size=6, linear_before_reset=1)
    (end,) = [n.GRU(first, n.drawn(1, 18, DIM), n.drawn(1, 18, 6), outputs=2, hidden_size=6, linear_before_reset=1)[1]]
    states = n.Transpose(n.Squeeze(all_, n.ints(1)), perm=[1, 0, 2])
    return n.Concat(n.Flatten(states), n.Squeeze(last, n.ints(0)), n.Squeeze(end, n.ints(0)), axis=1)


@case()
def recurrence_with_a_memory(n):
    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    start = n.ConstantOfShape(n.Concat(n.ints(1), n.batch(), n.ints(6), axis=0))
    all_, last, memory = n.LSTM(first, n.drawn(1, 24, DIM), n.drawn(1, 24, 6), n.drawn(1, 48), "", start, start, outputs=3, hidden_size=6)
    end = n.LSTM(first, n.drawn(1, 24, DIM), n.drawn(1, 24, 6), outputs=3, hidden_size=6, activations=["Sigmoid", "Tanh", "Tanh"])[1]
    states = n.Transpose(n.Squeeze(all_, n.ints(1)), perm=[1, 0, 2])
    return n.Concat(n.Flatten(states), *[n.Squeeze(t, n.ints(0)) for t in (last, memory, end)], axis=1)


@case()
def recurrence_in_two_directions(n):
    """As PyTorch writes it, two axes merged; one layer is there twice; another goes back alone."""
    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    weights = [n.drawn(2, 18, DIM), n.drawn(2, 18, 6), n.drawn(2, 36)]
    form = {"hidden_size": 6, "linear_before_reset": 1, "direction": "bidirectional"}
    all_, last = n.GRU(first, *weights, outputs=2, **form, activations=["Sigmoid", "Tanh"] * 2)
    again = n.GRU(n.Mul(first, n.float(0.5)), *weights, outputs=2, **form)[0]
    back = n.GRU(first, n.drawn(1, 9, DIM), n.drawn(1, 9, 3), outputs=2, hidden_size=3, linear_before_reset=1, direction="reverse")
    states = n.Reshape(n.Transpose(all_, perm=[0, 2, 1, 3]), n.ints(0, 0, -1))
    parts = [n.Transpose(states, perm=[1, 0, 2]), *[n.Transpose(t, perm=[1, 0, 2]) for t in (last, back[1])], n.Transpose(again, perm=[2, 0, 1, 3]),
             n.Transpose(n.Squeeze(back[0], n.ints(1)), perm=[1, 0, 2])]
    return n.Concat(*[n.Flatten(p) for p in parts], axis=1)


@case()
def memory_in_two_directions(n):
    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    start = n.ConstantOfShape(n.Concat(n.ints(2), n.batch(), n.ints(6), axis=0))
    all_, last, memory = n.LSTM(first, n.drawn(2, 24, DIM), n.drawn(2, 24, 6), n.drawn(2, 48), "", start, start, outputs=3, hidden_size=6,
                                direction="bidirectional")
    back = n.LSTM(first, n.drawn(1, 12, DIM), n.drawn(1, 12, 3), outputs=1, hidden_size=3, direction="reverse")
    parts = [n.Transpose(t, perm=[2, 0, 1, 3]) for t in (all_, back)] + [n.Transpose(t, perm=[1, 0, 2]) for t in (last, memory)]
    return n.Concat(*[n.Flatten(p) for p in parts], axis=1)


def states_first(n, *widths):
    """[1, batch, width] each, computed of the samples."""
    return [n.Unsqueeze(n.Tanh(n.MatMul(n.dense, n.drawn(DENSE, width))), n.ints(0)) for width in widths]


@case()
def recurrences_with_a_first_state(n):
    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    start, hidden, memory = states_first(n, 6, 5, 5)
    gru = n.GRU(first, n.drawn(1, 18, DIM), n.drawn(1, 18, 6), n.drawn(1, 36), "", start, outputs=2, hidden_size=6, linear_before_reset=1)
    lstm = n.LSTM(first, n.drawn(1, 20, DIM), n.drawn(1, 20, 5), n.drawn(1, 40), "", hidden, memory, outputs=3, hidden_size=5)
    both = n.GRU(first, n.drawn(2, 18, DIM), n.drawn(2, 18, 6), "", "", n.Concat(start, start, axis=0), outputs=2, hidden_size=6,
                 linear_before_reset=1, direction="bidirectional")
    parts = [n.Transpose(t, perm=[2, 0, 1, 3]) for t in (gru[0], lstm[0], both[0])]
    parts += [n.Transpose(t, perm=[1, 0, 2]) for t in (gru[1], lstm[1], lstm[2], both[1])]
    return n.Concat(*[n.Flatten(p) for p in parts], axis=1)


@case()
def recurrence_that_resets_first(n):
    """As ONNX has it unless told otherwise; with lengths that are those of all."""
    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    lengths = n.Expand(n.numbers(numpy.array(FIELDS, dtype=numpy.int32)), n.batch())
    all_, last = n.GRU(first, n.drawn(1, 18, DIM), n.drawn(1, 18, 6), n.drawn(1, 36), lengths, outputs=2, hidden_size=6)
    back = n.GRU(first, n.drawn(1, 9, DIM), n.drawn(1, 9, 3), n.numbers(numpy.zeros((1, 18), dtype=numpy.float32)), outputs=1, hidden_size=3,
                 direction="reverse")
    parts = [n.Transpose(t, perm=[2, 0, 1, 3]) for t in (all_, back)] + [n.Transpose(last, perm=[1, 0, 2])]
    return n.Concat(*[n.Flatten(p) for p in parts], axis=1)


@case()
def simple_recurrences(n):
    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    all_, last = n.RNN(first, n.drawn(1, 6, DIM), n.drawn(1, 6, 6), n.drawn(1, 12), "", states_first(n, 6)[0], outputs=2, hidden_size=6)
    both = n.RNN(first, n.drawn(2, 5, DIM), n.drawn(2, 5, 5), outputs=2, hidden_size=5, direction="bidirectional",
                 activations=["Relu", "Sigmoid"])
    parts = [n.Transpose(t, perm=[2, 0, 1, 3]) for t in (all_, both[0])] + [n.Transpose(t, perm=[1, 0, 2]) for t in (last, both[1])]
    return n.Concat(*[n.Flatten(p) for p in parts], axis=1)


@case(opset=23)
def attention(n):
    """Heads on an axis of their own, and side by side; a mask of constants; another scale."""
    vectors = lambda width: n.MatMul(n.vectors, n.drawn(DIM, width))
    split = lambda width: n.Transpose(n.Reshape(vectors(2 * width), n.ints(0, FIELDS, 2, width)), perm=[0, 2, 1, 3])
    behind = numpy.triu(numpy.full((FIELDS, FIELDS), -numpy.inf, dtype=numpy.float32), 1)
    truths = numpy.tril(numpy.ones((FIELDS, FIELDS), dtype=bool))
    heads = [n.Attention(split(3), split(3), split(5)), n.Attention(split(2), split(2), split(2), n.numbers(behind)),
             n.Attention(split(2), split(2), split(2), n.numbers(truths), scale=0.25)]
    side_by_side = n.Attention(vectors(6), vectors(6), vectors(9), q_num_heads=3, kv_num_heads=3, is_causal=1)
    return n.Concat(*[n.Flatten(n.Transpose(t, perm=[0, 2, 1, 3])) for t in heads], n.Flatten(side_by_side), axis=1)


@case(opset=23)
def attention_with_other_masks(n):
    """By samples, of numbers that are trained, of fewer heads of keys; which ours, one op, has not."""
    vectors = lambda width: n.MatMul(n.vectors, n.drawn(DIM, width))
    split = lambda heads, width: n.Transpose(n.Reshape(vectors(heads * width), n.ints(0, FIELDS, heads, width)), perm=[0, 2, 1, 3])
    above = n.Greater(n.ReduceMean(n.vectors, n.ints(2), keepdims=0), n.float(0))
    shown = n.Or(n.Unsqueeze(above, n.ints(1, 2)), n.numbers(numpy.eye(FIELDS, dtype=bool)))
    heads = [n.Attention(split(2, 3), split(2, 3), split(2, 5), shown, is_causal=1),
             n.Attention(split(2, 2), split(2, 2), split(2, 2), n.drawn(FIELDS, FIELDS), scale=0.25),
             n.Attention(split(4, 2), split(2, 2), split(2, 3), is_causal=1)]
    side_by_side = n.Attention(vectors(8), vectors(4), vectors(6), n.drawn(4, FIELDS, FIELDS), q_num_heads=4, kv_num_heads=2)
    return n.Concat(*[n.Flatten(n.Transpose(t, perm=[0, 2, 1, 3])) for t in heads], n.Flatten(side_by_side), axis=1)


@case(opset=24)
def newest_ops(n):
    groups = n.GroupNormalization(n.vectors, n.drawn(FIELDS), n.drawn(FIELDS), num_groups=2, epsilon=0.01)
    square = n.Reshape(n.vectors, n.ints(0, FIELDS, 2, 4))
    parts = [groups, n.GroupNormalization(square, n.drawn(FIELDS), n.drawn(FIELDS), num_groups=1),
             n.RMSNormalization(n.vectors, n.drawn(DIM)), n.RMSNormalization(square, n.drawn(2, 4), axis=2, epsilon=0.1),
             n.Swish(n.vectors), n.Swish(n.dense, alpha=0.5)]
    return n.Concat(*[n.Flatten(p) for p in parts], axis=1)


@case()
def sizes_multiplied(n):
    rows = n.Reshape(n.ReduceProd(n.Slice(n.Shape(n.vectors), n.ints(0), n.ints(2)), keepdims=0), n.ints(-1))
    x = n.MatMul(n.Reshape(n.vectors, n.Concat(rows, n.ints(DIM), axis=0)), n.drawn(DIM, 3))
    return n.Reshape(x, n.ints(-1, FIELDS, 3))


@case()
def known_numbers(n):
    """What is computed of numbers of the file alone, and of the batch's size."""
    like = n.Expand(n.numbers(numpy.array(True)), n.Shape(n.vectors))
    causal = n.numbers(numpy.tril(numpy.ones((1, FIELDS, DIM), dtype=bool)))
    mask = n.Cast(n.Not(n.And(like, causal)), to=TensorProto.FLOAT)
    places = n.numbers(numpy.array([[0, 2], [3, -1]]))
    chosen = n.MatMul(n.Reshape(n.OneHot(places, n.int(FIELDS), n.numbers(numpy.array([-0.5, 1], dtype=numpy.float32))), n.ints(4, FIELDS)),
                      n.vectors)
    across = n.OneHot(n.ints(1, 0), n.int(DIM), n.numbers(numpy.array([0.0, 2.0], dtype=numpy.float32)), axis=0)
    corner = n.MatMul(n.vectors, n.EyeLike(n.numbers(numpy.zeros((DIM, 3), dtype=numpy.float32)), k=-2))
    whole = n.Cast(n.Mul(n.float(2.7), n.float(1)), to=TensorProto.INT64)
    joined = n.Concat(n.Expand(n.float(0.5), n.Concat(n.batch(), n.ints(1, DIM), axis=0)),
                      n.Expand(n.float(2), n.Concat(n.batch(), n.ints(FIELDS - 1, DIM), axis=0)), axis=1)
    rows = n.Concat(*[n.Gather(n.vectors, part, axis=1) for part in n.Split(n.ints(3, 0, 1), n.ints(1, 2), outputs=2)], axis=1)
    parts = [rows, n.Mul(n.vectors, mask), chosen, n.Mul(n.MatMul(n.vectors, across), n.Cast(n.Size(n.numbers(numpy.zeros((2, 2), dtype=numpy.float32))), to=1)),
             corner, n.Gather(n.vectors, whole, axis=1), n.Mul(n.vectors, joined)]
    return n.Concat(*[n.Flatten(p) for p in parts], axis=1)


@case()
def numbers_of_the_code(n):
    """What exporters name so is trained by nobody, and may be repeated along any axis."""
    y = n.vectors
    for name in ("val_3", "p2o.pd_op.full.2.0"):
        n.constants.append(helper.make_tensor(name, TensorProto.FLOAT, [1], [0.7]))
        y = n.Concat(y, n.Expand(name, n.Concat(n.batch(), n.ints(1, DIM), axis=0)), axis=1)
    return n.Sin(n.MatMul(y, n.drawn(DIM, 3)))


@case()
def turned_around(n):
    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    shape = n.Shape(first)
    lengths = n.Expand(n.Gather(shape, n.ints(0)), n.Gather(shape, n.ints(1)))
    return n.Mul(n.vectors, n.Transpose(n.ReverseSequence(first, lengths, time_axis=0, batch_axis=1), perm=[1, 0, 2]))


@case()
def logarithms_of_sums(n):
    """As Keras writes it: the largest number is taken out where it is one."""
    most = n.ReduceMax(n.vectors, axes=[1], keepdims=1)
    most = n.Where(n.Or(n.IsInf(most), n.IsNaN(most)), n.float(0), most)
    return n.Add(n.Log(n.ReduceSum(n.Exp(n.Sub(n.vectors, most)), n.ints(1))), most)


@case()
def products_and_remainders_of_known_numbers(n):
    x, y, rows = n.ints(-7, 7, -4), n.ints(3, -3, 3), n.numbers(numpy.array([[1, FIELDS], [2, DIM // 2]], dtype=numpy.int64))
    flat = n.Reshape(n.vectors, n.Concat(n.ints(-1), n.Reshape(n.ReduceProd(rows), n.ints(1)), axis=0))
    known = [n.Mod(x, y), n.Mod(x, y, fmod=1), n.Reshape(n.ReduceProd(x, axes=[-1]), n.ints(1))]
    return n.Concat(flat, *[n.Mul(n.dense, n.Cast(k, to=TensorProto.FLOAT)) for k in known], axis=1)
