"""What networks of onnx.helper are written with, of dense [batch, 3] and vectors [batch, 4, 8]; and the list of them, CASES."""
import itertools

import numpy
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from shapes import DENSE, DIM, FIELDS, PLACES

BATCH = 5
CASES = []


class Network:
    """Nodes one after another; a method named like an op adds one and returns the name of its output."""

    def __init__(self, opset, around=None, example=None):
        """`example`: the samples of an exporter's example, where the file has these in place of a batch of any size."""
        self.example = around.example if around else example
        self.opset, self.nodes, self.constants, self.sparse_constants = opset, [], [], []
        self.names = around.names if around else itertools.count(1)
        self.functions = around.functions if around else []
        self.random = around.random if around else numpy.random.default_rng(1)
        self.dense, self.vectors, self.history, self.lengths = "dense", "vectors", "history", "lengths"
        self.lengths_type, self.lengths_dims = TensorProto.INT64, []

    def name(self):
        return f"t{next(self.names)}"

    def within(self):
        """Of a graph within a node, which reads the names of this one, too."""
        return Network(self.opset, self)

    def graph(self, inputs, *outputs):
        """This one as an attribute. Inputs and outputs are names of tensors, or numbers with their type: (name, type)."""
        def value(given):
            name, kind, dims = (given, TensorProto.FLOAT, None) if isinstance(given, str) else (*given, [])
            return helper.make_tensor_value_info(name, kind, dims)

        return helper.make_graph(self.nodes, self.name(), list(map(value, inputs)), list(map(value, outputs)), self.constants)

    def __getattr__(self, op):
        def add(*inputs, outputs=1, **attributes):
            names = [self.name() for _ in range(outputs)]
            self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
            return names[0] if outputs == 1 else names

        return add

    def function(self, name, inputs, build, attributes=(), defaults=(), opset=None):
        """Of the file's own: build(network of its nodes, *inputs) gives the names of its outputs."""
        body = self.within()
        outputs = build(body, *inputs)
        versions = [helper.make_opsetid("", opset or self.opset), helper.make_opsetid("own", 1)]
        self.functions.append(helper.make_function("own", name, inputs, [outputs] if isinstance(outputs, str) else outputs, body.nodes,
                                                   versions, attributes, [helper.make_attribute(*default) for default in defaults]))

    def call(self, name, *inputs, outputs=1, **attributes):
        return getattr(self, name)(*inputs, outputs=outputs, domain="own", **attributes)

    def given(self, attribute, kind, of):
        """Lets the last node have the value of an attribute of the function that it is in."""
        self.nodes[-1].attribute.append(AttributeProto(name=attribute, type=kind, ref_attr_name=of))

    def numbers(self, values):
        name = self.name()
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def typed(self, kind, *dims):
        """Drawn numbers, of another type of floats in the file, as float32."""
        values = (self.random.standard_normal(dims) * 0.5).flatten()
        self.constants.append(helper.make_tensor(self.name(), kind, dims, values))
        return self.Cast(self.constants[-1].name, to=TensorProto.FLOAT)

    def sparse(self, size):
        values = helper.make_tensor(self.name(), TensorProto.FLOAT, [1], [2.0])
        self.sparse_constants.append(helper.make_sparse_tensor(values, helper.make_tensor("", TensorProto.INT64, [1], [0]), [size]))
        return values.name

    def ints(self, *values):
        return self.numbers(numpy.array(values, dtype=numpy.int64))

    def int(self, value):
        return self.numbers(numpy.array(value, dtype=numpy.int64))

    def float(self, value):
        """As it stands in a network's code, which nobody trains."""
        return self.Constant(value=numpy_helper.from_array(numpy.array(value, dtype=numpy.float32)))

    def drawn(self, *dims, scale=0.5):
        return self.numbers((self.random.standard_normal(dims) * scale).astype(numpy.float32))

    def batch(self):
        if self.example:
            return self.ints(self.example)
        return self.Shape(self.vectors, start=0, end=1)

    def flat(self):  # [batch, 35]
        return self.Concat(self.dense, self.Flatten(self.vectors), axis=1)

    def model(self, output):
        batch = self.example or "n"
        value = lambda name, *dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, *dims])
        inputs = [value("dense", DENSE), value("vectors", FIELDS, DIM)]
        if any(self.history in node.input for node in self.nodes):
            inputs += [value("history", PLACES, DIM)]
        if any(self.lengths in node.input for node in self.nodes):
            inputs += [helper.make_tensor_value_info("lengths", self.lengths_type, [batch, *self.lengths_dims])]
        graph = helper.make_graph(self.nodes, "case", inputs,
                                  [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], self.constants,
                                  sparse_initializer=self.sparse_constants)
        versions = [helper.make_opsetid("", self.opset), *([helper.make_opsetid("own", 1)] if self.functions else [])]
        return helper.make_model(graph, opset_imports=versions, functions=self.functions, ir_version=9)


def case(opset=17):
    def register(build):
        CASES.append((build.__name__, opset, build))
        return build

    return register
