"""Networks with functions of their own, as exporters write them for modules and onnxscript for its functions."""
import numpy
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from onnx_network import DENSE, DIM, case


def linear(b, x, weight, bias):
    return b.Add(b.MatMul(x, weight), bias)


@case()
def a_function_called_twice(n):
    n.function("linear", ["x", "weight", "bias"], linear)
    x = n.Relu(n.call("linear", n.dense, n.drawn(DENSE, 6), n.drawn(6)))
    return n.call("linear", x, n.drawn(6, 4), n.drawn(4))


@case(18)
def functions_within_functions(n):
    n.function("linear", ["x", "weight", "bias"], linear)
    n.function("block", ["x", "weight", "bias"], lambda b, x, w, c: b.Tanh(b.call("linear", x, w, c)))
    weight, bias = n.drawn(DIM, DIM), n.drawn(DIM)
    return n.call("block", n.call("block", n.vectors, weight, bias), weight, bias)


@case()
def attributes_of_the_call_and_their_defaults(n):
    def leaky(b, x):
        y = b.LeakyRelu(x)
        b.given("alpha", AttributeProto.FLOAT, "slope")
        return y

    n.function("leaky", ["x"], leaky, defaults=[("slope", 0.25)])
    n.function("elu", ["x"], lambda b, x: (b.Elu(x), b.given("alpha", AttributeProto.FLOAT, "alpha"))[0], attributes=["alpha"])
    parts = n.call("leaky", n.dense), n.call("leaky", n.dense, slope=0.5), n.call("elu", n.dense), n.call("elu", n.dense, alpha=0.5)
    return n.Concat(*parts, axis=1)


@case()
def results_that_nobody_reads(n):
    n.function("both", ["x", "unused"], lambda b, x, unused: [b.Exp(b.Mul(x, b.float(0.5))), b.Tanh(x)])
    return n.call("both", n.dense, n.dense, outputs=2)[1]


@case()
def a_function_in_a_branch_and_a_branch_in_a_function(n):
    def chosen(b, x, wide):
        then, other = b.within(), b.within()
        graphs = then.graph([], then.Exp(then.Neg(then.Abs(x)))), other.graph([], other.Tanh(x))
        return b.If(wide, then_branch=graphs[0], else_branch=graphs[1])

    n.function("twice", ["x"], lambda b, x: b.Add(x, x))
    n.function("chosen", ["x", "wide"], chosen)
    wide = n.Greater(n.Squeeze(n.Shape(n.dense, start=1, end=2), n.ints(0)), n.int(DENSE - 1))
    branch, rest = n.within(), n.within()
    outer = n.If(wide, then_branch=branch.graph([], branch.call("twice", n.dense)), else_branch=rest.graph([], rest.Neg(n.dense)))
    return n.Concat(outer, n.call("chosen", n.dense, wide), n.call("chosen", n.dense, n.Cast(n.int(0), to=TensorProto.BOOL)), axis=1)


def calls_itself(n):
    n.function("again", ["x"], lambda b, x: b.call("again", b.Relu(x)))
    return n.call("again", n.dense)


def calls_itself_in_a_branch(n):
    def again(b, x, wide):
        then, other = b.within(), b.within()
        return b.If(wide, then_branch=then.graph([], then.call("branch", x, wide)), else_branch=other.graph([], other.Tanh(x)))

    n.function("branch", ["x", "wide"], again)
    return n.call("branch", n.dense, n.Cast(n.int(1), to=TensorProto.BOOL))


def doubles(n):
    n.function("f0", ["x"], lambda b, x: b.Tanh(x))
    for k in range(1, 40):
        n.function(f"f{k}", ["x"], lambda b, x: b.call(f"f{k - 1}", b.call(f"f{k - 1}", x)))
    return n.call("f39", n.dense)


def called_with(n, inputs, opset=None):
    n.function("one", ["x"], lambda b, x: b.Tanh(x), opset=opset)
    return n.call("one", *inputs)


def twice_there(n):
    for _ in range(2):
        n.function("same", ["x"], lambda b, x: b.Tanh(x))
    return n.call("same", n.dense)


def heavy(n):
    numbers = numpy_helper.from_array(numpy.ones(1 << 18, dtype=numpy.float32))
    n.function("heavy", ["x"], lambda b, x: b.Add(x, b.ReduceMean(b.Constant(value=numbers), axes=[0])))
    x = n.dense
    for _ in range(300):
        x = n.call("heavy", x)
    return x


def with_numbers_of_the_call(n):
    def weighs(b, x):
        for _ in range(70):
            numbers = b.Constant()
            b.given("value", AttributeProto.TENSOR, "numbers")
            x = b.Add(x, b.ReduceMean(numbers, axes=[0]))
        return x

    n.function("weighs", ["x"], weighs, attributes=["numbers"])
    return n.call("weighs", n.dense, numbers=numpy_helper.from_array(numpy.ones(1 << 20, dtype=numpy.float32)))


def with_a_long_name_of_the_call(n):
    def named(b, x):
        for _ in range(70):
            x = b.Tanh(x)
        return x

    n.function("named", ["x"], named)
    n.nodes.append(helper.make_node("named", [n.dense], ["y" * (2 << 20)], domain="own"))
    return n.Tanh("y" * (2 << 20))


def of_an_unknown_op(n):
    n.function("odd", ["x"], lambda b, x: b.Erfinv(x))
    return n.call("odd", n.dense)


REFUSED = {
    'the function "own.again" is called within functions, 64 deep': calls_itself,
    'the function "own.branch" is called within functions, 64 deep': calls_itself_in_a_branch,
    "its functions, put in place, are more than 200000 nodes": doubles,
    'the function "own.heavy" brings what is put in the place of calls': heavy,
    'the function "own.weighs" brings what is put in the place of calls': with_numbers_of_the_call,
    'the function "own.named" brings what is put in the place of calls': with_a_long_name_of_the_call,
    'the function "own.one" has 1 inputs and 1 outputs, and a node that calls it 2 and 1': lambda n: called_with(n, [n.dense, n.dense]),
    'the function "own.one" is of opset 13, and the file of 17': lambda n: called_with(n, [n.dense], 13),
    'the function "own.same" gives "x", which it has not made': lambda n: (
        n.function("same", ["x"], lambda b, x: x), n.call("same", n.dense))[1],
    '"own.same" is the name of two of its functions': twice_there,
    "ops that cannot be read: Erfinv": of_an_unknown_op,
}
