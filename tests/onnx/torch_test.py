#!/usr/bin/env python3
"""Networks that PyTorch exports are read, and predict what they predict there.

Usage: tests/onnx/torch_test.py TESSERA_PROGRAM READ_PROGRAM
Exits with 77, which ctest calls skipped, where PyTorch is not installed (Debian: python3-torch). A release that has the
exporter of torch.export is tested with that too, as it is called by default: its weights lie beside the file.
"""
import contextlib
import importlib.util
import inspect
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
import warnings

try:
    import torch
    from torch import nn
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from shapes import DENSE, DIM, FIELDS, without_history
from torch_modules import MODULES

TESSERA, READ = sys.argv.pop(1), sys.argv.pop(1)
TOLERANCE = 1e-5

# Nothing moves: one step at rates too small to change a float. Rows are as they start, by key.
JOB = """
name: torch
seed: 7
data:
  format: csv
  header: true
  columns:
    - {name: label, role: label}
    - {name: [d0, d1, d2], role: dense}
    - {name: [a, b, c, d], role: sparse, type: int64, table: embedding}
  train: {files: train.csv}
  test: {files: test.csv}
tables:
  - {name: embedding, dim: 8, initializer: {uniform: {min: -1, max: 1}}, optimizer: {learning_rate: 1.0e-30, sgd: {}}}
model:
  name: onnx
  onnx_file: network.onnx
  loss: mean_squared_error
  options: {inputs: {vectors: embedding}}
  optimizer: {learning_rate: 1.0e-30, sgd: {}}
train: {batch_size: 256, steps: 1}
"""


class Dlrm(nn.Module):
    """As in the reference code: the triangle by advanced indexing, which PyTorch exports with the batch as the last axis."""

    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(DENSE, 16), nn.ReLU(), nn.Linear(16, DIM), nn.ReLU())
        fields = FIELDS + 1
        self.top = nn.Sequential(nn.Linear(DIM + fields * (fields - 1) // 2, 16), nn.ReLU(), nn.Linear(16, 1))
        rows, columns = torch.tril_indices(fields, fields, offset=-1)
        self.rows, self.columns = rows.tolist(), columns.tolist()

    def forward(self, dense, vectors):
        x = self.bottom(dense)
        all_fields = torch.cat([x.view(x.size(0), 1, -1), vectors], dim=1)
        products = torch.bmm(all_fields, torch.transpose(all_fields, 1, 2))
        return self.top(torch.cat([x, products[:, self.rows, self.columns]], dim=1))


class DeepFm(nn.Module):
    def __init__(self):
        super().__init__()
        self.deep = nn.Sequential(nn.Linear(DENSE + FIELDS * DIM, 16), nn.BatchNorm1d(16, momentum=0.0), nn.ReLU(), nn.Dropout(0.2),
                                  nn.Linear(16, 8), nn.PReLU(), nn.Linear(8, 1))
        self.linear = nn.Linear(DENSE, 1)
        self.bias = nn.Parameter(torch.randn(1))
        nn.init.normal_(self.deep[1].running_mean)
        nn.init.uniform_(self.deep[1].running_var, 0.5, 2)

    def forward(self, dense, vectors):
        pairs = 0.5 * (torch.sum(vectors, 1) ** 2 - torch.sum(vectors**2, 1)).sum(1, keepdim=True)
        flat = vectors.reshape(vectors.shape[0], -1)
        return self.linear(dense) + pairs + self.deep(torch.cat([dense, flat], -1)) + self.bias


class Cross(nn.Module):
    def __init__(self):
        super().__init__()
        width = DENSE + FIELDS * DIM
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(width, 1) * 0.1) for _ in range(2)])
        self.biases = nn.ParameterList([nn.Parameter(torch.randn(width) * 0.1) for _ in range(2)])
        self.out = nn.Linear(width, 1)

    def forward(self, dense, vectors):
        x = start = torch.cat([dense, torch.flatten(vectors, 1)], -1)
        for weight, bias in zip(self.weights, self.biases):
            x = start * torch.matmul(x, weight) + bias + x
        return self.out(x).squeeze(-1)


