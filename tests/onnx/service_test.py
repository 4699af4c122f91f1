#!/usr/bin/env python3
"""What `tessera export` writes of a trained job predicts what `tessera predict` does, in onnxruntime; and a network made
elsewhere is trained by the service and comes back.

Usage: tests/onnx/service_test.py TESSERA_PROGRAM
Exits with 77, which ctest calls skipped, where onnxruntime or onnx is not installed (deploy/install-dependencies --ci installs
them).
"""
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    print(f"skipped: {missing}; deploy/install-dependencies --ci installs it")
    sys.exit(77)

TESSERA = sys.argv.pop(1)
TOLERANCE = 1e-5

# One id a field and several, each way of pooling them, an empty field, a dense column in logarithms.
COLUMNS = """
  format: csv
  header: true
  columns:
    - {name: label, role: label}
    - {name: price, role: dense, transform: log1p}
    - {name: age, role: dense}
    - {name: user, role: sparse, table: [linear, embedding]}
    - {name: tags, role: sparse, separator: ' ', pooling: mean, table: [linear, embedding]}
    - {name: seen, role: sparse, separator: ' ', pooling: sqrtn, table: embedding}
    - {name: brands, role: sparse, separator: ' ', table: linear}
  train: {files: train.csv}
  test: {files: test.csv}
"""

JOB = """
name: onnx
seed: 3
data:%(columns)s
tables:
  - {name: linear, dim: 1, initializer: {constant: {value: 0.125}}, optimizer: {learning_rate: 0.05, adagrad: {}}}
  - {name: embedding, dim: 4, initializer: {constant: {value: 0.25}}, optimizer: {learning_rate: 0.05, adagrad: {}}}
model:
%(model)s
  optimizer: {learning_rate: 0.01, adam: {}}
train: {batch_size: 64, epochs: 2}
"""

LAYERS = """
  name: layers
  layers:
    - {name: both, op: concat, inputs: [dense, user.embedding, tags.embedding, seen.embedding, user.linear, tags.linear, brands.linear]}
    - {name: hidden, op: linear, inputs: [both], options: {units: 16}}
    - {name: norm, op: batch_norm, inputs: [hidden]}
    - {name: active, op: gelu, inputs: [norm]}
    - {name: out, op: linear, inputs: [active], options: {units: 1}}
"""

ZOO = """
  name: deepfm
  options: {hidden: [16, 8], batch_norm: true, dropout: 0.1}
"""


def records(seed, count, ids):
    """Of dense and sparse columns; the tests' ids go beyond those of training."""
    draw = random.Random(seed)
    several = lambda: [draw.randrange(ids) for _ in range(draw.randrange(4))]
    rows = []
    for _ in range(count):
        row = {"price": round(draw.expovariate(0.01) * draw.choice([1, -1]), 3), "age": round(draw.gauss(0, 1), 4)}
        row |= {"user": [draw.randrange(ids)], "tags": several(), "seen": several(), "brands": several()}
        if draw.random() < 0.05:
            row["user"] = []
        row["bought"] = draw.randrange(2)
        row["label"] = int(draw.random() < 0.3 + 0.4 * (sum(row["user"]) % 2))
        rows.append(row)
    return rows


def write_csv(path, rows):
    names = ["label", "bought", "price", "age", "user", "tags", "seen", "brands"]
    text = lambda value: " ".join(map(str, value)) if isinstance(value, list) else str(value)
    path.write_text("\n".join([",".join(names)] + [",".join(text(r[n]) for n in names) for r in rows]) + "\n")


def padded(rows, name):
    width = 1 if name == "user" else max(1, max(len(r[name]) for r in rows))
    return numpy.array([r[name] + [-1] * (width - len(r[name])) for r in rows], dtype=numpy.int64)


