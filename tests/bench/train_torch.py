#!/usr/bin/env python3
"""Trains the models of train_bench.cc in PyTorch and writes samples a second by thread count.

Usage: train_torch.py --model dlrm|deepfm|dcn_v2 --raw FILE --samples N --dense N --fields N --rows N
                      --dim N --bottom W,.. --hidden W,.. --batch N --steps N --warm N --out FILE
                      [--precision float32|tf32|bfloat16] [--device cpu|cuda]

FILE of --raw is what WriteTrainData (train_data.h) writes. --out gets {"version": "2.15.0",
"rates": {"1": RATE, "2": RATE}}, by threads, or with a card {"cuda": RATE}. bfloat16: the forward
pass under autocast. Exit code 3: PyTorch is not installed.

The forms taken are the fastest that were found: the ids of all fields looked up at once in one
table; sparse gradients and torch.optim.Adagrad for DLRM's large table; dense gradients and Adam over
all parameters at once (foreach) for DeepFM's small ones; the data in memory, ready as tensors, so
that no reading or parsing is counted. torch.compile (2.15) gains nothing here: 40.3 for 40.0
thousand samples/s of DLRM on two cores. On a card all samples, tables and optimizers are in its memory.
"""
import argparse
import json
import sys
import time

try:
    import torch
    from torch import nn
except ImportError as error:
    print(f"PyTorch is not installed: {error}", file=sys.stderr)
    raise SystemExit(3)

# Of one thread count, after which fewer steps than asked for have to do: on a machine whose cores
# others use too, threads that wait for each other take very long.
MOST_SECONDS = 20


def layers(widths, last_linear):
    parts = []
    for i, (width, out) in enumerate(zip(widths, widths[1:])):
        parts.append(nn.Linear(width, out))
        if not last_linear or i + 2 < len(widths):
            parts.append(nn.ReLU())
    return nn.Sequential(*parts)


def adagrads(model):
    """One for the table, whose gradients are sparse, and one for the rest."""
    rest = [value for name, value in model.named_parameters() if not name.startswith("table.")]
    return [torch.optim.Adagrad(model.table.parameters(), lr=0.01, initial_accumulator_value=0.1),
            torch.optim.Adagrad(rest, lr=0.01, initial_accumulator_value=0.1, foreach=True)]


class Dlrm(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.table = nn.EmbeddingBag(o.rows, o.dim, mode="sum", sparse=True)
        nn.init.normal_(self.table.weight, std=0.01)
        self.bottom = layers([o.dense, *o.bottom, o.dim], last_linear=False)
        vectors = o.fields + 1
        self.top = layers([o.dim + vectors * (vectors - 1) // 2, *o.hidden, 1], last_linear=True)
        row, column = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", row * vectors + column)
        self.shape = (o.batch, o.fields, o.dim)

    def forward(self, dense, ids):
        rows = self.table(ids.view(-1, 1)).view(-1, *self.shape[1:])
        x = self.bottom(dense)
        vectors = torch.cat([x.unsqueeze(1), rows], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([x, products.index_select(1, self.pairs)], dim=1))

    def optimizers(self):
        return adagrads(self)


class DcnV2(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.table = nn.EmbeddingBag(o.rows, o.dim, mode="sum", sparse=True)
        nn.init.normal_(self.table.weight, std=0.01)
        width = o.fields * o.dim + o.dense
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.deep = layers([width, *o.hidden], last_linear=False)
        self.logit = nn.Linear(width + o.hidden[-1], 1)

    def forward(self, dense, ids):
        first = torch.cat([dense, self.table(ids.view(-1, 1)).view(len(ids), -1)], dim=1)
        x = first
        for layer in self.cross:
            x = first * layer(x) + x
        return self.logit(torch.cat([x, self.deep(first)], dim=1))

    def optimizers(self):
        return adagrads(self)


class DeepFm(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.linear = nn.Embedding(o.rows, 1)
        self.table = nn.Embedding(o.rows, o.dim)
        for table in (self.linear, self.table):
            nn.init.normal_(table.weight, std=0.01)
        self.bias = nn.Parameter(torch.zeros(1))
        self.deep = layers([o.fields * o.dim, *o.hidden, 1], last_linear=True)

    def forward(self, dense, ids):
        rows = self.table(ids)
        total = rows.sum(1)
        second = 0.5 * (total * total - (rows * rows).sum(1)).sum(1, keepdim=True)
        return self.linear(ids).sum(1) + self.bias + second + self.deep(rows.flatten(1))

    def optimizers(self):
        return [torch.optim.Adam(self.parameters(), lr=0.001, foreach=True)]


def read(o):
    with open(o.raw, "rb") as file:
        def take(dtype, *shape):
            count = torch.Size(shape).numel()
            if count == 0:
                return torch.empty(shape, dtype=dtype)
            size = count * torch.empty(0, dtype=dtype).element_size()
            return torch.frombuffer(bytearray(file.read(size)), dtype=dtype).view(shape)
        return (take(torch.float32, o.samples, 1), take(torch.float32, o.samples, o.dense),
                take(torch.int64, o.samples, o.fields))


def rate(o, model, optimizers, data, threads):
    if threads is not None:
        torch.set_num_threads(threads)
    wait = torch.cuda.synchronize if o.device == "cuda" else lambda: None
    loss_of = nn.BCEWithLogitsLoss()
    batches = o.samples // o.batch
    began = time.perf_counter()
    step, warm, done = 0, True, 0
    while done < o.steps and (done == 0 or time.perf_counter() - began < MOST_SECONDS):
        if warm and (step == o.warm or (step > 0 and time.perf_counter() - began > MOST_SECONDS / 4)):
            warm = False
            wait()
            began = time.perf_counter()
        first = step % batches * o.batch
        labels, dense, ids = (part[first:first + o.batch] for part in data)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        with torch.autocast(o.device, dtype=torch.bfloat16, enabled=o.precision == "bfloat16"):
            logits = model(dense, ids)
        loss = loss_of(logits.float(), labels)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        step += 1
        done += not warm
    wait()
    seconds = time.perf_counter() - began
    if not torch.isfinite(loss):
        raise SystemExit("the loss is not a number")
    return done * o.batch / seconds


MODELS = {"dlrm": Dlrm, "deepfm": DeepFm, "dcn_v2": DcnV2}


def main():
    def widths(text):
        return [int(width) for width in text.split(",") if width]

    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=list(MODELS), required=True)
    parser.add_argument("--precision", choices=["float32", "tf32", "bfloat16"], default="float32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    for name in ("--raw", "--out"):
        parser.add_argument(name, required=True)
    for name in ("samples", "dense", "fields", "rows", "dim", "batch", "steps", "warm"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("--bottom", "--hidden"):
        parser.add_argument(name, type=widths, default=[])
    o = parser.parse_args()
    torch.manual_seed(1)
    torch.set_flush_denormal(True)
    torch.backends.cuda.matmul.allow_tf32 = o.precision == "tf32"
    model = MODELS[o.model](o).to(o.device)
    optimizers = model.optimizers()
    data = [part.to(o.device) for part in read(o)]
    if o.device == "cuda":
        rates = {"cuda": rate(o, model, optimizers, data, None)}
    else:
        rates = {str(threads): rate(o, model, optimizers, data, threads) for threads in (1, 2)}
    with open(o.out, "w", encoding="utf-8") as file:
        json.dump({"version": torch.__version__, "rates": rates}, file)


if __name__ == "__main__":
    main()
