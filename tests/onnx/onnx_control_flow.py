"""Networks with graphs within nodes: loops, scans and branches, in the forms of tf2onnx (Keras) and of PyTorch's scripts."""
import numpy
from onnx import TensorProto, helper

from onnx_network import DENSE, DIM, FIELDS, case

BOOL, INT = TensorProto.BOOL, TensorProto.INT64
UNITS = 5


def truth(n, value):
    return n.numbers(numpy.array(value))


def first_state(n, units=UNITS):
    return n.Expand(n.float(0), n.Concat(n.batch(), n.ints(units), axis=0))


def cell(n, x, state, weight, recurrence, bias):
    return n.Tanh(n.Add(n.Add(n.MatMul(x, weight), bias), n.MatMul(state, recurrence)))


@case()
def loop_of_a_recurrence(n):
    """As Keras's SimpleRNN: places by a counter, weights go through, all states are kept."""
    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    weights = [n.drawn(DIM, UNITS), n.drawn(UNITS, UNITS), n.drawn(UNITS)]
    b = n.within()
    names = [b.name() for _ in range(7)]
    turn, _, place, state, *own = names
    x = b.Gather(first, place, axis=0)
    made = cell(b, x, state, *own)
    after = b.Add(place, b.numbers(numpy.array(1, dtype=numpy.int32)))
    more = b.And(b.Less(b.Cast(after, to=1), b.float(FIELDS)), b.Less(b.Cast(turn, to=1), b.float(FIELDS)))
    body = b.graph([(names[0], INT), (names[1], BOOL), (place, TensorProto.INT32), *names[3:]],
                   (more, BOOL), (after, TensorProto.INT32), made, *own, b.Identity(made))
    *_, kept = n.Loop(n.int(FIELDS), n.Less(n.float(0), n.float(4)), n.numbers(numpy.array(0, dtype=numpy.int32)), first_state(n),
                      *weights, outputs=6, body=body)
    return n.Squeeze(n.Slice(kept, n.ints(-1), n.ints(2**31 - 1), n.ints(0)), n.ints(0))


@case()
def loop_with_parameters_that_are_alike(n):
    """Which tells nothing elsewhere, since exporters merge what is equal; rounds train them together."""
    b = n.within()
    turn, goes_on, x = (b.name() for _ in range(3))
    y = b.Tanh(b.Add(b.MatMul(x, b.drawn(DIM, DIM)), b.numbers(numpy.zeros(DIM, dtype=numpy.float32))))
    y = b.LayerNormalization(y, b.numbers(numpy.ones(DIM, dtype=numpy.float32)), b.numbers(numpy.zeros(DIM, dtype=numpy.float32)))
    body = b.graph([(turn, INT), (goes_on, BOOL), x], (goes_on, BOOL), y)
    return n.Loop(n.int(3), "", n.vectors, outputs=1, body=body)


@case()
def weights_that_take_turns(n):
    """A round has what the other had in the one before."""
    b = n.within()
    turn, goes_on, x, first, second = (b.name() for _ in range(5))
    body = b.graph([(turn, INT), (goes_on, BOOL), x, first, second], (goes_on, BOOL), b.Sin(b.MatMul(x, first)), second, first)
    return n.Loop(n.int(3), "", n.vectors, n.drawn(DIM, DIM), n.drawn(DIM, DIM), outputs=3, body=body)[0]


@case()
def loop_that_ends_by_its_condition(n):
    b = n.within()
    turn, goes_on, x = (b.name() for _ in range(3))
    weight = b.Constant(value=helper.make_tensor("", TensorProto.FLOAT, [DIM, DIM], b.random.standard_normal(DIM * DIM)))
    y = b.Sin(b.MatMul(x, weight))
    body = b.graph([(turn, INT), (goes_on, BOOL), x], (b.Less(turn, b.int(2)), BOOL), y)
    return n.Loop("", truth(n, True), n.vectors, outputs=1, body=body)


