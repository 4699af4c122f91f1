"""Networks that rank, choose or replace places, also by numbers that samples compute; cases of onnx_forms.py."""
import numpy
from onnx import TensorProto, helper, numpy_helper

from onnx_network import BATCH, DENSE, DIM, FIELDS, PLACES, case


def scores(n):
    """[batch, PLACES], of the sequence with the first field."""
    return n.ReduceSum(n.Mul(n.history, n.Slice(n.vectors, n.ints(0), n.ints(1), n.ints(1))), n.ints(2), keepdims=0)


def counted(n):
    return n.Range(n.int(0), n.Squeeze(n.batch(), n.ints(0)), n.int(1))


def bins(n):
    """[batch, 3], whole numbers from 0 to 5."""
    return n.Cast(n.Clip(n.Add(n.Mul(n.dense, n.float(2)), n.float(3)), n.float(0), n.float(5)), to=TensorProto.INT64)


# Ranks.


@case()
def largest_and_smallest(n):
    """Along any axis; of equal numbers, the zeros behind a sequence, the first."""
    most, places = n.TopK(n.vectors, n.ints(3), axis=-1, outputs=2)
    least = n.TopK(n.Transpose(n.vectors, perm=[1, 0, 2]), n.ints(2), axis=0, largest=0, outputs=2)
    equal = n.TopK(n.history, n.ints(PLACES), axis=1, outputs=2)[1]
    parts = [most, n.Cast(places, to=TensorProto.FLOAT), *[n.Transpose(x, perm=[1, 0, 2]) for x in (least[0], n.Cast(least[1], to=TensorProto.FLOAT))],
             n.Cast(equal, to=TensorProto.FLOAT)]
    return n.Concat(*[n.Flatten(p) for p in parts], axis=1)


@case(10)
def largest_of_old(n):
    most = n.TopK(n.vectors, n.ints(2), axis=1, outputs=2)[0]
    return n.Flatten(most)


@case()
def places_of_the_largest(n):
    rounded = n.Round(n.vectors)  # so that some are equal
    parts = [n.ArgMax(rounded, axis=2), n.ArgMin(rounded, axis=1, select_last_index=1), n.ArgMax(rounded, axis=-1, keepdims=0, select_last_index=1),
             n.ArgMin(n.dense, axis=1)]
    return n.Concat(*[n.Flatten(n.Cast(p, to=TensorProto.FLOAT)) for p in parts], axis=1)


@case()
def what_is_at_the_largest(n):
    """Hard attention, the two best of a sequence, and gates of the two best of three towers."""
    best = n.ArgMax(scores(n), axis=1, keepdims=0)
    one = n.Gather(n.Reshape(n.history, n.ints(-1, DIM)), n.Add(n.Mul(counted(n), n.ints(PLACES)), best), axis=0)
    hard = n.ReduceSum(n.Mul(n.history, n.Unsqueeze(n.Cast(n.OneHot(best, n.ints(PLACES), n.ints(0, 1)), to=TensorProto.FLOAT), n.ints(2))), n.ints(1),
                       keepdims=0)
    two = n.TopK(scores(n), n.ints(2), outputs=2)[1]
    chosen = n.GatherElements(n.history, n.Expand(n.Unsqueeze(two, n.ints(2)), n.Concat(n.batch(), n.ints(2, DIM), axis=0)), axis=1)
    logits = n.MatMul(n.dense, n.drawn(DENSE, 3))
    top, where = n.TopK(logits, n.ints(2), axis=1, outputs=2)
    gates = n.ScatterElements(n.ConstantOfShape(n.Shape(logits)), where, n.Softmax(top, axis=1), axis=1)
    towers = n.MatMul(n.Unsqueeze(n.dense, n.ints(1, 2)), n.drawn(3, DENSE, 4))
    mixed = n.ReduceSum(n.Mul(n.Squeeze(towers, n.ints(2)), n.Unsqueeze(gates, n.ints(2))), n.ints(1), keepdims=0)
    return n.Concat(one, hard, n.Flatten(chosen), mixed, axis=1)


# Rows of tables, and marks.


