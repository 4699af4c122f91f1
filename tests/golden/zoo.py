#!/usr/bin/env python3
"""Writes zoo.txt: what every model of the zoo gives for a batch in evaluation, in double precision.

The forms are the papers', written with numpy and none of the service's ops; options mean what
worker/zoo/README.md says. A case is TinyJob of tests/worker/zoo_testing.h with a few options more.
Where the papers leave an order open (of pairs, of what stands side by side), it is written beside
the form.

  case MODEL BATCH
  option NAME number X | bool true/false | text T | numbers X... | texts T...    beside TinyJob's
  table NAME DIM                 of a table that is new, or in the place of its dim
  no_dense                       without dense features
  classes                        the loss is that of classes
  sequence COLUMN TABLE          one more column of a sequence
  task NAME                      one more, of classes
  lengths X...                   of every sequence
  input NAME P BATCH DIMS...     what its values follow from (zoo_parts.py), and its shape
  trained NAME P DIMS...         the same for a parameter, statistic NAME P DIMS for a running one
  output WIDTH Y...              one line for each task
  end
"""

import json
import os

import zoo_deep_models as deep
import zoo_field_models as fields
from zoo_parts import BATCH, LENGTHS, Network

HERE = os.path.dirname(os.path.abspath(__file__))
TWO = {"sequence": ["s", "t"], "target": ["c1", "c3"]}

# What TinyJob is made of, too: the options and tasks of each model that has not just an MLP. (Evaluation has no dropout.)
with open(os.path.join(HERE, "tiny_models.json")) as file:
    TINY = json.load(file)
MLP = {"hidden": [17, 9], "batch_norm": True}

# model, options beside TinyJob's; then what else is not TinyJob's: "tables", dims by name; "dense",
# False for no dense features; "sequences", columns and their table; "tasks", of classes; "classes",
# True for one task of classes.
CASES = [
    (fields.lr, {}, {}),
    (fields.fm, {}, {}),
    (fields.fm, {}, {"dense": False, "tables": {"other": 4}}),
    (fields.ffm, {}, {}),
    (fields.ffm, {}, {"tables": {"embedding": 8}}),
    (fields.fwfm, {}, {}),
    (fields.nfm, {}, {}),
    (fields.afm, {}, {}),
    (fields.afm, {"activation": "tanh"}, {}),
    (fields.afn, {}, {}),
    (fields.afn, {"ensemble": True, "log_batch_norm": False}, {"tables": {"deep": 2}}),
    (fields.autoint, {}, {}),
    (
        fields.autoint,
        {"layer_norm": False, "scale": False, "heads": 3, "wide": True, "hidden": []},
        {},
    ),
    (fields.xdeepfm, {}, {}),
    (fields.xdeepfm, {"cin": [4, 3, 2], "hidden": []}, {}),
    (fields.dlrm, {}, {}),
    (fields.dlrm, {"self": True}, {}),
    (fields.dlrm, {"interaction": "cat"}, {}),
    (fields.dlrm, {}, {"dense": False}),
    (fields.finalnet, {"block1": [6, 5]}, {}),
    (fields.finalnet, {"field_gate": False, "block2": []}, {}),
    (fields.finalnet, {"block1": [6, 8], "block2": [4], "residual": "concat"}, {}),
    (fields.finalmlp, {}, {}),
    (fields.finalmlp, {"heads": 1, "gate_hidden": [], "mlp2": [6, 5]}, {}),
    (fields.finalmlp, {"gate_hidden": [5, 4], "activation": "tanh"}, {}),
    (
        fields.finalmlp,
        {"gate1_table": "one", "gate2_table": "two"},
        {"tables": {"one": 3, "two": 2}},
    ),
    (fields.finalmlp, {"gate2_table": "one"}, {"tables": {"one": 3}}),
    (deep.dnn, {}, {}),
    (deep.dnn, {"activation": "prelu", "batch_norm": False}, {"tables": {"other": 2}}),
    (deep.dnn, {"classes": 3}, {"classes": True}),
    (deep.wide_deep, {}, {}),
    (deep.deepfm, {}, {}),
    (deep.dcn, {}, {}),
    (deep.dcn, {"hidden": []}, {}),
    (deep.dcn_v2, {}, {}),
    (deep.dcn_v2, {"low_rank": 0, "structure": "stacked"}, {}),
    (deep.masknet, {}, {}),
    (deep.masknet, {"structure": "serial"}, {}),
    (deep.masknet, {"embedding_norm": False, "layer_norm": False, "activation": "silu"}, {}),
    (deep.edcn, {}, {}),
    (deep.edcn, {"bridge": "add", "cross_layers": 3}, {}),
    (deep.edcn, {"regulation": False}, {}),
    (deep.edcn, {"batch_norm": False}, {"dense": False}),
    (deep.edcn, {"batch_norm": False, "gate_batch_norm": True, "temperature": 5}, {}),
    (deep.din, {}, {}),
    (
        deep.din,
        {**TWO, "attention": [6, 5], "attention_activation": "tanh", "attention_softmax": True},
        {"sequences": {"t": "embedding"}},
    ),
    (deep.dien, {}, {}),
    (deep.dien, {**TWO, "units": 0, "evolution": 0}, {"sequences": {"t": "embedding"}}),
    (deep.mmoe, {"experts": 3}, {}),
    (deep.mmoe, {"classes": 3, "tower": [6, 5]}, {"tasks": ["kind"]}),
    (deep.shared_bottom, {}, {}),
]


def option(value):
    if isinstance(value, bool):
        return "bool", str(value).lower()
    if isinstance(value, str):
        return "text", value
    if not isinstance(value, list):
        return "number", repr(value)
    kind = "texts" if value and isinstance(value[0], str) else "numbers"
    return kind, " ".join(map(str, value))


def write(out, model, options, extra):
    name = model.__name__
    dims = {"embedding": 4, **extra.get("tables", {})}
    sequences = {"s": "embedding", **extra.get("sequences", {})}
    dense = 3 if extra.get("dense", True) else 0
    tiny = TINY.get(name, {"options": MLP})
    network = Network({**tiny.get("options", {}), **options}, dims, dense, sequences)
    print("case", name, BATCH, file=out)
    for key, value in options.items():
        print("option", key, *option(value), file=out)
    for table, dim in extra.get("tables", {}).items():
        print("table", table, dim, file=out)
    if not dense:
        print("no_dense", file=out)
    if extra.get("classes"):
        print("classes", file=out)
    for column, table in extra.get("sequences", {}).items():
        print("sequence", column, table, file=out)
    tasks = [(task["name"], False) for task in tiny.get("tasks", [])]
    tasks += [(t, True) for t in extra.get("tasks", [])]
    for task in extra.get("tasks", []):
        print("task", task, file=out)
    print("lengths", *LENGTHS, file=out)
    outputs = model(network, tasks) if tasks else [model(network)]
    for tensor, (kind, p, shape) in network.filled.items():
        print(kind, tensor, p, *shape, file=out)
    for values in outputs:
        print("output", values.shape[1], *("%.12g" % v for v in values.ravel()), file=out)
    print("end", file=out)


def main():
    with open(os.path.join(HERE, "zoo.txt"), "w") as out:
        print("# Made by zoo.py; see there.", file=out)
        for case in CASES:
            write(out, *case)


if __name__ == "__main__":
    main()
