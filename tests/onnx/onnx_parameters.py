"""Networks that compute something of parameters alone, before they meet a sample; cases of onnx_forms.py."""
import numpy

from onnx_network import DENSE, DIM, FIELDS, case


@case()
def activations_of_parameters(n):
    gate, scale, one = n.Sigmoid(n.drawn(DENSE)), n.Softplus(n.drawn(1, DENSE)), n.Exp(n.Neg(n.drawn(1)))
    first = n.Mul(n.Transpose(n.vectors, perm=[1, 0, 2]), n.Tanh(n.drawn(FIELDS, 1, 1)))
    kept = n.Where(n.numbers(numpy.array([True, False, True])), n.Abs(n.drawn(DENSE)), n.Clip(n.drawn(DENSE), n.float(-0.5), n.float(0.5)))
    mixed = n.Add(n.Mul(n.dense, gate), n.Mul(n.Sub(n.float(1), gate), n.Mul(scale, one)))
    return n.Concat(mixed, n.Flatten(n.Transpose(first, perm=[1, 0, 2])), n.Mul(n.dense, n.Max(kept, gate)), axis=1)


@case()
def parameters_that_weigh(n):
    """A mixture of towers, by the place and by a product."""
    weights = n.Softmax(n.drawn(2), axis=0)
    towers = [n.Relu(n.MatMul(n.vectors, n.drawn(DIM, 5))) for _ in range(2)]
    by_place = n.Add(*[n.Mul(tower, n.Gather(weights, n.int(k), axis=0)) for k, tower in enumerate(towers)])
    stacked = n.Concat(*[n.Unsqueeze(tower, n.ints(-1)) for tower in towers], axis=-1)
    by_sum = n.ReduceSum(n.Mul(stacked, n.Softmax(n.drawn(1, 2), axis=1)), n.ints(-1), keepdims=0)
    return n.Concat(by_place, by_sum, n.Einsum(towers[0], n.Exp(n.drawn(5)), equation="bfd,d->bfd"), axis=1)


@case()
def periods_that_are_trained(n):
    angles = n.Mul(n.Unsqueeze(n.dense, n.ints(2)), n.Mul(n.float(6.25), n.drawn(DENSE, 4, scale=0.1)))
    return n.Concat(n.Cos(angles), n.Sin(angles), axis=2)


@case()
def weights_that_are_normalized(n):
    def unit(weights):
        return n.Div(weights, n.Max(n.ReduceL2(weights, axes=[1], keepdims=1), n.float(1e-6)))

    linear = n.Gemm(n.dense, n.Mul(n.drawn(6, 1), unit(n.drawn(6, DENSE))), n.drawn(6), transB=1)
    fields = n.MatMul(n.vectors, n.Transpose(unit(n.drawn(5, DIM)), perm=[1, 0]))
    row = n.MatMul(n.dense, n.Exp(n.drawn(DENSE, 4)))
    second = n.MatMul(n.Transpose(n.vectors, perm=[1, 0, 2]), n.Tanh(n.drawn(DIM, 3)))
    left = n.MatMul(n.Tanh(n.drawn(3, FIELDS)), n.vectors)
    vector = n.MatMul(n.vectors, n.Exp(n.drawn(DIM)))
    return n.Concat(linear, row, n.Flatten(fields), n.Gemm(n.dense, n.Tanh(n.drawn(DENSE, 2))), n.Flatten(n.Transpose(second, perm=[1, 0, 2])),
                    n.Flatten(left), vector, n.Flatten(n.Transpose(n.MatMul(n.Transpose(n.vectors, perm=[1, 0, 2]), n.Tanh(n.drawn(FIELDS, DIM, 2))), perm=[1, 0, 2])), axis=1)


@case()
def products_of_parameters(n):
    low_rank = n.MatMul(n.drawn(DIM, 2), n.drawn(2, 5))
    both = n.MatMul(n.Sigmoid(n.drawn(DENSE, 2)), n.Tanh(n.drawn(2, 4)))
    return n.Concat(n.Flatten(n.MatMul(n.vectors, low_rank)), n.MatMul(n.dense, both), axis=1)


