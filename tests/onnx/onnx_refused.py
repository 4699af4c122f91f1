"""Networks that cannot be read: REFUSED, by what the error says."""
import numpy
from onnx import TensorProto, numpy_helper

import onnx_control_flow
import onnx_functions
import onnx_places
import onnx_sequences
from onnx_network import BATCH, DENSE, DIM, FIELDS

REFUSED = {
    "its output 1, ": lambda n: n.Mul(*n.LayerNormalization(n.vectors, n.drawn(DIM), outputs=2)),
    ", is read, and is not made": lambda n: n.Where(n.Dropout(n.vectors, outputs=2)[1], n.vectors, n.float(0)),
    "of known whole numbers along some of their axes": lambda n: n.Mul(n.dense, n.Cast(n.ReduceProd(n.numbers(
        numpy.array([[1, 2, 3], [4, 5, 6]], dtype=numpy.int64)), axes=[0]), to=TensorProto.FLOAT)),
    "is a sparse_initializer": lambda n: n.Mul(n.dense, n.sparse(DENSE)),
    '" has NaN among its numbers': lambda n: n.Mul(n.dense, n.numbers(numpy.array([1, numpy.nan, 2], dtype=numpy.float32))),
    **onnx_control_flow.REFUSED,
    **onnx_functions.REFUSED,
    **onnx_places.REFUSED,
    **onnx_sequences.REFUSED,
    "that would mix samples": lambda n: n.Add(n.ReduceSum(n.dense, n.ints(1), keepdims=0), n.ReduceSum(n.dense, n.ints(1))),
    "export with the batch as dynamic axis": lambda n: n.Reshape(n.vectors, n.ints(BATCH, FIELDS * DIM)),
    "the shape [batch * 4, 8] for [batch, 4, 8]: it would mix samples": lambda n: n.Reshape(
        n.Expand(n.Constant(value=numpy_helper.from_array(numpy.arange(FIELDS * DIM, dtype=numpy.float32).reshape(1, FIELDS, DIM))),
                 n.Concat(n.batch(), n.ints(1, 1), axis=0)), n.ints(-1, DIM)),
    "a constant [batch, batch]": lambda n: n.ReduceSum(n.ConstantOfShape(n.Concat(n.batch(), n.batch(), axis=0)), n.ints(1)),
    "a constant [batch * 2097152], which has more than 2^20 numbers": lambda n: n.Add(
        n.Reshape(n.dense, n.ints(-1)), n.ConstantOfShape(n.Mul(n.batch(), n.ints(2 << 20)))),
    "to [0, 4, 8] from [batch, 4, 8]": lambda n: n.Expand(n.vectors, n.ints(0, FIELDS, DIM)),
    "repeats [1, batch, 1] of [batch, 4, 8]": lambda n: n.Tile(n.vectors, n.Concat(n.ints(1), n.batch(), n.ints(1), axis=0)),
    "of [batch, 3]: it would mix samples": lambda n: n.Trilu(n.dense),
    "is the batch's": lambda n: n.Softmax(n.vectors, axis=0),
    "is the same for every sample": lambda n: n.Softmax(n.drawn(1, 4), axis=1),
    "which has 20480 numbers, above 16384": lambda n: n.MatMul(n.Concat(*[n.vectors] * 16, axis=2), n.Tanh(n.drawn(16 * DIM, 160))),
    "takes place 4 of each sample's 4; expected -4 to 3": lambda n: n.GatherElements(
        n.vectors, n.Expand(n.ints(4), n.Concat(n.batch(), n.ints(1, DIM), axis=0)), axis=1),
    "; expected the same sizes along all other axes": lambda n: n.GatherElements(
        n.vectors, n.Expand(n.ints(1), n.Concat(n.batch(), n.ints(2, DIM - 1), axis=0)), axis=1),
    "its weights [3, 5] do not fit": lambda n: n.MatMul(n.vectors, n.Tanh(n.drawn(3, 5))),
    "alpha, beta or transA of weights": lambda n: n.Gemm(n.dense, n.Tanh(n.drawn(DENSE, 2)), alpha=0.5),
    "in another form": lambda n: (lambda w: n.MatMul(n.MatMul(n.vectors, w), n.Transpose(w, perm=[1, 0])))(n.drawn(DIM, 2049)),
    "the batch meets a constant of 5 numbers": lambda n: n.Add(n.vectors, n.drawn(BATCH, FIELDS, DIM)),
    "[batch, 3] times [3, batch]: that would mix samples": lambda n: n.MatMul(n.dense, n.Transpose(n.dense, perm=[1, 0])),
    "a direction begins at [1, 6], expected [batch, 6]": lambda n: n.GRU(n.Transpose(n.vectors, perm=[1, 0, 2]), n.drawn(1, 18, DIM), n.drawn(1, 18, 6), "", "",
                                            n.drawn(1, 1, 6), outputs=2, hidden_size=6, linear_before_reset=1)[1],
    "some of its weights in common": lambda n: (lambda w: n.Concat(*[n.Flatten(n.Transpose(n.GRU(
        n.Transpose(n.vectors, perm=[1, 0, 2]), w, n.drawn(2, 18, 6), n.drawn(2, 36), outputs=2, hidden_size=6, linear_before_reset=1,
        direction="bidirectional")[1], perm=[1, 0, 2])) for _ in range(2)], axis=1))(n.drawn(2, 18, DIM)),
    "4 heads of queries and 3 of keys": lambda n: n.Attention(n.vectors, *[n.MatMul(n.vectors, n.drawn(DIM, 6))] * 2, q_num_heads=4,
                                                              kv_num_heads=3),
    "averages that leave out what is padded": lambda n: n.AveragePool(n.vectors, kernel_shape=[DIM], auto_pad="SAME_UPPER"),
    "ceil_mode where windows reach beyond": lambda n: n.MaxPool(n.vectors, kernel_shape=[3], strides=[2], ceil_mode=1),
    "of more than 256 places": lambda n: n.Conv(n.Reshape(n.Concat(*[n.vectors] * 40, axis=1), n.ints(0, 1, 40, 32)), n.drawn(1, 1, 32, 32)),
    "in 3 groups does not fit": lambda n: n.Conv(n.vectors, n.drawn(3, 1, 2), group=3),
    "lengths that are known when the file is read, all of them 4": lambda n: n.ReverseSequence(
        n.Transpose(n.vectors, perm=[1, 0, 2]), n.Expand(n.ints(3), n.batch()), time_axis=0, batch_axis=1),
    "is computed; expected an initializer or a constant": lambda n: n.GRU(
        n.Transpose(n.vectors, perm=[1, 0, 2]), n.Tanh(n.drawn(1, 18, DIM)), n.drawn(1, 18, 6), outputs=2, hidden_size=6,
        linear_before_reset=1)[1],
    '"b>" as the letters of 2 axes': lambda n: n.Einsum("dense", equation="b>->b"),
    "the batch meets a constant's axis": lambda n: n.Einsum("dense", n.drawn(5, DENSE), equation="bi,bi->bi"),
    "(GRU): input": lambda n: (lambda w: n.Add(n.Gather(n.ReduceSum(w, n.ints(1), keepdims=0), n.ints(0), axis=0), n.GRU(
        n.Transpose(n.vectors, perm=[1, 0, 2]), n.Unsqueeze(n.Slice(w, n.ints(0), n.ints(18), n.ints(0)), n.ints(0)), n.drawn(1, 18, 6),
        outputs=2, hidden_size=6, linear_before_reset=1)[1]))(n.drawn(20, DIM)),
    'its activation is "Elu"': lambda n: n.RNN(n.Transpose(n.vectors, perm=[1, 0, 2]), n.drawn(1, 6, DIM), n.drawn(1, 6, 6), outputs=2,
                                               hidden_size=6, activations=["Elu"])[1],
    "[1, 2] meets [1, 3]": lambda n: n.Reshape(n.vectors, n.Add(*(
        n.numbers(numpy.ones(dims, dtype=numpy.int64)) for dims in ((1, 2), (1, 3))))),
}
