#!/usr/bin/env python3
"""Networks that Keras exports are read, and predict what they predict there.

Usage: tests/onnx/keras_test.py READ_PROGRAM
Exits with 77, which ctest calls skipped, where one of tensorflow, keras, tf2onnx and onnx is not installed: no machine of the tests
has them by itself, in a virtual environment `pip install tensorflow-cpu tf2onnx onnx` puts them.
"""
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
logging.disable(logging.CRITICAL)
try:
    import keras
    import numpy
    import onnx  # noqa: F401
    import tensorflow
    import tf2onnx
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from keras_modules import NETWORKS
from shapes import DENSE, DIM, FIELDS, without_history

READ = sys.argv.pop(1)
BATCH, TOLERANCE = 5, 1e-5


def export_by_keras(model, path):
    model.export(str(path), format="onnx", verbose=False)


def export_by_tf2onnx(model, path):
    signature = [tensorflow.TensorSpec((None, *x.shape[1:]), tensorflow.float32, name=x.name) for x in model.inputs]
    function = tensorflow.function(lambda dense, vectors: model([dense, vectors], training=False))
    tf2onnx.convert.from_function(function, input_signature=signature, opset=17, output_path=str(path))


class Keras(unittest.TestCase):
    def test_networks_predict_what_they_do_in_keras(self):
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # of what Keras calls
        for export in (export_by_keras, export_by_tf2onnx):
            with tempfile.TemporaryDirectory() as folder:
                self.compare(export, pathlib.Path(folder))

    def model(self, build):
        keras.utils.set_random_seed(3)
        keras.layers.Dense(1)  # the first is named "dense", as an input is
        dense, vectors = keras.Input((DENSE,), name="dense"), keras.Input((FIELDS, DIM), name="vectors")
        model = keras.Model([dense, vectors], keras.layers.Dense(1, name="last")(build(dense, vectors)))
        random = numpy.random.default_rng(1)
        for weight in model.weights:
            numbers = keras.ops.convert_to_numpy(weight)
            if numbers.dtype == numpy.float32 and numpy.all(numbers == numbers.flat[0]):  # as layers begin
                weight.assign(numbers + random.uniform(0.1, 0.6, numbers.shape))
        return model

    def compare(self, export, root):
        random = numpy.random.default_rng(1)
        dense = random.standard_normal((BATCH, DENSE)).astype(numpy.float32)
        vectors = random.standard_normal((BATCH, FIELDS, DIM)).astype(numpy.float32)
        expected = {}
        for build in NETWORKS:
            folder = root / build.__name__
            folder.mkdir()
            model = self.model(build)
            expected[build.__name__] = keras.ops.convert_to_numpy(model([dense, vectors], training=False))[:, 0]
            export(model, folder / "model.onnx")
            (folder / "inputs").write_bytes(without_history(dense, vectors))
        subprocess.run([READ, root], check=True, timeout=120)
        for name, values in expected.items():
            with self.subTest(name, form=export.__name__):
                folder = root / name
                self.assertFalse((folder / "error").exists(), (folder / "error").read_text() if (folder / "error").exists() else "")
                found = numpy.fromfile(folder / "found", dtype=numpy.float32)
                self.assertGreater(float(values.std()), 0.01)
                self.assertLessEqual(float((abs(found - values) / numpy.maximum(abs(values), 1)).max()), TOLERANCE)


if __name__ == "__main__":
    unittest.main()
