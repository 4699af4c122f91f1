"""Networks as people write them in Keras, of dense [batch, 3] and vectors [batch, 4, 8]; tests/onnx/keras_test.py exports them.

A network makes numbers [batch, any]; the test puts a layer of one unit behind. What no layer does is a Lambda layer of keras.ops.
"""
import keras
import numpy
from keras import layers, ops

from shapes import DENSE, DIM, FIELDS

NETWORKS = []


def network(build):
    NETWORKS.append(build)
    return build


def of(function, *inputs):
    return layers.Lambda(lambda x: function(*x) if isinstance(x, list) else function(x))(list(inputs) if len(inputs) > 1 else inputs[0])


def flat(dense, vectors):
    return layers.Concatenate()([dense, layers.Flatten()(vectors)])


# Networks of numbers.


@network
def tower(dense, vectors):
    x = flat(dense, vectors)
    for width in (16, 8):
        x = layers.Dense(width, use_bias=False)(x)
        x = layers.Activation("relu")(layers.BatchNormalization()(x))
        x = layers.Dropout(0.3)(x)
    return x


@network
def factorization_machine(dense, vectors):
    pairs = of(lambda v: 0.5 * ops.sum(ops.square(ops.sum(v, axis=1)) - ops.sum(ops.square(v), axis=1), axis=1, keepdims=True), vectors)
    return layers.Add()([pairs, layers.Dense(1)(dense), layers.Dense(1)(layers.Dense(8, activation="relu")(flat(dense, vectors)))])


class Cross(layers.Layer):
    def build(self, shape):
        self.weight = self.add_weight(shape=(shape[-1], 1), initializer="random_normal")
        self.bias = self.add_weight(shape=(shape[-1],), initializer="random_normal")

    def call(self, x):
        return x * ops.matmul(x, self.weight) + self.bias + x


@network
def cross_layers(dense, vectors):
    x = first = flat(dense, vectors)
    x = layers.Add()([layers.Multiply()([first, layers.Dense(35)(x)]), x])
    return Cross()(Cross()(x))


@network
def dot_products(dense, vectors):
    products = of(lambda v: ops.reshape(ops.matmul(v, ops.transpose(v, (0, 2, 1))), (-1, FIELDS * FIELDS)), vectors)
    rows, columns = numpy.triu_indices(FIELDS, 1)
    pairs = of(lambda p: ops.take(p, rows * FIELDS + columns, axis=1), products)
    first, second = (of(lambda v, k=k: v[:, k], vectors) for k in (0, 1))
    alike = layers.Dot(axes=1, normalize=True)([first, second])
    return layers.Concatenate()([layers.Dense(8, activation="relu")(dense), pairs, alike, layers.Flatten()(layers.Dot(axes=2)([vectors, vectors]))])


@network
def compressed_interactions(dense, vectors):
    outer = of(lambda v: ops.reshape(ops.einsum("bhd,bmd->bdhm", v, v), (-1, DIM, FIELDS * FIELDS)), vectors)
    return of(lambda x: ops.sum(x, axis=1), layers.Conv1D(5, 1, activation="relu")(outer))


@network
def experts(dense, vectors):
    x = flat(dense, vectors)
    each = of(lambda *e: ops.stack(e, axis=1), *[layers.Dense(6, activation="relu")(x) for _ in range(3)])
    gate = layers.Dense(3, activation="softmax")(x)
    mixed = of(lambda g, e: ops.sum(ops.expand_dims(g, -1) * e, axis=1), gate, each)
    return layers.Concatenate()([mixed, of(lambda g, e: ops.einsum("bk,bkd->bd", g, e), gate, each)])


@network
def squeeze_and_excite(dense, vectors):
    squeezed = of(lambda v: ops.mean(v, axis=-1), vectors)
    gates = layers.Dense(4, activation="relu")(layers.Dense(2, activation="relu")(squeezed))
    return flat(dense, layers.Multiply()([vectors, layers.Reshape((4, 1))(gates)]))


