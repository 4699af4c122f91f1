"""Networks of functions, element by element; cases of onnx_forms.py."""
import numpy
from onnx import TensorProto, numpy_helper

from onnx_network import DENSE, DIM, FIELDS, case
from shapes import PLACES


@case(20)
def functions(n):
    x, positive = n.flat(), n.Add(n.Abs(n.flat()), n.float(0.5))
    parts = [n.Sin(x), n.Cos(x), n.Atan(x), n.Sinh(x), n.Floor(x), n.Ceil(x), n.Round(x), n.Pow(x, n.float(3)), n.Pow(positive, n.float(-1.5)), n.Pow(x, n.int(2)), n.Mish(x), n.Sign(x),
             n.Celu(x, alpha=0.7), n.Gelu(x, approximate="tanh"), n.Gelu(x), n.HardSwish(x), n.Softsign(x), n.Reciprocal(positive),
             n.Neg(x), n.Max(x, n.float(0.1), n.Neg(x)), n.Min(x, n.drawn(35)), n.ReduceMean(x, n.ints(1))]
    return n.Concat(*parts, axis=1)


@case()
def quotients_of_whole_numbers(n):
    """And remainders, of which ONNX has two, where operands differ in sign."""
    x, of = n.Cast(n.Mul(n.flat(), n.float(20)), to=TensorProto.INT64), n.ints(*([3, -3, 7, 2, -5] * 7))
    whole = [n.Div(x, of), n.Mod(x, of), n.Mod(x, of, fmod=1), n.Div(n.int(100), n.Add(n.Mul(x, x), n.int(1)))]
    return n.Concat(n.Mod(n.flat(), n.float(0.7), fmod=1), *[n.Cast(n.Div(y, n.int(2)), to=TensorProto.FLOAT) for y in whole], axis=1)


@case()
def bounds_searched_by_samples(n):
    """As torch.bucketize is exported: halves of a table, by places that samples compute; the first one place for all."""
    bounds, zeros = n.drawn(DENSE, scale=1.0), n.Expand(n.int(0), n.Shape(n.dense))
    at = n.GatherND(bounds, n.Unsqueeze(n.Add(zeros, n.int(1)), n.ints(2)))
    places = n.Div(n.Add(n.Where(n.Greater(n.dense, at), n.int(3), n.int(0)), n.int(1)), n.int(2))
    above = n.Greater(n.dense, n.GatherND(bounds, n.Unsqueeze(places, n.ints(2))))
    return n.Mul(n.dense, n.Cast(n.Add(places, n.Cast(above, to=TensorProto.INT64)), to=TensorProto.FLOAT))


@case()
def comparisons(n):
    x, y = n.Slice(n.flat(), n.ints(0), n.ints(17), n.ints(1)), n.Slice(n.flat(), n.ints(17), n.ints(34), n.ints(1))
    number = lambda t: n.Cast(t, to=TensorProto.FLOAT)
    above, below = n.Greater(x, y), n.Less(x, n.float(-0.5))
    parts = [above, below, n.GreaterOrEqual(x, x), n.LessOrEqual(x, y), n.Equal(n.Relu(x), x), n.And(above, n.Not(below)),
             n.Or(above, below), n.Cast(n.Relu(x), to=TensorProto.BOOL)]
    return n.Concat(*[number(p) for p in parts], n.Where(above, x, n.Mul(y, n.float(3))), axis=1)


@case()
def numbers_of_other_types(n):
    odd = numpy.array([6e-8, -3e-6, 6.2e-5, 1.0, -65504, 0, 0.333, 2], dtype=numpy.float16)  # some of them subnormal
    constant = lambda values: n.Constant(value=numpy_helper.from_array(values))
    ones = n.Mul(n.Cast(constant(odd), to=TensorProto.FLOAT), constant(1 / numpy.abs(odd, dtype=numpy.float32).clip(1e-9)))
    lists = [n.numbers(numpy.array([3, 1, 0], dtype=kind)) for kind in (numpy.int8, numpy.uint8, numpy.uint32, numpy.int16, numpy.uint16)]
    half = n.MatMul(n.Cast(n.Cast(n.vectors, to=TensorProto.DOUBLE), to=TensorProto.FLOAT), n.typed(TensorProto.FLOAT16, DIM, 3))
    parts = [half, n.MatMul(n.vectors, n.typed(TensorProto.BFLOAT16, DIM, 3)), n.MatMul(n.vectors, n.typed(TensorProto.DOUBLE, DIM, 3)),
             n.Mul(n.vectors, ones), *[n.Gather(n.vectors, n.Cast(chosen, to=TensorProto.INT64), axis=1) for chosen in lists]]
    return n.Concat(*map(n.Flatten, parts), axis=1)


@case(18)
def groups_with_a_scale_each(n):
    return n.GroupNormalization(n.vectors, n.drawn(2), n.drawn(2), num_groups=2)


@case()
def products_plus_what_is_computed(n):
    added = n.Gemm(n.dense, n.drawn(DIM, DENSE), n.ReduceSum(n.vectors, n.ints(1), keepdims=0), transB=1, beta=0.5)
    return n.Concat(added, n.Gemm(n.dense, n.drawn(DENSE, 2), n.ReduceSum(n.dense, n.ints(1)), alpha=2.0), axis=1)


@case()
def powers_of_a_number(n):
    return n.Concat(n.Pow(n.float(2.5), n.Flatten(n.vectors)), n.Pow(n.float(0.3), n.dense), axis=1)