@case()
def rows_that_samples_name(n):
    """By bins of numbers, by a length, and by how far a place is from the end; of a table that is trained, and one that is not."""
    table, last = n.drawn(6, 4), n.Clip(n.Sub(n.Unsqueeze(n.lengths, n.ints(1)), n.ints(*range(PLACES))), n.int(0))
    known = n.Constant(value=helper.make_tensor("v", TensorProto.FLOAT, [6], numpy.linspace(-1, 1, 6)))
    parts = [n.Gather(table, bins(n)), n.Gather(table, n.lengths), n.Gather(n.drawn(6, DIM), last), n.Gather(n.drawn(6), bins(n)), n.Gather(n.drawn(6, 2, 3), bins(n)),
             n.Gather(known, n.lengths), n.Gather(n.Softmax(n.drawn(6, 2), axis=0), n.Neg(n.lengths))]
    return n.Concat(*[n.Reshape(p, n.ints(0, -1)) for p in parts], axis=1)


@case(12)
def marks_that_samples_name(n):
    parts = [n.OneHot(bins(n), n.int(6), n.numbers(numpy.array([-0.5, 2], dtype=numpy.float32))),
             n.OneHot(bins(n), n.int(6), n.numbers(numpy.array([0, 1], dtype=numpy.float32)), axis=1),
             n.OneHot(n.lengths, n.int(4), n.numbers(numpy.array([0, 1], dtype=numpy.float32)))]
    return n.Concat(*[n.Reshape(p, n.ints(0, -1)) for p in parts], axis=1)


# Places of a mask.


def triangle(n):
    return n.numbers(numpy.triu(numpy.ones((FIELDS, FIELDS), dtype=bool), 1))


@case()
def pairs_above_a_diagonal(n):
    """As torch.masked_select has it, and by the places of the mask."""
    products = n.MatMul(n.vectors, n.Transpose(n.vectors, perm=[0, 2, 1]))
    selected = n.GatherND(products, n.Transpose(n.NonZero(n.Expand(triangle(n), n.Shape(products))), perm=[1, 0]))
    flat = n.NonZero(n.numbers(numpy.triu(numpy.ones((FIELDS, FIELDS), dtype=numpy.float32), 1).flatten()))
    taken = n.Gather(n.Flatten(products), n.Squeeze(n.Transpose(flat, perm=[1, 0]), n.ints(1)), axis=1)
    rows, columns = n.Split(n.NonZero(triangle(n)), outputs=2, axis=0)
    each = [n.Gather(n.vectors, n.Squeeze(of, n.ints(0)), axis=1) for of in (rows, columns)]
    return n.Concat(n.Reshape(selected, n.ints(-1, 6)), taken, n.ReduceSum(n.Mul(*each), n.ints(2), keepdims=0), axis=1)


@case(10)
def places_by_a_count_of_old(n):
    """PyTorch's arange before opset 11: the places of ones."""
    ones = n.ConstantOfShape(n.Slice(n.Shape(n.history), n.ints(0), n.ints(1)), value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]))
    counted = n.Squeeze(n.Transpose(n.NonZero(ones), perm=[1, 0]), axes=[1])
    index = n.Add(n.Mul(counted, n.ints(PLACES)), n.Sub(n.lengths, n.ints(1)))
    return n.Gather(n.Reshape(n.history, n.ints(-1, DIM)), index, axis=0)


@case()
def whole_vectors_of_a_mask(n):
    mask = n.Expand(n.numbers(numpy.array([True, False, True, True])), n.Concat(n.batch(), n.ints(FIELDS), axis=0))
    return n.Reshape(n.GatherND(n.vectors, n.Transpose(n.NonZero(mask))), n.ints(-1, 3 * DIM))


# Places that are given other numbers.


def put(n, data, places, updates, **attributes):
    """As PyTorch writes data[:, i, ...] = updates: `places` [rows, axes] of each sample."""
    rows = len(places)
    dims = n.Concat(n.batch(), n.ints(rows, 1), axis=0)
    lists = [n.Expand(n.Reshape(counted(n), n.ints(-1, 1, 1)), dims)]
    lists += [n.Expand(n.numbers(numpy.array(column, dtype=numpy.int64).reshape(rows, 1)), dims) for column in zip(*places)]
    return n.ScatterND(data, n.Concat(*lists, axis=-1), updates, **attributes)