@network
def product_of_tensors(dense, vectors):
    x = layers.EinsumDense("bfd,fde->bfe", output_shape=(FIELDS, 6), bias_axes="fe", activation="relu")(vectors)
    return flat(dense, layers.EinsumDense("bfd,dhe->bfhe", output_shape=(FIELDS, 2, 3))(x))


# Activations and functions.


@network
def activations(dense, vectors):
    x = layers.Dense(12)(flat(dense, vectors))
    for name in ("gelu", "silu", "leaky_relu", "elu", "selu", "softplus", "hard_sigmoid", "tanh", "relu6", "softsign", "mish", "celu",
                 "hard_silu", "softmax", "log_softmax", "exponential", "log_sigmoid", "hard_tanh", "tanh_shrink", "hard_shrink",
                 "soft_shrink", "squareplus", "sparse_plus", "sparse_sigmoid"):
        x = layers.Rescaling(0.5)(layers.Add()([layers.Activation(getattr(keras.activations, name))(x), x]))
    return layers.Concatenate()([layers.PReLU()(x), layers.Flatten()(layers.PReLU(shared_axes=[1])(vectors))])


@network
def functions(dense, vectors):
    x = of(lambda d: ops.log1p(ops.abs(d)) + ops.sqrt(ops.abs(d) + 1.0) + ops.sign(d) * ops.square(d) + ops.clip(d, -1.0, 1.0), dense)
    y = of(lambda d: ops.sin(d) + ops.cos(d) + ops.arctan(d) + ops.erf(d) + ops.expm1(d) + ops.reciprocal(1.0 + d * d) + ops.floor(d), dense)
    z = of(lambda d: ops.where(d > 0, d, 0.1 * d) + ops.cast(ops.greater(d, 0.5), "float32"), dense)
    return layers.Concatenate()([x, y, z])


@network
def reductions(dense, vectors):
    parts = [ops.var, ops.std, ops.max, ops.min, ops.prod, ops.logsumexp]
    return of(lambda v: ops.concatenate([reduce(v, axis=1) for reduce in parts], axis=-1), vectors)


@network
def merges(dense, vectors):
    a, b = of(lambda v: v[:, :2], vectors), of(lambda v: v[:, 2:], vectors)
    return flat(dense, layers.Concatenate()([layers.Maximum()([a, b]), layers.Minimum()([a, b]), layers.Average()([a, b]), layers.Subtract()([a, b])]))


@network
def moved(dense, vectors):
    parts = [layers.Permute((2, 1))(vectors), layers.Cropping1D((1, 1))(vectors), layers.ZeroPadding1D((1, 2))(vectors),
             layers.UpSampling1D(2)(vectors), of(lambda v: ops.flip(v, axis=1) + ops.roll(v, 1, axis=1), vectors),
             of(lambda v: ops.cumsum(v, axis=1), vectors), of(lambda d: ops.tile(ops.expand_dims(d, 1), (1, FIELDS, 1)), dense)]
    return layers.Concatenate()([layers.Flatten()(part) for part in parts])


@network
def cut(dense, vectors):
    x = layers.Dense(8)(flat(dense, vectors))
    return of(lambda x: ops.multiply(*ops.split(x, 2, axis=-1)), x)


# Normalisations.


@network
def normalizations(dense, vectors):
    x = layers.LayerNormalization()(vectors)
    x = layers.RMSNormalization()(layers.GroupNormalization(groups=2)(x))
    x = layers.BatchNormalization()(layers.Add()([x, layers.UnitNormalization()(vectors)]))
    return flat(dense, layers.Add()([x, of(lambda v: ops.normalize(v, axis=-1), vectors)]))


@network
def normalized_weights(dense, vectors):
    return layers.SpectralNormalization(layers.Dense(6))(flat(dense, vectors))


# Attention.


@network
def encoder(dense, vectors):
    x = layers.LayerNormalization()(layers.Add()([vectors, layers.MultiHeadAttention(2, 4, dropout=0.1)(vectors, vectors)]))
    wide = layers.Dense(DIM)(layers.Dense(16, activation="gelu")(x))
    return layers.GlobalAveragePooling1D()(layers.LayerNormalization()(layers.Add()([x, wide])))


