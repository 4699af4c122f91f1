"""What the reference forms of the zoo's models share: filling, and layers written with numpy.

A tensor that the service fills too (a parameter, a running statistic, an input) has a number p and
holds s sin(1 + 7 p + 1.3 i + 0.17 i^2), rounded to float32, in its row-major element i: s is 1 for
inputs and 0.6 for the others; a running variance is 0.5 plus the absolute value of that.
tests/worker/zoo_golden_test.cc fills alike.
"""

import math

import numpy as np

FIELDS, PLACES = 5, 4  # of TinyJob: sparse columns, a sequence's max_length
LENGTHS = [3, 1, 4, 0, 2]
BATCH = len(LENGTHS)


def fill(p, shape, scale, variance):
    i = np.arange(math.prod(shape), dtype=np.float64)
    values = scale * np.sin(1 + 7 * p + 1.3 * i + 0.17 * i * i)
    if variance:
        values = 0.5 + np.abs(values)
    return values.astype(np.float32).astype(np.float64).reshape(shape)


class Network:
    """One case: its options, and the tensors that the model asked for, in that order.

    dims: of the embedding tables beside the linear one, by name; dense: how many dense features;
    sequences: the table of each column that is one.
    """

    def __init__(self, options, dims, dense, sequences):
        self.options = options
        self.dims = dims
        self.features_of_dense = dense
        self.sequences = sequences
        self.filled = {}  # by name: kind, p, shape
        self.values = {}

    def option(self, name, by_default):
        return self.options.get(name, by_default)

    def tensor(self, kind, name, shape):
        if name in self.values:
            assert self.filled[name][2] == shape, name
            return self.values[name]
        p = len(self.filled)
        self.filled[name] = (kind, p, shape)
        scale = 1.0 if kind == "input" else 0.6
        self.values[name] = fill(p, shape, scale, name.endswith("/running_var"))
        return self.values[name]

    def trained(self, name, *shape):
        return self.tensor("trained", name, shape)

    def statistic(self, name, *shape):
        return self.tensor("statistic", name, shape)

    # Inputs.

    def dense(self):
        return self.tensor("input", "dense", (BATCH, self.features_of_dense))

    def table(self, name):
        dim = 1 if name == "linear" else self.dims[name]
        return self.tensor("input", name, (BATCH, FIELDS, dim))

    def sequence(self, column):
        table = self.sequences[column]
        rows = self.tensor("input", f"{column}.{table}", (BATCH, PLACES, self.dims[table])).copy()
        for b, length in enumerate(LENGTHS):
            rows[b, length:] = 0
        return rows

    def tables(self):
        """All but the one that AFN+ has for its deep network and those that steer gates."""
        taken = {self.option("gate1_table", None), self.option("gate2_table", None)}
        if self.option("ensemble", False):
            taken.add("deep")
        return [self.table(name) for name in self.dims if name not in taken]

    def vectors(self):
        """Of the fields, table after table."""
        return np.concatenate(self.tables(), axis=1)

    def all_vectors(self):
        """AutoInt, section 4.3: e_m = v_m x_m for a numerical field m, behind the others."""
        vectors, count = self.vectors(), self.features_of_dense
        if not count:
            return vectors
        directions = self.trained("dense/directions/value", count, vectors.shape[2])
        dense = np.einsum("bm,md->bmd", self.dense(), directions)
        return np.concatenate([vectors, dense], axis=1)

    def features(self):
        """Embeddings of all fields, table after table, then the dense features."""
        dense = [self.dense()] if self.features_of_dense else []
        return np.concatenate([flat(rows) for rows in self.tables()] + dense, axis=1)

    # Layers.

    def linear(self, name, x, units, bias=True):
        """W x + b of the last axis."""
        y = np.einsum("ui,...i->...u", self.trained(name + "/weight", units, x.shape[-1]), x)
        return y + self.trained(name + "/bias", units) if bias else y

    def batch_norm(self, name, x):
        n = x.shape[-1]
        weight, bias = self.trained(name + "/weight", n), self.trained(name + "/bias", n)
        mean = self.statistic(name + "/running_mean", n)
        variance = self.statistic(name + "/running_var", n)
        return weight * (x - mean) / np.sqrt(variance + 1e-5) + bias

    def layer_norm(self, name, x, shape):
        """Over the last axis; weight and bias have `shape`."""
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
        return self.trained(name + "/weight", *shape) * centred / scale + self.trained(
            name + "/bias", *shape
        )

    def activate(self, layer, x, kind):
        if kind == "dice":  # DIN, equation 4, with running statistics
            n, name = x.shape[-1], layer + "/dice"
            alpha = self.trained(name + "/alpha", n)
            mean = self.statistic(name + "/running_mean", n)
            variance = self.statistic(name + "/running_var", n)
            p = sigmoid((x - mean) / np.sqrt(variance + 1e-9))
            return p * x + (1 - p) * alpha * x
        if kind == "prelu":
            return np.where(x > 0, x, self.trained(layer + "/prelu/slope", x.shape[-1]) * x)
        return ACTIVATIONS[kind](x)

    def after(self, layer, x, by_default="relu"):
        """What follows a layer's map: BatchNormalization where asked for, then the activation."""
        if self.option("batch_norm", False):
            x = self.batch_norm(layer + "/batch_norm", x)
        return self.activate(layer, x, self.option("activation", by_default))

    def hidden(self, name, x, widths, by_default="relu"):
        for k, units in enumerate(widths, 1):
            x = self.after(f"{name}/{k}", self.linear(f"{name}/{k}/linear", x, units), by_default)
        return x

    def mlp(self, x, by_default="relu"):
        deep = self.hidden("mlp", x, self.options["hidden"], by_default)
        return self.linear("mlp/logit", deep, self.option("classes", 1))

    def first_order(self):
        """Every field's weight, a weight for each dense feature and a bias."""
        weights = self.table("linear").sum(axis=1)
        if not self.features_of_dense:
            return weights + self.trained("linear/bias/bias", 1)
        return weights + self.linear("linear/dense", self.dense(), 1)


def flat(x):
    return x.reshape(BATCH, -1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "tanh": np.tanh,
}