@case()
def places_that_are_replaced(n):
    """Whole fields, single numbers, and a matrix of zeros that is filled place by place; of equal places the last counts."""
    doubled = n.Mul(n.Gather(n.vectors, n.ints(0, 2), axis=1), n.float(2))
    fields = put(n, n.vectors, [(1,), (-1,)], doubled)
    numbers = put(n, n.vectors, [(0, 1), (3, 7), (0, 0)], n.dense)
    products = n.ConstantOfShape(n.Concat(n.batch(), n.ints(2, 2), axis=0))
    for i in range(2):
        for j in range(2):
            pair = [n.Gather(n.vectors, n.int(k), axis=1) for k in (i, j)]
            products = put(n, products, [(i, j)], n.ReduceSum(n.Mul(*pair), n.ints(1)))
    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    before = n.ScatterND(first, n.numbers(numpy.array([[2], [0]])), n.Tanh(n.Slice(first, n.ints(0), n.ints(2), n.ints(0))))
    known = n.ScatterElements(n.vectors, n.Expand(n.ints(1), n.Concat(n.batch(), n.ints(1, DIM), axis=0)), n.Slice(n.history, n.ints(0), n.ints(1), n.ints(1)),
                              axis=1)
    return n.Concat(*[n.Flatten(p) for p in (fields, numbers, products, n.Transpose(before, perm=[1, 0, 2]), known)], axis=1)


@case(16)
def what_is_added_at_places(n):
    """A histogram of bins."""
    marks = n.ConstantOfShape(n.Concat(n.batch(), n.ints(6), axis=0))
    return n.ScatterElements(marks, bins(n), n.Exp(n.dense), axis=1, reduction="add")


# Batches one after another.


@case()
def batches_one_after_another(n):
    """Two towers in one, and heads as PyTorch's chunk and cat along the batch have them."""
    two = n.Concat(n.Gather(n.vectors, n.int(0), axis=1), n.Gather(n.vectors, n.int(1), axis=1), axis=0)
    deep = n.Tanh(n.Gemm(two, n.drawn(DIM, 6), n.drawn(6)))
    ends = [n.Slice(deep, n.ints(0), n.batch(), n.ints(0)), n.Slice(deep, n.batch(), n.ints(2**63 - 1), n.ints(0))]
    heads = n.Concat(*n.Split(n.MatMul(n.vectors, n.drawn(DIM, DIM)), outputs=2, axis=2), axis=0)
    seen = n.MatMul(n.Softmax(n.MatMul(heads, n.Transpose(heads, perm=[0, 2, 1])), axis=-1), heads)
    half = n.Div(n.Add(n.Shape(seen, start=0, end=1), n.ints(1)), n.ints(2))
    joined = n.Concat(n.Slice(seen, n.ints(0), half, n.ints(0)), n.Slice(seen, half, n.Mul(half, n.ints(2)), n.ints(0)), axis=2)
    three = n.Concat(n.dense, n.Exp(n.dense), n.Abs(n.dense), axis=0)
    parts = n.Split(three, n.Concat(n.batch(), n.Mul(n.batch(), n.ints(2)), axis=0), outputs=2, axis=0)
    again = n.Split(n.Sin(parts[1]), outputs=2, axis=0)
    return n.Concat(*ends, n.Flatten(joined), parts[0], n.Mul(*again), axis=1)


@case()
def rows_of_batches(n):
    """A batch that shares its axis with fields, cut at the batch's size."""
    rows = n.Reshape(n.Transpose(n.vectors, perm=[1, 0, 2]), n.ints(-1, DIM))
    middle = n.Slice(n.MatMul(rows, n.drawn(DIM, 3)), n.batch(), n.Mul(n.batch(), n.ints(3)), n.ints(0))
    return n.Concat(n.Flatten(n.Transpose(n.Reshape(middle, n.ints(2, -1, 3)), perm=[1, 0, 2])), n.Slice(rows, n.ints(0), n.batch(), n.ints(0)), axis=1)


# Samples in another order.


