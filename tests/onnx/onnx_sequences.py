"""Networks of onnx.helper over history [batch, 5, 8], of which each sample has the first `lengths` places.

They are read and give what onnxruntime gives; tests/onnx/read_test.py holds them.
"""
import numpy
from onnx import TensorProto

from onnx_network import DIM, FIELDS, PLACES, case


def places(n):
    return n.ints(*range(PLACES))


def mask(n, column):
    """[batch, 5]: truth values, of lengths [batch, 1]."""
    return n.Less(places(n), column)


def mean(n, total, column):
    return n.Div(total, n.Cast(n.Max(column, n.ints(1)), to=TensorProto.FLOAT))


def batch_second(n):
    return n.Transpose(n.history, perm=[1, 0, 2])


@case()
def mean_within_lengths_of_int64(n):
    column = n.Unsqueeze(n.lengths, n.ints(1))
    weights = n.Unsqueeze(n.Cast(mask(n, column), to=TensorProto.FLOAT), n.ints(2))
    shifted = n.Add(n.history, n.drawn(DIM))  # else the zeros behind a sequence would hide a wrong mask
    return mean(n, n.ReduceSum(n.Mul(shifted, weights), n.ints(1), keepdims=0), column)


@case()
def target_attention_within_lengths_of_int32(n):
    """DIN: a network of the behaviour, the target, and their difference and product; a softmax over the places."""
    n.lengths_type = TensorProto.INT32
    target = n.Expand(n.Gather(n.vectors, n.ints(0), axis=1), n.ints(1, PLACES, 1))
    beside = n.Concat(n.history, target, n.Sub(target, n.history), n.Mul(target, n.history), axis=-1)
    hidden = n.Sigmoid(n.Add(n.MatMul(beside, n.drawn(4 * DIM, 6)), n.drawn(6)))
    scores = n.Squeeze(n.Add(n.MatMul(hidden, n.drawn(6, 1)), n.drawn(1)), n.ints(2))
    column = n.Unsqueeze(n.Cast(n.lengths, to=TensorProto.INT64), n.ints(-1))
    hidden_places = n.Not(mask(n, column))
    weights = n.Softmax(n.Where(hidden_places, n.float(-1e9), scores), axis=1)
    return n.Squeeze(n.MatMul(n.Unsqueeze(weights, n.ints(1)), n.history), n.ints(1))


@case()
def lengths_in_a_column(n):
    n.lengths_dims = [1]
    shorter = n.Sub(n.lengths, n.ints(1))
    weights = n.Unsqueeze(n.Cast(mask(n, shorter), to=TensorProto.FLOAT), n.ints(2))
    return n.ReduceSum(n.Mul(n.Add(n.history, n.drawn(DIM)), weights), n.ints(1), keepdims=0)


def last_place(n):
    """[batch, 1, 8]: of the last place within its length, as PyTorch's gather wants it."""
    last = n.Sub(n.lengths, n.ints(1))
    return n.Expand(n.Unsqueeze(n.Unsqueeze(last, n.ints(1)), n.ints(2)), n.ints(1, 1, DIM))


@case()
def last_of_each_by_gather_elements(n):
    out = n.GRU(batch_second(n), n.drawn(1, 3 * DIM, DIM), n.drawn(1, 3 * DIM, DIM), outputs=2, hidden_size=DIM, linear_before_reset=1)[0]
    return n.Squeeze(n.GatherElements(n.Transpose(n.Squeeze(out, n.ints(1)), perm=[1, 0, 2]), last_place(n), axis=1), n.ints(1))


@case()
def elements_from_the_end_and_several(n):
    shifted = n.Add(n.history, n.drawn(DIM))
    behind = n.Sub(last_place(n), n.ints(PLACES))  # negative: counted from the end
    return n.GatherElements(shifted, n.Concat(behind, last_place(n), n.Sub(last_place(n), last_place(n)), axis=1), axis=-2)


def last(n):
    """[batch]: the last place within each length."""
    return n.Clip(n.Sub(n.lengths, n.ints(1)), n.int(0))


def counted(n):
    """[batch]: 0, 1, ..., as PyTorch's arange."""
    return n.Range(n.int(0), n.Gather(n.Shape(n.history), n.int(0), axis=0), n.int(1))


@case(12)
def last_of_each_by_one_index_of_two_axes(n):
    """As PyTorch's older exporter writes x[torch.arange(n), last]."""
    shifted = n.Add(n.history, n.drawn(DIM))
    size = n.Gather(n.Shape(n.history), n.ints(1), axis=0)
    index = n.Add(last(n), n.Mul(counted(n), size))
    chosen = n.Reshape(n.Gather(n.Flatten(shifted, axis=2), index, axis=0), n.ints(-1, DIM))
    return n.Reshape(chosen, n.Concat(n.Shape(index), n.ints(DIM), axis=0))