@case()
def loops_within_loops(n):
    """An inner one reads a name of the outermost graph, has constants of the same name as another, and runs as often as told."""
    outer = n.drawn(DIM)
    b = n.within()
    turn, goes_on, x = (b.name() for _ in range(3))
    c = b.within()
    inner_turn, inner_goes_on, y = (c.name() for _ in range(3))
    c.constants.append(helper.make_tensor("same", TensorProto.FLOAT, [DIM], c.random.standard_normal(DIM) + 1))
    z = c.Mul(c.Add(y, outer), "same")
    inner = c.graph([(inner_turn, INT), (inner_goes_on, BOOL), y], (c.Identity(inner_goes_on), BOOL), z, c.Sigmoid(z))
    looped, kept = b.Loop(b.Add(turn, b.int(1)), "", x, outputs=2, body=inner)
    b.constants.append(helper.make_tensor("same", TensorProto.FLOAT, [DIM], c.random.standard_normal(DIM) + 1))
    out = b.Tanh(b.Add(b.Mul(looped, "same"), b.ReduceSum(kept, b.ints(0), keepdims=0)))
    body = b.graph([(turn, INT), (goes_on, BOOL), x], (goes_on, BOOL), out)
    return n.Loop(n.int(3), "", n.vectors, outputs=1, body=body)


@case()
def loop_that_does_not_run(n):
    b = n.within()
    turn, goes_on, x = (b.name() for _ in range(3))
    body = b.graph([(turn, INT), (goes_on, BOOL), x], (goes_on, BOOL), b.Exp(x))
    return n.Add(n.vectors, n.Loop(n.int(0), truth(n, True), n.vectors, outputs=1, body=body))


@case()
def what_only_a_next_round_would_read(n):
    b = n.within()
    turn, goes_on, x, state = (b.name() for _ in range(4))
    body = b.graph([(turn, INT), (goes_on, BOOL), x, state], (goes_on, BOOL), b.Add(x, b.MatMul(state, b.drawn(DENSE, DIM))),
                   b.Tanh(b.Mul(state, b.drawn(DENSE))))
    x = n.ReduceMean(n.vectors, axes=[1], keepdims=0)
    return n.Loop(n.int(3), "", x, n.dense, outputs=2, body=body)[0]


@case()
def branches(n):
    """By the rank, as PyTorch scripts squeeze; by sizes; one within another."""
    def choose(n, condition, make_then, make_else):
        graphs = {}
        for name, make in (("then_branch", make_then), ("else_branch", make_else)):
            b = n.within()
            graphs[name] = b.graph([], make(b))
        return n.If(condition, **graphs)

    three = n.Equal(n.Size(n.Shape(n.vectors)), n.int(3))
    x = choose(n, three, lambda b: b.MatMul(n.vectors, b.drawn(DIM, UNITS)), lambda b: b.Identity(n.vectors))
    few = n.Less(n.Gather(n.Shape(x), n.int(-1)), n.int(UNITS))
    return choose(n, few, lambda b: b.Identity(x), lambda b: choose(b, truth(b, True), lambda c: c.Mul(x, c.drawn(UNITS)),
                                                                     lambda c: c.Exp(x)))


@case()
def scans(n):
    def recurrence(n, x, **attributes):
        b = n.within()
        state, place = b.name(), b.name()
        made = cell(b, place, state, b.drawn(DIM, UNITS), b.drawn(UNITS, UNITS), b.drawn(UNITS))
        return n.Scan(first_state(n), x, outputs=2, num_scan_inputs=1, body=b.graph([state, place], made, b.Identity(made)), **attributes)

    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    forward, kept = recurrence(n, first)
    backward, all_backward = recurrence(n, n.vectors, scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[1],
                                        scan_output_directions=[1])
    return n.Concat(n.Unsqueeze(forward, n.ints(1)), n.Transpose(kept, perm=[1, 0, 2]), n.Unsqueeze(backward, n.ints(1)), all_backward,
                    axis=1)


@case()
def scan_of_two_and_of_parameters(n):
    b = n.within()
    total, x, scale = (b.name() for _ in range(3))
    more = b.Add(total, b.Mul(x, scale))
    body = b.graph([total, x, scale], more, b.Relu(more))
    start = n.ReduceSum(n.vectors, n.ints(1), keepdims=0)
    _, kept = n.Scan(start, n.Transpose(n.vectors, perm=[1, 0, 2]), n.drawn(FIELDS, DIM), outputs=2, num_scan_inputs=2, body=body)
    return n.Transpose(kept, perm=[1, 2, 0])


