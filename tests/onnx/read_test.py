#!/usr/bin/env python3
"""Networks in ONNX files that others write are read, and give what onnxruntime gives.

Usage: tests/onnx/read_test.py READ_PROGRAM
Exits with 77, which ctest calls skipped, where onnx or onnxruntime is not installed (deploy/install-dependencies --ci installs
them). tests/onnx/torch_test.py holds what PyTorch exports against PyTorch; the forms in onnx_forms.py are those of its exporters.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as missing:
    print(f"skipped: {missing}; deploy/install-dependencies --ci installs it")
    sys.exit(77)

import onnx_forms  # noqa: F401  adds its cases
import onnx_parameters
import onnx_sequences  # noqa: F401  adds its cases
from onnx_network import BATCH, CASES, DENSE, DIM, FIELDS, PLACES, Network
from onnx_refused import REFUSED

READ = sys.argv.pop(1)
TOLERANCE = 1e-5
SLOPE_TOLERANCE = 2e-3  # of sums of float32 losses, and of kinks near by


def numbers_of(graph):
    """Of all initializers, and of Constant nodes with dimensions."""
    tensors, within = [], []
    for node in graph.node:
        within += [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
        tensors += [attribute.t for attribute in node.attribute if attribute.type == onnx.AttributeProto.TENSOR]
    tensors = [*graph.initializer, *[tensor for tensor in tensors if tensor.dims]]
    sizes = [int(numpy.prod(tensor.dims)) for tensor in tensors if tensor.data_type == onnx.TensorProto.FLOAT]
    return sum(sizes) + sum(map(numbers_of, within))


class Reads(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory()
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        random = numpy.random.default_rng(7)
        self.feeds = {"dense": random.standard_normal((BATCH, DENSE)).astype(numpy.float32),
                      "vectors": random.standard_normal((BATCH, FIELDS, DIM)).astype(numpy.float32),
                      "history": random.standard_normal((BATCH, PLACES, DIM)).astype(numpy.float32),
                      "lengths": numpy.array([3, PLACES, 1, 2, 4], dtype=numpy.float32)}
        for row, length in enumerate(self.feeds["lengths"]):
            self.feeds["history"][row, int(length):] = 0

    def folder(self, name):
        folder = self.root / name
        folder.mkdir()
        (folder / "inputs").write_bytes(b"".join(values.tobytes() for values in self.feeds.values()))
        return folder

    def run_here(self, model, *outputs):
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        kinds = {"tensor(int64)": numpy.int64, "tensor(int32)": numpy.int32, "tensor(float)": numpy.float32}
        feeds = {given.name: self.feeds[given.name].astype(kinds[given.type]).reshape(BATCH, *given.shape[1:])
                 for given in session.get_inputs()}
        return session.run(list(outputs) or None, feeds)

    def whole(self, network, output):
        """With a linear layer behind, so that any number that differs shows; and what it gives."""
        (shape,) = [found.shape for found in self.run_here(network.model(output))]
        self.assertEqual(shape[0], BATCH)
        model = self.with_layer(network, output, int(numpy.prod(shape[1:])))
        return model, self.run_here(model)[0][:, 0]

    def with_layer(self, network, output, width):
        return network.model(network.MatMul(network.Reshape(output, network.ints(-1, width)), network.drawn(width, 1, scale=1.0)))

    def read(self):
        subprocess.run([READ, self.root.name], check=True, timeout=120, cwd=self.root.parent)

    def expect(self, folder, expected):
        self.assertFalse((folder / "error").exists(), (folder / "error").read_text() if (folder / "error").exists() else "")
        found = numpy.fromfile(folder / "found", dtype=numpy.float32)
        self.assertGreater(float(numpy.std(expected)), 0.01)
        error = float(numpy.max(numpy.abs(found - expected) / numpy.maximum(1, numpy.abs(expected))))
        self.assertLessEqual(error, TOLERANCE)
        analytic, numeric, size = numpy.fromfile(folder / "slope", dtype=numpy.float32)
        self.assertLessEqual(abs(analytic - numeric), SLOPE_TOLERANCE * size, f"the gradient gives {analytic}, differences {numeric}")

    def test_every_form_gives_what_onnxruntime_gives(self):
        expected = {}
        for name, opset, build in CASES:
            with self.subTest(name):
                network = Network(opset)
                model, expected[name] = self.whole(network, build(network))
                onnx.save(model, self.folder(name) / "model.onnx")
        self.read()
        for name in expected:
            with self.subTest(name):
                self.expect(self.root / name, expected[name])

    def test_a_batch_of_the_size_of_an_example_is_one_of_any_size(self):
        """Sizes that exporters fold into a file, also where others are equal to them. What is left out is an error, not other numbers."""
        left_out = {
            # Numbers or lists of the samples, and batches one after another.
            "batches_one_after_another", "places_that_are_replaced", "rows_of_batches", "sequences_sorted_by_length", "what_is_added_at_places",
            "what_is_at_the_largest", "whole_vectors_of_a_mask",
            # The samples' constants have the batch last, or share its axis.
            "constants_for_the_rows_of_the_batch", "copies_for_the_batch", "recurrences_of_each_field"}
        expected = {}
        for example in (1, 2, FIELDS):
            for name, opset, build in CASES:
                with self.subTest(name, example=example):
                    like, network = Network(opset), Network(opset, example=example)
                    model, found = self.whole(like, build(like))
                    (width,) = [tensor.dims[0] for tensor in model.graph.initializer if tensor.name == model.graph.node[-1].input[1]]
                    case = f"{name} {example}"
                    model = self.with_layer(network, build(network), width)
                    if example == 2 and {"dense", "vectors"} <= {name for node in model.graph.node for name in node.input}:
                        # An axis that somebody named, of one input alone.
                        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
                    onnx.save(model, self.folder(case) / "model.onnx")
                    expected[case] = found
        self.read()
        for case in expected:
            if case.split()[0] in left_out and (self.root / case / "error").exists():
                continue
            with self.subTest(case):
                self.expect(self.root / case, expected[case])

    def test_what_several_nodes_read_is_trained_once(self):
        """In the rounds of a loop, or as weights that are put together of the same parts."""
        sizes = {}
        for name, opset, build in CASES:
            if build.__module__ == "onnx_control_flow" or name == "weights_that_are_put_together":
                network = Network(opset)
                model, _ = self.whole(network, build(network))
                onnx.save(model, self.folder(name) / "model.onnx")
                sizes[name] = numbers_of(model.graph)
        self.read()
        for name, size in sizes.items():
            with self.subTest(name):
                self.assertLessEqual(self.trained(name), size)

    def test_layers_train_the_numbers_of_the_file_and_no_more(self):
        """Where ONNX leaves out what ours would have, or has one number for all."""
        networks = {}
        for name, build in onnx_parameters.LESS_THAN_USUAL.items():
            networks[name] = Network(17)
            model, _ = self.whole(networks[name], build(networks[name]))
            onnx.save(model, self.folder(name) / "model.onnx")
            networks[name] = model
        self.read()
        for name, model in networks.items():
            with self.subTest(name):
                self.expect(self.root / name, self.run_here(model)[0][:, 0])
                self.assertEqual(self.trained(name), numbers_of(model.graph))

    def test_exponents_and_bounds_are_trained_where_names_tell_them_from_numbers_of_the_code(self):
        for producer, trained in (("pytorch", 3), ("", 1)):
            with self.subTest(producer):
                network = Network(17)
                model, expected = self.whole(network, onnx_parameters.exponents_and_bounds(network))
                model.producer_name = producer
                onnx.save(model, self.folder(f"by-{producer}") / "model.onnx")
                self.read()
                self.expect(self.root / f"by-{producer}", expected)
                self.assertEqual(self.trained(f"by-{producer}"), trained + 3 * FIELDS * DIM)

    def test_what_metadata_tell_of_the_code_stays(self):
        """PyTorch's exporter of torch.export says what a number was, or of what it computed it."""
        given = ("PARAMETER", "BUFFER", "CONSTANT_TENSOR", "['cos', 'mul_1', 'val_12']", "['cos', 'net.scale']", "['scale']", "['val_2', 'vectors']")
        trained = {"PARAMETER", "['cos', 'net.scale']", "['scale']"}
        network = Network(17)
        x, expected = network.vectors, 0
        for number, origin in enumerate(given):
            x = network.Tanh(network.Add(x, network.drawn(DIM)))
            network.constants[-1].name = network.nodes[-2].input[1] = f"n{number}"
            expected += DIM * (origin in trained)
        # Of another that is the code's, under a name within a function of the exporter's.
        x = network.Add(x, network.numbers(numpy.float32(0.5)))
        network.constants[-1].name = network.nodes[-1].input[1] = "weight_0"
        # One number, as of PReLU, under a name that else is one of the code.
        x = network.PRelu(x, network.numbers(numpy.array([[0.25]], dtype=numpy.float32)))
        network.constants[-1].name = network.nodes[-1].input[1] = "val_19"
        expected += 1
        origins = {**{f"n{number}": origin for number, origin in enumerate(given)}, "weight_0": "['n3', 'tmp_1']", "val_19": "['deep.5.weight', 'val_18']", "tmp_1": "['val_3']"}
        model, found = self.whole(network, x)
        for name, origin in origins.items():
            value = model.graph.value_info.add(name=name)
            key = "onnxscript.optimizer.folded_from" if origin[0] == "[" else "torch.export.graph_signature.InputSpec.kind"
            value.metadata_props.add(key=f"pkg.{key}", value=origin)
        onnx.save(model, self.folder("metadata") / "model.onnx")
        self.read()
        self.expect(self.root / "metadata", found)
        self.assertEqual(self.trained("metadata"), expected + FIELDS * DIM)

    def trained(self, name):
        (trained,) = numpy.fromfile(self.root / name / "trained", dtype=numpy.float32)
        return trained

    def test_numbers_that_an_exporter_merged_are_trained_apart(self):
        """It leaves an Identity for each that is gone, as PyTorch's does for the ones of normalisations."""
        network = Network(16)
        ones = network.numbers(numpy.ones(DIM, dtype=numpy.float32))
        twice = network.Mul(network.Tanh(network.Mul(network.vectors, ones)), network.Identity(ones))
        model, expected = self.whole(network, twice)
        onnx.save(model, self.folder("merged") / "model.onnx")
        self.read()
        self.expect(self.root / "merged", expected)
        self.assertEqual(self.trained("merged"), 2 * DIM + FIELDS * DIM)

    def test_inputs_may_be_other_floats(self):
        for kind in (onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE):
            with self.subTest(kind):
                network = Network(17)
                x = network.Cast(network.Cast(network.vectors, to=kind), to=onnx.TensorProto.DOUBLE)
                model, expected = self.whole(network, network.Cast(network.Tanh(x), to=onnx.TensorProto.FLOAT))
                for given in model.graph.input:
                    given.type.tensor_type.elem_type = kind
                folder = self.folder(f"floats-{kind}")
                onnx.save(model, folder / "model.onnx")
                self.read()
                found = numpy.fromfile(folder / "found", dtype=numpy.float32)
                self.assertLessEqual(float(numpy.max(numpy.abs(found - expected))), 0.01)

    def test_numbers_beside_the_file_are_found(self):
        network = Network(17)
        model, expected = self.whole(network, network.MatMul(network.vectors, network.drawn(DIM, 6)))
        folder = self.folder("beside")
        onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0)
        self.assertTrue((folder / "model.onnx.data").exists())
        self.read()
        self.expect(folder, expected)
        (folder / "model.onnx.data").write_bytes(b"short")
        self.read()
        self.assertIn("are beyond the 5 of model.onnx.data", (folder / "error").read_text())
        (folder / "model.onnx.data").unlink()
        self.read()
        self.assertIn("model.onnx.data: No such file", (folder / "error").read_text())
        self.expect_found_in_functions()
        model = onnx.load(folder / "model.onnx", load_external_data=False)
        for entry in model.graph.initializer[0].external_data:
            if entry.key == "location":
                entry.value = "../model.onnx.data"
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        self.read()
        self.assertIn("lies outside", (folder / "error").read_text())

    def expect_found_in_functions(self):
        network = Network(17)
        weights = numpy.linspace(-1, 1, DIM, dtype=numpy.float32)
        network.function("weighs", ["x"], lambda b, x: b.Mul(x, b.Constant(value=onnx.numpy_helper.from_array(weights))))
        model, expected = self.whole(network, network.call("weighs", network.vectors))
        folder = self.folder("beside-a-function")
        (tensor,) = [node.attribute[0].t for node in model.functions[0].node if node.op_type == "Constant"]
        (folder / "weights").write_bytes(tensor.raw_data)
        onnx.external_data_helper.set_external_data(tensor, "weights")
        tensor.ClearField("raw_data")
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        self.read()
        self.expect(folder, expected)

    def test_places_that_samples_compute_are_their_own(self):
        """Where onnxruntime would take those of the samples before and behind."""
        network, like = Network(17), Network(17)
        last = onnx_sequences.places_of_both_axes_as_one(like, 0, 0)
        _, expected = self.whole(like, like.Mul(last, like.numbers(numpy.repeat([1, 0], DIM).astype(numpy.float32))))
        chosen = onnx_sequences.places_of_both_axes_as_one(network, -PLACES, PLACES)
        onnx.save(network.model(network.MatMul(chosen, network.drawn(2 * DIM, 1, scale=1.0))), self.folder("own") / "model.onnx")
        self.read()
        self.expect(self.root / "own", expected)

    def test_damaged_files_are_errors(self):
        random = numpy.random.default_rng(3)
        for number, (name, opset, build) in enumerate(CASES):
            network = Network(opset, example=number % 3)
            whole = network.model(build(network)).SerializeToString()
            for k in range(20):
                damaged = bytearray(whole)
                for at in random.integers(0, len(damaged), 3):
                    damaged[at] = random.integers(0, 256) if k % 2 else (damaged[at] + random.choice([-1, 1])) % 256
                (self.folder(f"{name}-{k}") / "model.onnx").write_bytes(bytes(damaged))
        self.read()
        said = [f.read_text() for f in self.root.glob("*/error")]
        self.assertGreater(len(said), len(CASES))
        for words in said:
            self.assertTrue(words.startswith("model.onnx_file") or "output" in words or "loss" in words, words)

    def test_what_cannot_be_read_says_why(self):
        for number, (why, build) in enumerate(REFUSED.items()):
            network = Network(17)
            output = build(network)
            onnx.save(network.model(output), self.folder(str(number)) / "model.onnx")
        self.read()
        for number, why in enumerate(REFUSED):
            with self.subTest(why):
                self.assertIn(why, (self.root / str(number) / "error").read_text())


if __name__ == "__main__":
    unittest.main()