@case()
def parts_of_parameters(n):
    table = n.drawn(FIELDS, 6)
    left, right = n.Split(table, n.ints(4, 2), outputs=2, axis=1)
    joined = n.Concat(n.Slice(table, n.ints(1), n.ints(3), n.ints(0)), n.Transpose(n.drawn(6, 2), perm=[1, 0]), axis=0)
    rows = n.Concat(n.Reshape(n.Mul(left, left), n.ints(2, -1)), n.Reshape(right, n.ints(1, 8)), axis=0)
    token = n.Expand(n.Unsqueeze(n.Tanh(rows), n.ints(0)), n.Concat(n.batch(), n.ints(3, DIM), axis=0))
    wide = n.Mul(n.Slice(n.vectors, n.ints(0), n.ints(6), n.ints(2)), joined)
    return n.Concat(n.Flatten(n.Concat(token, n.vectors, axis=1)), n.Flatten(wide), axis=1)


@case()
def parameters_that_are_cut_apart(n):
    """By a node that alone reads them, so that each part is a layer's own, of any size."""
    first, second = n.Split(n.drawn(160, DIM), n.ints(128, 32), outputs=2, axis=0)
    wide, narrow = n.Split(n.drawn(3 * DIM, 1200, scale=0.1), outputs=2, axis=1)
    x = n.MatMul(n.vectors, n.Transpose(first, perm=[1, 0]))
    y = n.Gemm(n.Flatten(n.Slice(n.vectors, n.ints(0), n.ints(3), n.ints(1))), wide)
    z = n.Mul(n.Unsqueeze(n.dense, n.ints(2)), n.Reshape(second, n.ints(1, 1, -1)))
    return n.Concat(n.Flatten(x), y, n.Flatten(z), axis=1)


@case()
def numbers_of_parameters(n):
    """Without an axis, and with one of 1."""
    whole = n.ReduceSum(n.drawn(DENSE, 2), keepdims=0)
    one = n.Squeeze(n.Reshape(n.ReduceMean(n.drawn(FIELDS), axes=[0]), n.ints(1, 1)), n.ints(0, 1))
    number = n.Mul(n.Exp(n.Mul(whole, n.float(0.25))), n.Add(n.float(2), one))
    return n.Add(n.Mul(n.dense, number), n.Reshape(n.Unsqueeze(one, n.ints(0, 1)), n.ints(1)))


@case()
def parameters_in_several_forms(n):
    """A matrix and the same turned; a vector that is added, multiplied and turned; as weights of products alone and beside others."""
    tied, vector, table = n.drawn(DENSE, 6), n.drawn(DENSE), n.drawn(FIELDS, DIM)
    hidden = n.Relu(n.MatMul(n.dense, tied))
    back = n.MatMul(hidden, n.Transpose(tied, perm=[1, 0]))
    twice = n.Gemm(n.Gemm(n.dense, tied, n.drawn(6)), tied, vector, transB=1)
    moved = n.Mul(n.Add(back, vector), n.Sub(vector, n.float(1)))
    scores = n.MatMul(n.vectors, n.Transpose(table, perm=[1, 0]))
    return n.Concat(moved, twice, n.Flatten(scores), n.Flatten(n.Add(n.vectors, table)), n.Flatten(n.MatMul(n.Softmax(scores, axis=2), table)), axis=1)


@case(12)
def parameters_of_old(n):
    return n.Add(n.Mul(n.dense, n.Softmax(n.drawn(1, DENSE), axis=1)), n.Softmax(n.drawn(DENSE), axis=0))


@case()
def parameters_within_layers(n):
    """Each also the input of a layer that has weights of its own."""
    scaled = n.LayerNormalization(n.drawn(FIELDS, DIM), n.drawn(DIM), n.drawn(DIM))
    deep = n.Gemm(n.Relu(n.Gemm(n.drawn(FIELDS, 3), n.drawn(3, 6), n.drawn(6))), n.drawn(6, DIM))
    return n.Add(n.Mul(n.vectors, scaled), n.PRelu(deep, n.drawn(1)))