@case()
def weights_cut_in_every_round(n):
    """One Split of a parameter, read by one node, which runs several times."""
    both = n.drawn(2, UNITS)
    b = n.within()
    turn, goes_on, x = (b.name() for _ in range(3))
    first, second = b.Split(both, axis=0, outputs=2)
    y = b.Add(b.Mul(b.Tanh(x), b.Squeeze(first, b.ints(0))), b.Squeeze(second, b.ints(0)))
    body = b.graph([(turn, INT), (goes_on, BOOL), x], (goes_on, BOOL), y)
    return n.Loop(n.int(3), "", n.MatMul(n.dense, n.drawn(DENSE, UNITS)), outputs=1, body=body)


@case()
def loop_of_parameters_alone(n):
    """Whose inputs are weights, too large for every sample to compute them anew."""
    b = n.within()
    turn, goes_on, weight = (b.name() for _ in range(3))
    body = b.graph([(turn, INT), (goes_on, BOOL), weight], (goes_on, BOOL), weight, b.Tanh(b.MatMul(n.vectors, weight)))
    kept = n.Loop(n.int(2), "", n.drawn(DIM, 2100, scale=0.1), outputs=2, body=body)[1]
    return n.ReduceMean(n.Transpose(kept, perm=[1, 0, 2, 3]), axes=[3], keepdims=0)


@case()
def output_without_a_name_within_a_loop(n):
    first = n.Transpose(n.vectors, perm=[1, 0, 2])
    b = n.within()
    turn, goes_on, x, total = (b.name() for _ in range(4))
    last = b.name()
    b.nodes.append(helper.make_node("GRU", [x, b.drawn(1, 9, DIM), b.drawn(1, 9, 3), b.drawn(1, 18)], ["", last], hidden_size=3, linear_before_reset=1))
    body = b.graph([(turn, INT), (goes_on, BOOL), x, total], (goes_on, BOOL), b.Tanh(x), b.Add(total, last))
    start = n.Expand(n.float(0), n.Concat(n.ints(1), n.batch(), n.ints(3), axis=0))
    return n.Transpose(n.Loop(n.int(2), "", first, start, outputs=2, body=body)[1], perm=[1, 0, 2])


@case()
def one_weight_in_two_forms_in_a_round(n):
    weight = n.drawn(DIM, DIM)
    b = n.within()
    turn, goes_on, x = (b.name() for _ in range(3))
    y = b.MatMul(b.Tanh(b.MatMul(x, weight)), b.Transpose(weight, perm=[1, 0]))
    body = b.graph([(turn, INT), (goes_on, BOOL), x], (goes_on, BOOL), y)
    return n.Loop(n.int(2), "", n.vectors, outputs=1, body=body)


def looped(n, rounds, condition, make_condition):
    b = n.within()
    turn, goes_on, x = (b.name() for _ in range(3))
    body = b.graph([(turn, INT), (goes_on, BOOL), x], (make_condition(b, x), BOOL), b.Tanh(b.Identity(x)))
    return n.Loop(rounds, condition, n.dense, outputs=1, body=body)


def branch_by_samples(n):
    b, c = n.within(), n.within()
    condition = n.Greater(n.ReduceMax(n.dense, axes=[1]), n.float(0))
    return n.If(condition, then_branch=b.graph([], b.Exp(n.dense)), else_branch=c.graph([], c.Tanh(n.dense)))


REFUSED = {
    "(If): its condition is not known when the file is read": branch_by_samples,
    "runs more than 1024 times": lambda n: looped(n, n.int(2**62), "", lambda b, x: truth(b, True)),
    "whether it goes on is not known": lambda n: looped(n, n.int(3), "", lambda b, x: b.Greater(b.ReduceMax(x, axes=[1]), b.float(0))),
    "how often it runs is not known": lambda n: looped(n, n.Squeeze(n.batch()), "", lambda b, x: truth(b, True)),
}