class Activations(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.first, self.out = nn.LayerNorm(DIM), nn.Linear(FIELDS * DIM, 12), nn.Linear(12, 1)
        self.all = nn.ModuleList([
            nn.GELU(), nn.SiLU(), nn.LeakyReLU(0.1), nn.ELU(), nn.SELU(), nn.Softplus(), nn.Hardsigmoid(), nn.Tanh(), nn.ReLU6(),
            nn.Hardtanh(), nn.Hardswish(), nn.Mish(), nn.Softsign(), nn.CELU(), nn.LogSigmoid(), nn.Softmax(-1), nn.LogSoftmax(-1)])

    def forward(self, dense, vectors):
        x = self.first(self.norm(vectors).flatten(1))
        for activation in self.all:
            x = 0.5 * (activation(x) + x)
        return self.out(x)


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(DIM, DIM, bias=b) for b in (False, False, True))
        self.out = nn.Linear(FIELDS * DIM, 1)

    def forward(self, dense, vectors):
        heads = lambda x: x.view(x.shape[0], x.shape[1], 2, DIM // 2).transpose(1, 2)
        query, key, value = heads(self.query(vectors)), heads(self.key(vectors)), heads(self.value(vectors))
        weights = torch.softmax(query @ key.transpose(-1, -2) / (DIM // 2) ** 0.5, -1)
        joined = (weights @ value).transpose(1, 2).contiguous().view(vectors.size(0), -1)
        return self.out(torch.relu(joined))


class TargetAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Sequential(nn.Linear(4 * DIM, 8), nn.Sigmoid(), nn.Linear(8, 1))
        self.out = nn.Linear(2 * DIM, 1)

    def forward(self, dense, vectors):
        target, past = vectors[:, 0], vectors[:, 1:]
        query = target.unsqueeze(1).expand(-1, past.size(1), -1)
        weights = self.attention(torch.cat([query, past, query - past, query * past], -1)).transpose(1, 2)
        return self.out(torch.cat([torch.bmm(weights, past).squeeze(1), target], -1))


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(FIELDS * DIM, 8) for _ in range(3)])
        self.gate, self.squeeze, self.excite = nn.Linear(FIELDS * DIM, 3), nn.Linear(FIELDS, 2), nn.Linear(2, FIELDS)
        self.out = nn.Linear(8, 1)

    def forward(self, dense, vectors):
        gates = torch.sigmoid(self.excite(torch.relu(self.squeeze(torch.mean(vectors, dim=-1)))))
        x = (vectors * gates.unsqueeze(2)).view(-1, FIELDS * DIM)
        each = torch.stack([torch.relu(expert(x)) for expert in self.experts], 1)
        return self.out((each * torch.softmax(self.gate(x), 1).unsqueeze(-1)).sum(1))


class Others(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix, self.out = nn.BatchNorm1d(FIELDS, momentum=0.0), nn.Conv1d(FIELDS, 5, 1), nn.Linear(3 * DIM + DENSE + 5, 1)
        nn.init.normal_(self.norm.running_mean)

    def forward(self, dense, vectors):
        x = self.norm(vectors)
        first, second = torch.split(x[:, :2], 1, 1)
        larger = torch.maximum(first, second).squeeze(1)
        mixed = torch.relu(self.mix(x)).sum(-1)
        length = torch.norm(x, dim=1)
        return self.out(torch.cat([x.max(1)[0], larger, length, torch.log1p(dense.abs()).clamp(min=1e-3), mixed], 1))


class Interactions(nn.Module):
    """Compressed interactions, a bilinear form, dot products of all pairs: by einsum."""

    def __init__(self):
        super().__init__()
        self.compress, self.form = nn.Conv1d(FIELDS * FIELDS, 5, 1), nn.Parameter(torch.randn(DIM, FIELDS, DIM) * 0.3)
        self.out = nn.Linear(5 + FIELDS + FIELDS * FIELDS, 1)

    def forward(self, dense, vectors):
        outer = torch.einsum("bhd,bmd->bhmd", vectors, vectors).reshape(vectors.shape[0], FIELDS * FIELDS, DIM)
        compressed = torch.relu(self.compress(outer)).sum(-1)
        turned = torch.einsum("bfd,dfe->bfe", vectors, self.form)
        form = torch.einsum("bfe,bfe->bf", turned, vectors)
        dots = torch.einsum("bid,bjd->bij", vectors, vectors).flatten(1)
        return self.out(torch.cat([compressed, form, dots], 1))


def export_takes(option):
    return option in inspect.signature(torch.onnx.export).parameters


def export_by_tracing(network, example, path, opset, of_any_size=True, **more):
    axes = {name: {0: "n"} for name in ("dense", "vectors", "y")} if of_any_size else None
    if export_takes("dynamo"):
        more["dynamo"] = False
    torch.onnx.export(network, example, str(path), input_names=["dense", "vectors"], output_names=["y"], dynamic_axes=axes,
                      opset_version=opset, **more)


def export_by_default(network, example, path, of_any_size=True, **more):
    torch.onnx.export(network, example, str(path), input_names=["dense", "vectors"], output_names=["y"], dynamo=True,
                      dynamic_shapes=({0: "n"}, {0: "n"}) if of_any_size else None, **more)


def of_its_example(export, samples):
    """With the batch of an example of so many samples in the file."""
    return lambda network, example, path, *more: export(network, tuple(x[:samples] for x in example), path, *more, of_any_size=False)


class Torch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        draw = random.Random(1)
        record = lambda: [draw.randrange(2)] + [round(draw.gauss(0, 1), 4) for _ in range(DENSE)] + [draw.randrange(20) for _ in range(FIELDS)]
        self.test = [record() for _ in range(100)]
        for name, rows in (("train", self.test + [record() for _ in range(156)]), ("test", self.test)):
            lines = [",".join(map(str, row)) for row in rows]
            (self.folder / f"{name}.csv").write_text("\n".join(["label,d0,d1,d2,a,b,c,d", *lines]) + "\n")
        (self.folder / "job.yaml").write_text(JOB)

    def tessera(self, *arguments):
        done = subprocess.run([TESSERA, *map(str, arguments)], capture_output=True, text=True, cwd=self.folder, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def rows(self, checkpoint):
        """By key, from the checkpoint."""
        keys = [argument for key in range(20) for argument in ("--key", key)]
        shown = json.loads(self.tessera("checkpoint", "inspect", checkpoint, "--table", "embedding", *keys, "--output", "json"))
        return {row["key"]: row["embedding"] for row in shown["rows"]}

    def test_networks_start_as_they_were_exported(self):
        warnings.filterwarnings("ignore")
        for opset in (12, 16):
            for kind in (Dlrm, DeepFm, Cross, Activations, SelfAttention, TargetAttention, Experts, Others, Interactions):
                with self.subTest(kind.__name__, opset=opset):
                    self.compare(kind, opset)

    def compare(self, kind, opset):
        torch.manual_seed(3)
        network = kind().eval()
        export_by_tracing(network, (torch.randn(5, DENSE), torch.randn(5, FIELDS, DIM)), self.folder / "network.onnx", opset)
        work = self.folder / f"{kind.__name__}-{opset}"
        self.tessera("local", "job.yaml", "--data", self.folder, "--in-process", "--work-dir", work)
        (checkpoint,) = (work / "checkpoints").glob("*/step-*")
        self.tessera("predict", "job.yaml", "--checkpoint", checkpoint, "--data", self.folder, "--output", "out.csv")
        found = torch.tensor([float(line.split(",")[1]) for line in (self.folder / "out.csv").read_text().splitlines()[1:]])
        rows = self.rows(checkpoint)
        with torch.no_grad():
            dense = torch.tensor([row[1 : 1 + DENSE] for row in self.test])
            vectors = torch.tensor([[rows[key] for key in row[1 + DENSE :]] for row in self.test])
            expected = network(dense, vectors).reshape(-1)
        self.assertGreater(float(expected.std()), 0.01)
        self.assertLessEqual(float(((found - expected).abs() / expected.abs().clamp(min=1)).max()), TOLERANCE)


class Read(unittest.TestCase):
    """Without a service: the network alone, of many modules and forms."""

    def forms(self):
        forms = {"opset 16": lambda *arguments: export_by_tracing(*arguments, 16)}
        for samples in (1, 3):
            forms[f"opset 16, {samples} samples"] = of_its_example(lambda *arguments, **more: export_by_tracing(*arguments, 16, **more), samples)
        if export_takes("export_modules_as_functions"):
            forms["modules as functions"] = lambda *arguments: export_by_tracing(*arguments, 16, export_modules_as_functions=True)
        if importlib.util.find_spec("onnxscript") is not None:
            forms["torch.export"] = export_by_default
            for samples in (1, 3):
                forms[f"torch.export, {samples} samples"] = of_its_example(export_by_default, samples)
            forms["torch.export, opset 24"] = lambda *arguments: export_by_default(*arguments, opset_version=24)
        return forms

    def test_modules_predict_what_they_do_in_torch(self):
        warnings.filterwarnings("ignore")
        for form, export in self.forms().items():
            with tempfile.TemporaryDirectory() as folder:
                self.compare(form, export, pathlib.Path(folder))

    def exports(self, form, export, network, path):
        """False: an exporter has not every op."""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                export(network, (torch.randn(3, DENSE), torch.randn(3, FIELDS, DIM)), path)
            except Exception as refused:
                name = type(network).__name__
                print(f"{form}: {name} is not exported: {str(refused).splitlines()[0][:100]}", file=sys.__stderr__)
                return False
        return True

    def test_modules_train_as_many_numbers_as_in_torch(self):
        """Exported in the way that keeps all of them."""
        warnings.filterwarnings("ignore")
        export = lambda *arguments: export_by_tracing(*arguments, 16, do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING)
        expected = {}
        with tempfile.TemporaryDirectory() as folder:
            for kind in MODULES:
                root = pathlib.Path(folder) / kind.__name__
                root.mkdir()
                network = kind()
                for parameter in network.parameters():
                    nn.init.normal_(parameter)  # what is equal everywhere does not make layers share
                if not self.exports("opset 16 for training", export, network, root / "model.onnx"):
                    continue
                (root / "inputs").write_bytes(without_history(torch.randn(5, DENSE).numpy(), torch.randn(5, FIELDS, DIM).numpy()))
                expected[kind.__name__] = sum(parameter.numel() for parameter in network.parameters())
            subprocess.run([READ, folder], check=True, timeout=120)
            for name, numbers in expected.items():
                with self.subTest(name):
                    root = pathlib.Path(folder) / name
                    self.assertFalse((root / "error").exists(), (root / "error").read_text() if (root / "error").exists() else "")
                    (trained,) = torch.frombuffer(bytearray((root / "trained").read_bytes()), dtype=torch.float32).tolist()
                    self.assertEqual(trained, numbers)

    def compare(self, form, export, root):
        torch.manual_seed(1)
        dense, vectors = torch.randn(5, DENSE), torch.randn(5, FIELDS, DIM)
        expected = {}
        for kind in MODULES:
            folder = root / kind.__name__
            folder.mkdir()
            torch.manual_seed(3)
            network = kind().eval()
            if not self.exports(form, export, network, folder / "model.onnx"):
                continue
            (folder / "inputs").write_bytes(without_history(dense.numpy(), vectors.numpy()))
            with torch.no_grad():
                expected[kind.__name__] = network(dense, vectors).reshape(-1)
        self.assertGreater(len(expected), len(MODULES) // 2)
        subprocess.run([READ, root], check=True, timeout=120)
        for name, values in expected.items():
            # Its numbers of the samples are those of any list in such a file.
            if form.endswith("samples") and name == "OwnPlaces":
                continue
            with self.subTest(name, form=form):
                folder = root / name
                self.assertFalse((folder / "error").exists(), (folder / "error").read_text() if (folder / "error").exists() else "")
                found = torch.frombuffer(bytearray((folder / "found").read_bytes()), dtype=torch.float32)
                self.assertGreater(float(values.std()), 0.01)
                self.assertLessEqual(float(((found - values).abs() / values.abs().clamp(min=1)).max()), TOLERANCE)


if __name__ == "__main__":
    unittest.main()