@case()
def the_larger_beside_huge_numbers(n):
    parts = [n.Max(n.float(-1e9), n.Mul(n.vectors, n.drawn(DIM))), n.Min(n.vectors, n.Tanh(n.vectors), n.float(1e9)),
             n.Max(n.Sub(n.Abs(n.vectors), n.float(1e9)), n.vectors, n.float(0.3))]
    return n.Concat(*map(n.Flatten, parts), axis=1)


@case()
def branches_that_are_not_chosen(n):
    """Logarithms of numbers below 0, quotients by 0 and the numbers of a mask."""
    x = n.Mul(n.vectors, n.drawn(DIM, scale=1.0))
    mask = n.numbers(numpy.tri(FIELDS, DIM, dtype=bool))
    endless = n.numbers(numpy.where(numpy.tri(FIELDS, DIM), 1, numpy.inf).astype(numpy.float32))
    parts = [n.Where(n.Greater(x, n.float(0)), n.Log(n.Add(n.Add(x, x), n.float(1))), n.Tanh(x)),
             n.Where(n.Equal(n.Relu(n.vectors), n.float(0)), x, n.Div(n.float(1), n.Add(n.Relu(n.vectors), n.Relu(n.vectors)))),
             n.Where(mask, endless, x), n.Where(mask, x, n.Log(n.Sub(n.Abs(n.vectors), n.float(100))))]
    return n.Concat(*[n.Flatten(p) for p in parts[:3]], n.Flatten(n.Where(mask, parts[3], x)), axis=1)


@case()
def masks_of_infinities(n):
    scores = n.MatMul(n.vectors, n.Transpose(n.vectors, perm=[0, 2, 1]))
    triangle = n.numbers(numpy.triu(numpy.full((FIELDS, FIELDS), -numpy.inf, numpy.float32), 1))
    masked = n.Where(n.numbers(numpy.tri(FIELDS, dtype=bool)), scores, n.float(-numpy.inf))
    return n.Concat(n.Flatten(n.Softmax(n.Add(scores, triangle))), n.Flatten(n.Softmax(masked)), axis=1)


@case()
def functions_of_numbers_of_the_code(n):
    """A causal mask, and what is computed where no sample is."""
    fixed = n.Constant(value=numpy_helper.from_array(numpy.linspace(-2, 2, FIELDS * FIELDS, dtype=numpy.float32).reshape(FIELDS, FIELDS)))
    seen = n.numbers(numpy.tri(FIELDS, dtype=bool))
    mask = n.Where(seen, n.float(0), n.float(-1e9))
    parts = [n.Sigmoid(fixed), n.Tanh(fixed), n.Softplus(fixed), n.Erf(fixed), n.Relu(fixed), n.Round(fixed), n.Clip(fixed, n.float(-0.5)),
             n.Clip(fixed, "", n.float(0.7)), n.Where(n.And(n.Less(fixed, n.float(1)), n.Not(n.Less(fixed, n.float(-1)))), fixed, n.float(3)),
             n.Cast(n.Or(n.Greater(fixed, n.float(1)), seen), to=TensorProto.FLOAT), n.Softmax(fixed), n.Mul(n.ReduceSum(fixed), n.ReduceMax(n.MatMul(fixed, fixed)))]
    scores = n.MatMul(n.vectors, n.Transpose(n.vectors, perm=[0, 2, 1]))
    rows = n.Flatten(n.MatMul(n.Softmax(n.Add(scores, mask)), n.vectors))
    return n.Concat(rows, *[n.Flatten(n.Mul(scores, part)) for part in parts], axis=1)


@case()
def slopes_of_an_axis(n):
    return n.PRelu(n.PRelu(n.vectors, n.drawn(FIELDS, 1)), n.drawn(DIM))


@case()
def means_of_several_and_what_only_one_of_two_is(n):
    above, below = n.Greater(n.vectors, n.float(0.5)), n.Less(n.vectors, n.float(0.75))
    either = n.CastLike(n.Xor(above, below), n.vectors)
    return n.Concat(n.Mean(n.vectors, n.drawn(DIM), n.Exp(n.vectors)), n.Mean(n.vectors), either, axis=1)


@case()
def above_a_threshold(n):
    return n.Concat(n.ThresholdedRelu(n.vectors, alpha=0.25), n.ThresholdedRelu(n.vectors), n.ThresholdedRelu(n.vectors, alpha=-0.5), axis=2)


@case()
def by_norms(n):
    zeros = n.Mul(n.vectors, n.float(0))
    return n.Concat(n.LpNormalization(n.vectors), n.LpNormalization(n.vectors, axis=1, p=1), n.Mul(n.LpNormalization(n.Relu(n.Add(
        n.vectors, n.drawn(FIELDS, 1))), axis=-1, p=2), n.float(2)), n.LpNormalization(zeros), axis=1)


@case()
def norms_of_zeros(n):
    """Those of the places behind a sequence's end, as PyTorch exports them: by a norm, a cosine and a distance."""
    x, target = n.Mul(n.history, n.drawn(DIM)), n.Slice(n.Mul(n.vectors, n.drawn(DIM)), n.ints(0), n.ints(1), n.ints(1))
    norm = lambda t: n.Sqrt(n.ReduceSum(n.Mul(t, t), n.ints(2), keepdims=1))
    size = n.ReduceL2(x, axes=[2], keepdims=1)
    unit = n.Div(x, n.Clip(size, n.float(1e-12)))
    cosine = n.Div(n.ReduceSum(n.Mul(x, target), n.ints(2), keepdims=1), n.Max(n.Mul(norm(x), norm(target)), n.float(1e-8)))
    apart = norm(n.Sub(x, n.Concat(*[n.Slice(x, n.ints(0), n.ints(1), n.ints(1))] * PLACES, axis=1)))
    return n.Concat(size, unit, cosine, apart, n.LpNormalization(x), axis=2)