@case()
def known_places_by_one_index_of_two_axes(n):
    samples = counted(n)
    index = n.Add(n.ints(2), n.Mul(n.ints(PLACES), samples))
    several = n.Add(n.numbers(numpy.array([[3, 0, 3]], dtype=numpy.int64)), n.Unsqueeze(n.Mul(n.ints(PLACES), samples), n.ints(1)))
    flat = n.Reshape(n.history, n.ints(-1, DIM))
    whole = n.Gather(n.ReduceSum(n.vectors, n.ints(1), keepdims=0), samples, axis=0)
    return n.Add(n.Add(whole, n.Gather(flat, index, axis=0)), n.ReduceMean(n.Gather(flat, several, axis=0), axes=[1], keepdims=0))


@case()
def last_of_each_by_an_index_of_each_axis(n):
    """As PyTorch's exporter of torch.export writes it."""
    like = n.Shape(last(n))
    lists = n.Concat(*[n.Unsqueeze(n.Expand(index, like), n.ints(-1)) for index in (counted(n), last(n))], axis=-1)
    return n.GatherND(n.Add(n.history, n.drawn(DIM)), lists, batch_dims=0)


@case()
def several_of_each_by_an_index_of_each_axis(n):
    """x[arange[:, None], [last, 0]]; and of each sample, as TensorFlow has it."""
    places = n.Concat(n.Unsqueeze(last(n), n.ints(1)), n.Sub(n.Unsqueeze(last(n), n.ints(1)), n.Unsqueeze(last(n), n.ints(1))), axis=1)
    like = n.Shape(places)
    lists = n.Concat(*[n.Unsqueeze(n.Expand(index, like), n.ints(-1)) for index in (n.Unsqueeze(counted(n), n.ints(1)), places)], axis=2)
    shifted = n.Add(n.history, n.drawn(DIM))
    return n.Concat(n.Flatten(n.GatherND(shifted, lists)), n.GatherND(shifted, n.Unsqueeze(last(n), n.ints(1)), batch_dims=1), axis=1)


@case()
def known_places_by_an_index_of_each_axis(n):
    """x[arange, -2] and x[arange, 1]: of each axis a negative one counts from the end."""
    samples = n.Unsqueeze(counted(n), n.ints(1))
    chosen = [n.GatherND(n.history, n.Concat(samples, n.Expand(n.ints(place), n.Shape(samples)), axis=1)) for place in (-2, 1)]
    return n.Concat(*chosen, axis=1)


@case()
def lengths_as_floats(n):
    n.lengths_type = TensorProto.FLOAT
    root = n.Cast(n.Mul(n.Sqrt(n.Add(n.lengths, n.float(0.5))), n.float(-1.75)), to=TensorProto.INT64)  # rounds towards 0
    last = n.Cast(n.Unsqueeze(n.Neg(root), n.ints(1)), to=TensorProto.INT32)
    beyond = n.LessOrEqual(n.Cast(last, to=TensorProto.INT64), places(n))
    shifted = n.Add(n.history, n.drawn(DIM))
    return n.ReduceSum(n.Where(n.Unsqueeze(beyond, n.ints(2)), shifted, n.drawn(1, 1, 1)), n.ints(1), keepdims=0)


def recurrence(op, gates, bias, outputs, lengths, **attributes):
    """All states and the last ones of a recurrence within lengths."""
    def build(n):
        directions = 2 if attributes.get("direction") == "bidirectional" else 1
        weights = [n.drawn(directions, gates * 6, DIM), n.drawn(directions, gates * 6, 6), n.drawn(directions, bias * gates * 6)]
        if lengths == "column":
            n.lengths_dims = [1]
        shape = n.Squeeze(n.lengths, n.ints(1)) if lengths == "column" else n.lengths
        states = getattr(n, op)(batch_second(n), *weights, n.Cast(shape, to=TensorProto.INT32), outputs=outputs, hidden_size=6, **attributes)
        parts = [n.Reshape(n.Transpose(states[0], perm=[2, 0, 1, 3]), n.ints(0, -1))]
        parts += [n.Reshape(n.Transpose(state, perm=[1, 0, 2]), n.ints(0, -1)) for state in states[1:]]
        return n.Concat(*parts, axis=1)

    return build


@case()
def gru_within_lengths(n):
    return recurrence("GRU", 3, 2, 2, "row", linear_before_reset=1)(n)


@case()
def gru_whose_reset_comes_first_within_lengths(n):
    return recurrence("GRU", 3, 2, 2, "column")(n)


@case()
def gru_both_ways_within_lengths(n):
    return recurrence("GRU", 3, 2, 2, "row", linear_before_reset=1, direction="bidirectional")(n)


@case()
def lstm_within_lengths(n):
    return recurrence("LSTM", 4, 2, 3, "row")(n)


@case()
def lstm_backward_within_lengths(n):
    return recurrence("LSTM", 4, 2, 3, "row", direction="reverse")(n)


@case()
def rnn_within_lengths(n):
    return recurrence("RNN", 1, 2, 2, "row", direction="bidirectional")(n)


@case()
def last_state_of_a_gru_within_lengths(n):
    weights = [n.drawn(1, 18, DIM), n.drawn(1, 18, 6), n.drawn(1, 36)]
    n.lengths_type = TensorProto.INT32
    last = n.GRU(batch_second(n), *weights, n.lengths, outputs=2, hidden_size=6, linear_before_reset=1)[1]
    return n.Squeeze(last, n.numbers(numpy.array([0], dtype=numpy.int64)))