@case()
def sequences_sorted_by_length(n):
    """As PyTorch packs them with enforce_sorted=False."""
    lengths, order = n.TopK(n.lengths, n.batch(), axis=-1, outputs=2)
    x = n.Transpose(n.Gather(n.history, order, axis=0), perm=[1, 0, 2])
    back = n.ScatterElements(n.ConstantOfShape(n.Shape(order), value=helper.make_tensor("v", TensorProto.INT64, [1], [0])), order, counted(n), axis=0)
    states, last = n.GRU(x, n.drawn(1, 18, DIM), n.drawn(1, 18, 6), n.drawn(1, 36), n.Cast(lengths, to=TensorProto.INT32), outputs=2, hidden_size=6,
                         linear_before_reset=1)
    example = n.Constant(value=numpy_helper.from_array(numpy.zeros((1, BATCH, 5), dtype=numpy.float32)))
    start = n.Expand(example, n.Concat(n.ints(1), n.batch(), n.ints(5), axis=0))
    second = n.GRU(x, n.drawn(1, 15, DIM), n.drawn(1, 15, 5), "", n.Cast(lengths, to=TensorProto.INT32), start, outputs=2, hidden_size=5,
                   linear_before_reset=1)[1]
    one = n.Squeeze(n.Gather(n.Concat(last, second, axis=2), back, axis=1), n.ints(0))
    each = n.Gather(n.Transpose(n.Squeeze(states, n.ints(1)), perm=[1, 0, 2]), back, axis=0)
    again = n.TopK(order, n.batch(), largest=0, outputs=2)[1]
    each = n.Concat(n.Flatten(each), n.Squeeze(n.Gather(last, again, axis=1), n.ints(0)), axis=1)
    return n.Concat(one, each, n.Mul(n.dense, n.Cast(n.Unsqueeze(n.Gather(lengths, back), n.ints(1)), to=TensorProto.FLOAT)), axis=1)


REFUSED = {
    "of numbers that samples compute, or not with the batch first": lambda n: n.Add(n.vectors, n.Cast(n.ReduceSum(n.NonZero(n.Greater(
        n.vectors, n.float(0))), n.ints(0)), to=TensorProto.FLOAT)),
    "samples compute the indices [batch, 3] of [400000, 1], axis 0; expected a table [rows, ...]": lambda n: n.Gather(n.drawn(400000, 1), bins(n)),
    "samples compute the indices [batch, 3] of [batch, 3], axis 1": lambda n: n.Gather(n.dense, bins(n), axis=1),
    "9 of each 8 numbers of [batch, 4, 8], axis 2": lambda n: n.TopK(n.vectors, n.ints(DIM + 1), outputs=2)[0],
    "(TopK): axis 0 of [batch, 3] is the batch's": lambda n: n.TopK(n.dense, n.ints(1), axis=0, outputs=2)[0],
    '(Add): samples in the order of "': lambda n: n.Add(n.TopK(n.lengths, n.batch(), outputs=2)[0], n.lengths),
    'has its samples in the order of "': lambda n: n.Cast(n.TopK(n.lengths, n.batch(), outputs=2)[0], to=TensorProto.FLOAT),
    "sorts samples that are sorted already": lambda n: n.TopK(n.TopK(n.lengths, n.batch(), outputs=2)[0], n.batch(), outputs=2)[0],
    "[batch, 3] beside [batch, 8], axis 0, the batch's": lambda n: n.Concat(n.dense, n.Gather(n.vectors, n.int(0), axis=1), axis=0),
    "(Slice): axis 0 of [batch * 4, 8] is the batch's": lambda n: n.Slice(n.Reshape(n.vectors, n.ints(-1, DIM)), n.ints(0), n.batch(), n.ints(0)),
    "a number above a multiple of the batch's size": lambda n: n.Reshape(n.vectors, n.Concat(n.Add(n.batch(), n.ints(1)), n.ints(-1), axis=0)),
    "places that samples compute; expected known ones, as in x[:, 3] = y": lambda n: n.ScatterND(n.vectors, n.Concat(
        n.Reshape(counted(n), n.ints(-1, 1)), n.Unsqueeze(n.ArgMax(n.dense, axis=1, keepdims=0), n.ints(1)), axis=-1), n.Gather(n.vectors, n.int(0), axis=1)),
    'reduction "max"; expected none or add': lambda n: n.ScatterElements(n.dense, bins(n), n.dense, axis=1, reduction="max"),
    "; expected numbers for each place, which take the place of what is there": lambda n: put(n, n.vectors, [(1,)], n.dense),
}