def pooled(rows, name, how, table):
    """[batch, dim] of a safetensors file, pooled here."""
    raw = table.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    cut = lambda tensor, dtype: numpy.frombuffer(data[slice(*header[tensor]["data_offsets"])], dtype).reshape(header[tensor]["shape"])
    keys, values = cut("keys", "<u8"), cut("rows", "<f4")
    unseen = numpy.full(values.shape[1], float(header["__metadata__"]["unseen_value"]), dtype=numpy.float32)
    places = {int(key): i for i, key in enumerate(keys)}
    result = []
    for row in rows:
        vectors = [values[places[k]] if k in places else unseen for k in row[name]]
        scale = {"sum": 1, "mean": 1 / max(1, len(vectors)), "sqrtn": 1 / max(1, len(vectors)) ** 0.5}[how]
        result.append(numpy.sum(vectors, axis=0) * scale if vectors else numpy.zeros(values.shape[1]))
    return numpy.array(result, dtype=numpy.float32)


class Service(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        write_csv(self.folder / "train.csv", records(1, 1000, 40))
        self.rows = records(2, 150, 50)
        write_csv(self.folder / "test.csv", self.rows)

    def tessera(self, *arguments, fails=False):
        done = subprocess.run([TESSERA, *map(str, arguments)], capture_output=True, text=True, cwd=self.folder, timeout=300)
        self.assertEqual(done.returncode != 0, fails, done.stdout + done.stderr)
        return done.stderr if fails else done.stdout

    def train(self, model, columns=COLUMNS, name="job"):
        return self.train_text(JOB % {"columns": columns, "model": model}, name)

    def train_text(self, text, name):
        """Folder of the checkpoint, and the predictions of the service for the test split."""
        job = self.folder / f"{name}.yaml"
        job.write_text(text)
        self.tessera("local", job, "--data", self.folder, "--in-process", "--work-dir", self.folder / name)
        (checkpoint,) = (self.folder / name / "checkpoints").glob("*/step-*")
        out = self.folder / f"{name}.csv"
        self.tessera("predict", job, "--checkpoint", checkpoint, "--data", self.folder, "--output", out)
        lines = out.read_text().splitlines()[1:]
        return checkpoint, numpy.array([float(line.split(",")[1]) for line in lines])

    def dense(self):
        column = lambda name: numpy.array([[r[name]] for r in self.rows], dtype=numpy.float32)
        return {"price": column("price"), "age": column("age")}

    def ids(self):
        return {name: padded(self.rows, name) for name in ("user", "tags", "seen", "brands")}

    def pooled(self, file):
        """Of the tables beside the file."""
        feeds = {}
        for column, how in (("user", "sum"), ("tags", "mean"), ("seen", "sqrtn"), ("brands", "sum")):
            for table in ("linear", "embedding"):
                if (column, table) not in (("seen", "linear"), ("brands", "embedding")):
                    feeds[f"{column}.{table}"] = pooled(self.rows, column, how, file.with_suffix(f".{table}.safetensors"))
        return feeds

    def expect(self, file, feeds, expected, output="prediction"):
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        self.assertEqual({i.name for i in session.get_inputs()}, set(feeds))
        (found,) = session.run([output], feeds)
        self.assertEqual(found.shape, (len(expected), 1))
        self.assertGreater(numpy.std(expected), 0.01)
        self.assertLessEqual(numpy.max(numpy.abs(found[:, 0] - expected)), TOLERANCE)

    def test_inlined_tables_predict_what_the_service_does(self):
        for name, model in (("layers", LAYERS), ("zoo", ZOO)):
            with self.subTest(name):
                checkpoint, expected = self.train(model, name=name)
                file = self.folder / f"{name}.onnx"
                report = json.loads(self.tessera("export", checkpoint, "--output", file, "--json"))
                self.assertIn("tags int64 [batch, tags_ids]", report["inputs"])
                self.assertTrue(all(table["unseen_exact"] for table in report["tables"]))
                onnx.checker.check_model(str(file), full_check=True)
                self.expect(file, self.dense() | self.ids(), expected)

    def test_tables_beside_the_file_predict_what_the_service_does(self):
        checkpoint, expected = self.train(LAYERS)
        file = self.folder / "model.onnx"
        self.tessera("export", checkpoint, "--output", file, "--inline-rows", 0)
        self.expect(file, self.dense() | self.pooled(file), expected)

    def test_rows_in_16_bits_are_exported_as_the_service_has_them(self):
        text = JOB % {"columns": COLUMNS, "model": LAYERS}
        for field in ("row_type", "wire_type"):
            with self.subTest(field):
                # 0.3 is no bfloat16, and what keys without a row have.
                rounded = text.replace("constant: {value: 0.25}}", f"constant: {{value: 0.3}}}}, {field}: bfloat16")
                self.assertNotEqual(rounded, text)
                checkpoint, expected = self.train_text(rounded, field)
                inlined, beside = self.folder / "inlined.onnx", self.folder / "beside.onnx"
                self.tessera("export", checkpoint, "--output", inlined)
                self.expect(inlined, self.dense() | self.ids(), expected)
                self.tessera("export", checkpoint, "--output", beside, "--inline-rows", 0)
                self.expect(beside, self.dense() | self.pooled(beside), expected)

    def test_sequences_largest_rows_tasks_and_averages(self):
        text = """
name: sequences
data:
  format: csv
  header: true
  columns:
    - {name: label, role: label}
    - {name: bought, role: label}
    - {name: user, role: sparse, table: embedding}
    - {name: tags, role: sparse, separator: ' ', pooling: max, table: embedding}
    - {name: seen, role: sparse, separator: ' ', pooling: sequence, max_length: 2, table: embedding}
  train: {files: train.csv}
  test: {files: test.csv}
tables:
  - {name: embedding, dim: 4, initializer: {constant: {value: 0.25}}, optimizer: {learning_rate: 0.1, adagrad: {}}}
model:
  name: layers
  layers:
    - {name: states, op: gru, inputs: [seen.embedding, seen.length], options: {units: 5}}
    - {name: score, op: linear, inputs: [states], options: {units: 1}}
    - {name: last, op: augru, inputs: [states, score, seen.length], options: {units: 3, sequence: false}}
    - {name: mask, op: sequence_mask, inputs: [seen.length], options: {size: 2}}
    - {name: masked, op: multiply, inputs: [seen.embedding, mask]}
    - {name: sum, op: reduce_sum, inputs: [masked], options: {axes: [1], keepdims: false}}
    - {name: all, op: concat, inputs: [last, sum, user.embedding, tags.embedding]}
    - {name: norm, op: batch_norm, inputs: [all]}
    - {name: click, op: linear, inputs: [norm], options: {units: 1}}
    - {name: amount, op: linear, inputs: [norm], options: {units: 1}}
  tasks:
    - {name: click, label: label, output: click}
    - {name: buy, label: bought, output: amount, loss: mean_squared_error}
  optimizer: {learning_rate: 0.05, adam: {}}
  ema_decay: 0.8
train: {batch_size: 64, epochs: 2}
"""
        checkpoint, _ = self.train_text(text, "sequences")
        lines = (self.folder / "sequences.csv").read_text().splitlines()
        self.assertEqual(lines[0], "label/click,prediction/click,label/buy,prediction/buy")
        expected = numpy.array([[float(v) for v in line.split(",")[1::2]] for line in lines[1:]])
        last = lambda ids: (ids[-2:] + [-1, -1])[:2]
        ids = {"user": padded(self.rows, "user"), "tags": padded(self.rows, "tags"),
               "seen": numpy.array([last(r["seen"]) for r in self.rows], dtype=numpy.int64)}
        self.tessera("export", checkpoint, "--output", "sequences.onnx")
        onnx.checker.check_model(str(self.folder / "sequences.onnx"), full_check=True)
        self.expect(self.folder / "sequences.onnx", ids, expected[:, 0], "prediction/click")
        self.expect(self.folder / "sequences.onnx", ids, expected[:, 1], "prediction/buy")

    def test_classes_and_their_probabilities(self):
        model = """
  name: layers
  loss: softmax_cross_entropy
  layers:
    - {name: both, op: concat, inputs: [dense, user.embedding]}
    - {name: out, op: linear, inputs: [both], options: {units: 3}}
"""
        columns = re.sub("(name: (?:tags|seen|brands)), .*", r"\1, role: ignored}", COLUMNS).replace("[linear, embedding]", "embedding")
        self.train_text(re.sub("  - {name: linear.*\n", "", JOB % {"columns": columns, "model": model}), "classes")
        lines = (self.folder / "classes.csv").read_text().splitlines()
        self.assertEqual(lines[0], "label,prediction,probability")
        expected = numpy.array([[float(v) for v in line.split(",")[1:]] for line in lines[1:]])
        (checkpoint,) = (self.folder / "classes" / "checkpoints").glob("*/step-*")
        self.tessera("export", checkpoint, "--output", "classes.onnx")
        feeds = self.dense() | {"user": padded(self.rows, "user")}
        self.expect(self.folder / "classes.onnx", feeds, expected[:, 0])
        session = onnxruntime.InferenceSession(str(self.folder / "classes.onnx"), providers=["CPUExecutionProvider"])
        (probability,) = session.run(["probability"], feeds)
        self.assertEqual(probability.shape, (len(self.rows), 3))
        self.assertLessEqual(numpy.max(numpy.abs(probability.max(axis=1) - expected[:, 1])), TOLERANCE)

    def test_libsvm_weights_count(self):
        columns = """
  format: libsvm
  columns:
    - {name: words, role: sparse, index_begin: 0, index_end: 100, pooling: mean, table: [linear, embedding]}
    - {name: numbers, role: dense, index_begin: 100, index_end: 103}
  train: {files: train.svm}
  test: {files: test.svm}
"""
        draw = random.Random(5)
        rows = []
        for _ in range(600):
            words = sorted(draw.sample(range(30), draw.randrange(1, 5)))
            rows.append({"words": words, "weights": [round(draw.uniform(0.5, 2), 3) for _ in words],
                         "numbers": [round(draw.gauss(0, 1), 3) for _ in range(3)], "label": words[0] % 2})
        for file, some in (("train.svm", rows[:500]), ("test.svm", rows[500:])):
            lines = [" ".join([str(r["label"])] + [f"{k}:{w}" for k, w in zip(r["words"], r["weights"])]
                              + [f"{100 + i}:{x}" for i, x in enumerate(r["numbers"])]) for r in some]
            (self.folder / file).write_text("\n".join(lines) + "\n")
        checkpoint, expected = self.train("  name: deepfm\n  options: {hidden: [8]}", columns)
        self.tessera("export", checkpoint, "--output", "model.onnx")
        some = rows[500:]
        width = max(len(r["words"]) for r in some)
        pad = lambda values, with_: values + [with_] * (width - len(values))
        self.expect(self.folder / "model.onnx", {
            "words": numpy.array([pad(r["words"], -1) for r in some], dtype=numpy.int64),
            "words.weights": numpy.array([pad(r["weights"], 0.0) for r in some], dtype=numpy.float32),
            "numbers": numpy.array([r["numbers"] for r in some], dtype=numpy.float32)}, expected)

    def network(self, momentum):
        """Writes elsewhere.onnx, as exporters write it: shapes computed from shapes, Gelu by Erf, an output without its last
        axis. Returns its job."""
        draw = numpy.random.default_rng(3)
        weight = lambda name, *dims: numpy_helper.from_array((draw.standard_normal(dims) / dims[-1] ** 0.5).astype(numpy.float32), name)
        ints = lambda name, *values: numpy_helper.from_array(numpy.array(values, dtype=numpy.int64), name)
        number = lambda name, value: helper.make_node("Constant", [], [name], value=numpy_helper.from_array(numpy.float32(value)))
        node = helper.make_node
        nodes = [
            node("Shape", ["vectors"], ["shape"]),
            node("Gather", ["shape", "zero"], ["batch"], axis=0),
            node("Unsqueeze", ["batch", "first"], ["batch_1"]),
            node("Concat", ["batch_1", "rest"], ["flat_shape"], axis=0),
            node("Reshape", ["vectors", "flat_shape"], ["flat"]),
            node("ReduceSum", ["vectors", "first_axis"], ["sum"], keepdims=0),
            node("Mul", ["sum", "sum"], ["square_of_sum"]),
            number("two", 2), node("Pow", ["vectors", "two"], ["squares"]),
            node("ReduceSum", ["squares", "first_axis"], ["sum_of_squares"], keepdims=0),
            node("Sub", ["square_of_sum", "sum_of_squares"], ["pairs"]),
            node("Concat", ["numeric", "flat", "pairs"], ["all"], axis=-1),
            node("Gemm", ["all", "w1", "b1"], ["h1"], transB=1),
            node("BatchNormalization", ["h1", "scale", "shift", "mean", "var"], ["n1"], epsilon=1e-4, momentum=momentum),
            number("root2", 2**0.5), number("one", 1), number("half", 0.5),
            node("Div", ["n1", "root2"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "one"], ["e1"]),
            node("Mul", ["n1", "e1"], ["g"]), node("Mul", ["g", "half"], ["gelu"]),
            node("MatMul", ["gelu", "w2"], ["m2"]), node("Add", ["b2", "m2"], ["h2"]),
            node("Clip", ["h2", "low", "high"], ["clipped"]),
            node("Gemm", ["clipped", "w3", "b3"], ["h3"], transB=1, alpha=0.5),
            node("Squeeze", ["h3", "last_axis"], ["logits"]),
            node("Sigmoid", ["logits"], ["probability"]),
        ]
        initializers = [
            numpy_helper.from_array(numpy.array(0, dtype=numpy.int64), "zero"), ints("first", 0), ints("rest", -1), ints("first_axis", 1),
            ints("last_axis", 1), weight("w1", 12, 2 + 8 + 4), weight("b1", 12), weight("w2", 12, 6), weight("b2", 6), weight("w3", 1, 6), weight("b3", 1),
            weight("scale", 12), weight("shift", 12), weight("mean", 12), numpy_helper.from_array(numpy.full(12, 0.7, dtype=numpy.float32), "var"),
            numpy_helper.from_array(numpy.float32(-3), "low"), numpy_helper.from_array(numpy.float32(3), "high"),
        ]
        tensor = helper.make_tensor_value_info
        graph = helper.make_graph(
            nodes, "elsewhere", [tensor("numeric", TensorProto.FLOAT, ["n", 2]), tensor("vectors", TensorProto.FLOAT, ["n", 2, 4])],
            [tensor("probability", TensorProto.FLOAT, ["n"])], initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, self.folder / "elsewhere.onnx")
        columns = re.sub("table: (\\[.*?\\]|embedding)", "table: embedding", COLUMNS)
        columns = re.sub("(name: (?:seen|brands)), .*", r"\1, role: ignored}", columns)
        text = JOB % {"columns": columns, "model": """
  name: onnx
  onnx_file: elsewhere.onnx
  output: logits
  options: {inputs: {numeric: dense, vectors: embedding}}
"""}
        return re.sub("  - {name: linear.*\n", "", text)

    def test_a_network_made_elsewhere_is_trained_and_comes_back(self):
        checkpoint, expected = self.train_text(self.network(0.9), "elsewhere")
        table = self.tessera("check", "elsewhere.yaml", "--data", self.folder)
        self.assertIn("BatchNormalization", table)
        self.assertIn("--data", self.tessera("check", "elsewhere.yaml", fails=True))
        self.assertIn("--data", self.tessera("export", checkpoint, "--output", "back.onnx", fails=True))
        self.tessera("export", checkpoint, "--output", "back.onnx", "--data", self.folder)
        self.expect(self.folder / "back.onnx", self.dense() | {n: padded(self.rows, n) for n in ("user", "tags")}, expected)

    def test_a_network_made_elsewhere_starts_as_it_is_in_the_file(self):
        # Nothing moves: rates too small to change a float, and running statistics that keep what they have.
        text = re.sub("learning_rate: [0-9.]+, (adam|adagrad)", "learning_rate: 1.0e-30, sgd", self.network(1.0))
        _, expected = self.train_text(text, "start")
        dense = self.dense()
        numeric = numpy.concatenate([numpy.sign(dense["price"]) * numpy.log1p(numpy.abs(dense["price"])), dense["age"]], axis=1)
        there = lambda name: numpy.array([[0.25 * bool(r[name])] * 4 for r in self.rows], dtype=numpy.float32)
        session = onnxruntime.InferenceSession(str(self.folder / "elsewhere.onnx"), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {"numeric": numeric, "vectors": numpy.stack([there("user"), there("tags")], axis=1)})
        self.assertGreater(numpy.std(found), 0.01)
        self.assertLessEqual(numpy.max(numpy.abs(found - expected)), TOLERANCE)


if __name__ == "__main__":
    unittest.main()