@case()
def recurrences_of_each_field(n):
    """Over fields that share the batch's axis, behind it and before it, with lengths and first states of their own."""
    weights = lambda gates, ways: [n.drawn(ways, gates * 6, 2), n.drawn(ways, gates * 6, 6), n.drawn(ways, 2 * gates * 6)]
    pieces = n.Transpose(n.Reshape(n.vectors, n.ints(-1, DIM // 2, 2)), perm=[1, 0, 2])  # [4, batch * FIELDS, 2]
    all_, last = n.GRU(pieces, *weights(3, 1), outputs=2, hidden_size=6, linear_before_reset=1)
    start = n.Unsqueeze(n.MatMul(n.Reshape(n.vectors, n.ints(-1, DIM)), n.drawn(DIM, 6)), n.ints(0))
    second = n.RNN(pieces, *weights(1, 1), "", start, outputs=2, hidden_size=6)[1]
    first = n.Transpose(n.Reshape(n.Transpose(n.vectors, perm=[1, 0, 2]), n.ints(-1, DIM // 2, 2)), perm=[1, 0, 2])
    lengths = n.Cast(n.Concat(*[n.Clip(n.Add(n.lengths, n.int(k)), n.int(1), n.int(DIM // 2)) for k in range(FIELDS)], axis=0), to=TensorProto.INT32)
    both = n.LSTM(first, *weights(4, 2), lengths, outputs=3, hidden_size=6, direction="bidirectional")[1]
    fields = lambda x: n.Reshape(x, n.ints(-1, FIELDS * 6))
    parts = [n.Reshape(n.Transpose(n.Squeeze(all_, n.ints(1)), perm=[1, 0, 2]), n.ints(-1, FIELDS * (DIM // 2) * 6))]
    parts += [fields(n.Squeeze(x, n.ints(0))) for x in (last, second)]
    parts += [n.Flatten(n.Transpose(n.Reshape(both, n.ints(2 * FIELDS, -1, 6)), perm=[1, 0, 2]))]
    return n.Concat(*parts, axis=1)


REFUSED = {
    "a mean of whole numbers that samples have; cast them to floats first": lambda n: n.Cast(
        n.ReduceMean(n.Add(n.Unsqueeze(n.lengths, n.ints(1)), n.ints(1, 2)), axes=[1]), to=TensorProto.FLOAT),
    "reads numbers that count the samples of a batch": lambda n: n.Mul(n.dense, n.Cast(n.Unsqueeze(counted(n), n.ints(1)), to=TensorProto.FLOAT)),
    "as in x[arange(batch), place]": lambda n: n.Gather(counted(n), counted(n), axis=0),
    "[3, batch]: it would mix samples": lambda n: n.Gather(
        n.Reshape(n.history, n.ints(-1, DIM)), n.Reshape(n.Expand(counted(n), n.Concat(n.ints(3), n.batch(), axis=0)), n.ints(-1, 3)), axis=0),
    "max is no constant number": lambda n: n.Clip(n.lengths, "", n.Gather(n.Shape(n.history), n.int(0), axis=0)),
    "indices that count samples by 4, each of which has 5 places": lambda n: n.Gather(
        n.Reshape(n.history, n.ints(-1, DIM)), n.Mul(counted(n), n.ints(4)), axis=0),
    "(Gather): takes place -1 of each sample's 5; expected 0 to 4": lambda n: known_place(n, n.ints(-1)),
    "(Gather): takes place 5 of each sample's 5; expected 0 to 4": lambda n: known_place(n, n.ints(PLACES)),
    "(GatherND): takes place -6 of each sample's 5; expected -5 to 4": lambda n: n.GatherND(n.history, n.Concat(
        n.Unsqueeze(counted(n), n.ints(1)), n.Expand(n.ints(-PLACES - 1), n.Concat(n.batch(), n.ints(1), axis=0)), axis=1)),
    "counts the samples of a batch": lambda n: n.Add(n.lengths, counted(n)),
    'input "lengths" is [batch, 2] in the file, the job\'s data gives [batch, 1] or [batch]': lambda n: two_columns(n),
}


def places_of_both_axes_as_one(n, before, behind):
    """x[arange, last + before] and x[arange, last + behind], side by side."""
    flat = n.Reshape(n.Add(n.history, n.drawn(DIM)), n.ints(-1, DIM))
    index = n.Add(n.Mul(counted(n), n.ints(PLACES)), last(n))
    return n.Concat(*[n.Gather(flat, n.Add(index, n.ints(more)), axis=0) for more in (before, behind)], axis=1)


def known_place(n, place):
    return n.Gather(n.Reshape(n.history, n.ints(-1, DIM)), n.Add(n.Mul(counted(n), n.ints(PLACES)), place), axis=0)


def two_columns(n):
    n.lengths_dims = [2]
    return n.Cast(n.lengths, to=TensorProto.FLOAT)