@case()
def parameters_without_dimensions(n):
    """Scales, a gate that several layers read, what is repeated, and a number beside numbers."""
    gate = n.drawn(scale=1.0)
    residual = n.Add(n.vectors, n.Mul(gate, n.Tanh(n.MatMul(n.vectors, n.drawn(DIM, DIM)))))
    repeated = n.Add(n.Expand(n.drawn(), n.ints(FIELDS, 1)), n.Expand(n.Unsqueeze(gate, n.ints(0)), n.Concat(n.batch(), n.ints(1, DIM), axis=0)))
    return n.Concat(n.Flatten(n.Mul(residual, n.Exp(n.drawn()))), n.Add(n.Mul(n.dense, gate), n.Mul(n.drawn(), n.drawn())),
                    n.Flatten(repeated), n.Div(n.dense, n.Softplus(n.drawn())), axis=1)


def _reordered(n, parameter, order):
    """As PyTorch's older exporter leaves a recurrence's gates where it folds no constants."""
    parts = [n.Slice(parameter, n.Unsqueeze(n.int(6 * k), n.ints(0)), n.ints(6 * (k + 1)), n.ints(0)) for k in order]
    return n.Concat(*parts, axis=0)


def _put_together(n, w, r, b, order):
    both = n.Concat(*[_reordered(n, part, order) for part in b], axis=0)
    return [n.Unsqueeze(part, n.ints(0)) for part in (_reordered(n, w, order), _reordered(n, r, order), both)]


@case()
def weights_that_are_put_together(n):
    """Of a GRU that two inputs share, and of an LSTM that runs both ways."""
    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    gru = n.drawn(18, DIM), n.drawn(18, 6), (n.drawn(18), n.drawn(18))
    ends = [n.GRU(x, *_put_together(n, *gru, (1, 0, 2)), outputs=2, hidden_size=6, linear_before_reset=1)[1] for x in (first, n.Tanh(first))]
    ways = [_put_together(n, n.drawn(24, DIM), n.drawn(24, 6), (n.drawn(24), n.drawn(24)), (0, 3, 1, 2)) for _ in range(2)]
    both = [n.Concat(*parts, axis=0) for parts in zip(*ways)]
    ends.append(n.LSTM(first, *both, outputs=3, hidden_size=6, direction="bidirectional")[1])
    return n.Concat(*[n.Flatten(n.Transpose(end, perm=[1, 0, 2])) for end in ends], axis=1)


def exponents_and_bounds(n):
    """One that is a factor, too; of numbers among which are zeros."""
    p, power, most = n.numbers(numpy.float32(1.75)), n.numbers(numpy.float32(2.5)), n.numbers(numpy.float32(0.5))
    parts = [n.Mul(p, n.Pow(n.Relu(n.vectors), p)), n.Pow(n.Add(n.Abs(n.vectors), n.float(1)), power), n.Clip(n.vectors, n.float(-1), most)]
    return n.Concat(*parts, axis=2)


def _first(n):
    return n.Transpose(n.vectors, perm=[1, 0, 2])


# Networks all of whose numbers are trained, each once.
LESS_THAN_USUAL = {
    "one slope for all": lambda n: n.PRelu(n.PRelu(n.vectors, n.drawn(1)), n.drawn(1, 1)),
    "a GRU without a bias": lambda n: n.Transpose(n.GRU(
        _first(n), n.drawn(1, 18, DIM), n.drawn(1, 18, 6), outputs=2, hidden_size=6, linear_before_reset=1)[1], perm=[1, 0, 2]),
    "an LSTM without a bias": lambda n: n.Transpose(n.LSTM(
        _first(n), n.drawn(2, 24, DIM), n.drawn(2, 24, 6), outputs=3, hidden_size=6, direction="bidirectional")[1], perm=[1, 0, 2]),
    "a scale without a shift": lambda n: n.LayerNormalization(n.vectors, n.drawn(DIM)),
    "one bias for all": lambda n: n.Gemm(n.dense, n.drawn(DENSE, 4), n.drawn(1)),
    "one scale for all": lambda n: n.LayerNormalization(n.vectors, n.drawn(1), n.drawn(DIM)),
}