@network
def attention_with_masks(dense, vectors):
    causal = layers.MultiHeadAttention(2, 4)(vectors, vectors, use_causal_mask=True)
    return layers.Concatenate()([layers.Flatten()(causal), dense])


@network
def attention_of_one_to_others(dense, vectors):
    target, past = of(lambda v: v[:, :1], vectors), of(lambda v: v[:, 1:], vectors)
    return flat(dense, layers.MultiHeadAttention(2, 4)(target, past))


@network
def attention_of_groups(dense, vectors):
    return flat(dense, layers.GroupQueryAttention(4, 4, 2)(vectors, vectors))


@network
def attention_without_weights(dense, vectors):
    return flat(dense, layers.Concatenate()([layers.Attention(use_scale=True)([vectors, vectors]), layers.AdditiveAttention()([vectors, vectors])]))


@network
def interest(dense, vectors):
    target, past = layers.RepeatVector(3)(of(lambda v: v[:, 0], vectors)), of(lambda v: v[:, 1:], vectors)
    x = layers.Concatenate()([target, past, layers.Subtract()([target, past]), layers.Multiply()([target, past])])
    weights = layers.Softmax(axis=1)(layers.Dense(1)(layers.Dense(8, activation="sigmoid")(x)))
    return of(lambda w, p: ops.sum(w * p, axis=1), weights, past)


# Recurrences: loops in the file, but for LSTM.


@network
def gated(dense, vectors):
    return layers.Concatenate()([layers.GRU(6)(vectors), layers.GRU(5, reset_after=False)(vectors), layers.GRU(4, unroll=True)(vectors)])


@network
def gated_sequence(dense, vectors):
    return flat(dense, layers.GRU(5, return_sequences=True)(vectors))


@network
def gated_from_a_state(dense, vectors):
    return layers.GRU(6)(vectors, initial_state=layers.Dense(6, activation="tanh")(dense))


@network
def gated_both_ways(dense, vectors):
    return layers.Bidirectional(layers.GRU(6))(vectors)


@network
def gated_with_a_mask(dense, vectors):
    return layers.GRU(5)(layers.Masking()(of(lambda v: ops.relu(v - 1.0), vectors)))


@network
def with_a_memory(dense, vectors):
    out, hidden, memory = layers.LSTM(6, return_state=True)(vectors)
    return layers.Concatenate()([out, hidden, memory, layers.Flatten()(layers.LSTM(4, return_sequences=True)(vectors))])


@network
def with_a_memory_both_ways(dense, vectors):
    return flat(dense, layers.Bidirectional(layers.LSTM(6, return_sequences=True))(vectors))


@network
def simple_recurrence(dense, vectors):
    return layers.SimpleRNN(6)(vectors)


# Windows.


@network
def convolutions(dense, vectors):
    parts = [layers.Conv1D(5, 2, activation="relu")(vectors), layers.MaxPooling1D(2)(layers.Conv1D(6, 3, padding="same")(vectors)),
             layers.Conv1D(6, 3, padding="causal")(vectors), layers.SeparableConv1D(6, 3, padding="same")(vectors),
             layers.DepthwiseConv1D(2)(vectors), layers.AveragePooling1D(2)(vectors),
             layers.TimeDistributed(layers.Dense(5, activation="relu"))(layers.SpatialDropout1D(0.2)(vectors))]
    pooled = [layers.GlobalAveragePooling1D()(vectors), layers.GlobalMaxPooling1D()(vectors)]
    return layers.Concatenate()([layers.Flatten()(part) for part in parts] + pooled)


@network
def images(dense, vectors):
    x = layers.Reshape((4, 8, 1))(vectors)
    wide = layers.MaxPooling2D(2)(layers.Conv2D(3, (2, 3), padding="same", activation="relu")(x))
    high = layers.AveragePooling2D((1, 2))(layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(3, (4, 1), use_bias=False)(x))))
    return layers.Concatenate()([layers.Flatten()(wide), layers.Flatten()(high)])
