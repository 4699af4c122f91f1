"""Jobs with something of everything that a job file may say, drawn by seed. All of them are valid, and so small that one trains in seconds."""
import dataclasses
import json
import pathlib
import re

from layers import draw_layers

ROOT = pathlib.Path(__file__).resolve().parents[2]
# All kinds of OptimizerSpec.
OPTIMIZERS = re.findall(r"^    \w+ (\w+) = \d+;", (ROOT / "proto/tessera/v1/job.proto").read_text().split("message OptimizerSpec {")[1]
                        .split("oneof kind {")[1].split("  }\n")[0], re.MULTILINE)
RANKING = ("bayesian_personalized_ranking", "listwise_softmax")
# What `tessera data behaviour` writes as `kind` is below it.
CLASSES = 8


@dataclasses.dataclass
class Job:
    """`spec` as in a YAML file, over the files of `data`: "clicks" (tessera data generate) or "behaviour" (tessera data behaviour)."""
    spec: dict
    data: str
    workers: int

    @property
    def expires(self):
        return any("expiry" in table for table in self.spec["tables"])

    @property
    def admits(self):
        return any("admission" in table for table in self.spec["tables"])

    @property
    def columns(self):
        return self.spec["data"]["columns"]

    @property
    def ranks(self):
        return self.spec["model"].get("loss") in RANKING


def often(draw, share):
    return draw.random() < share


def optimizer(draw):
    kind = draw.choice(OPTIMIZERS)
    options = {
        "momentum": lambda: {"nesterov": often(draw, 0.5), "momentum": draw.choice((0.5, 0.9))},
        "adagrad": lambda: draw.choice(({}, {"decay": 0.99, "initial_accumulator": 0.2})),
        "rmsprop": lambda: draw.choice(({}, {"momentum": 0.5, "decay": 0.8})),
        "ftrl": lambda: {"l1": draw.choice((0, 0.001)), "l2": draw.choice((0, 0.001))},
    }.get(kind, dict)()
    rate = draw.choice((0.001, 0.005)) if kind in ("sgd", "momentum", "rmsprop") else draw.choice((0.001, 0.005, 0.02))
    spec = {"learning_rate": 1 if kind == "adadelta" else rate, kind: options}
    for field, share, values in (("l2", 0.4, (1e-5, 1e-3)), ("weight_decay", 0.3, (1e-4, 1e-2)), ("clip_value", 0.3, (0.01, 1)),
                                 ("clip_norm", 0.3, (0.05, 1))):
        if often(draw, share):
            spec[field] = draw.choice(values)
    return spec


def table(draw, name, dim):
    zero = {"constant": {"value": 0}}
    spread = draw.choice(({"normal": {"stddev": 0.05}}, {"uniform": {"min": -0.05, "max": 0.05}}))
    spec = {"name": name, "dim": dim, "initializer": zero if name == "linear" else spread, "optimizer": optimizer(draw)}
    for field, share, values in (
            ("row_type", 0.2, ("bfloat16",)), ("wire_type", 0.2, ("bfloat16",)), ("update", 0.2, ("every_row",)),
            ("admission", 0.2, ({"after_sightings": 2}, {"probability": 0.6}, {"after_sightings": 3, "probability": 0.9})),
            ("expiry", 0.15, ({"after_steps": 9}, {"min_frequency": 3, "grace_steps": 4}, {"min_norm": 0.02, "grace_steps": 3}))):
        if often(draw, share):
            spec[field] = draw.choice(values)
    return spec


def layers_of_a_network(draw):
    """What users' MLPs have in common, and their options."""
    options = {"hidden": draw.choice(([8], [16, 8]))}
    if often(draw, 0.4):
        options["batch_norm"] = True
    if often(draw, 0.3):
        options["dropout"] = 0.2
    if often(draw, 0.3):
        options["activation"] = draw.choice(("gelu", "prelu", "dice", "silu", "tanh", "leaky_relu"))
    return options


# What a model has beside the layers of a network.
CLICK_MODELS = {
    "dnn": lambda draw: {},
    "wide_deep": lambda draw: {},
    "deepfm": lambda draw: {},
    "nfm": lambda draw: {},
    "dcn": lambda draw: {},
    "dcn_v2": lambda draw: {"low_rank": draw.choice((0, 3)), "structure": draw.choice(("parallel", "stacked"))},
    "xdeepfm": lambda draw: {"cin": draw.choice(([4], [6, 3]))},
    "autoint": lambda draw: {"attention": 8, "heads": 2, "layer_norm": often(draw, 0.5)},
    "afn": lambda draw: {"log_neurons": 7, "afn_hidden": [6], "ensemble": False},
    "dlrm": lambda draw: {"bottom": [8], "interaction": draw.choice(("dot", "cat")), "self": often(draw, 0.3)},
    "masknet": lambda draw: {"structure": draw.choice(("parallel", "serial")), "blocks": 2, "block_dim": 6},
}
# Those that have other layers or none.
BARE_MODELS = {
    "lr": lambda draw: {},
    "fm": lambda draw: {},
    "ffm": lambda draw: {},
    "fwfm": lambda draw: {},
    "afm": lambda draw: {"attention": 5, "dropout": draw.choice((0, 0.2))},
    "edcn": lambda draw: {"cross_layers": 2, "bridge": draw.choice(("hadamard", "add"))},
    "finalmlp": lambda draw: {"mlp1": [8], "mlp2": [8, 4], "gate_hidden": draw.choice(([], [5]))},
    "finalnet": lambda draw: {"block1": [8], **draw.choice(({"block2": [6], "mutual": draw.choice((0, 0.5))}, {"block2": []}))},
}


def models_without_a_line():
    """The others of the zoo that are of one task and no sequence, with their options in unit tests."""
    tiny = json.loads((ROOT / "tests" / "golden" / "tiny_models.json").read_text())
    for file in sorted((ROOT / "worker" / "zoo").glob("*.cc")):
        model = tiny.get(file.stem, {"options": {"hidden": [8]}})
        options = model.get("options", {})
        of_clicks = "tasks" not in model and "sequence" not in options
        if of_clicks and not file.with_suffix(".h").exists() and file.stem not in CLICK_MODELS:
            yield file.stem, options


for NAME, OPTIONS in models_without_a_line():
    BARE_MODELS.setdefault(NAME, lambda draw, options=OPTIONS: options)


def clicks(draw, dim):
    """A model of one task over columns of numbers and of ids: its columns, the dims of its tables, and itself."""
    name = draw.choice((*CLICK_MODELS, *BARE_MODELS))
    fields = draw.choice((3, 8))
    numbers = draw.choice((2, 4) if name == "dlrm" else (0, 2, 4))
    dims = {"linear": 1, "embedding": 2 * (fields - 1) if name == "ffm" else dim}
    if name == "lr":
        del dims["embedding"]
    if name in ("dnn", "dlrm"):
        del dims["linear"]
    columns = [{"name": "label", "role": "label"}]
    columns += [{"name": f"d{i}", "role": "dense"} for i in range(numbers)]
    columns += [{"name": f"c{i}", "role": "sparse", "table": list(dims)} for i in range(fields)]
    own = {**CLICK_MODELS, **BARE_MODELS}[name](draw)
    model = {"name": name, "options": {**layers_of_a_network(draw), **own} if name in CLICK_MODELS else own}
    if often(draw, 0.15):
        model["positive_weight"] = 1.5
    return columns, dims, model


def two_tasks(name):
    return {"name": name, "options": {"hidden": [16], "tower": [4]},
            "tasks": [{"name": "click", "label": "click", "positive_weight": 2}, {"name": "buy", "label": "buy", "weight": 0.5}]}


def behaviour(draw, dim):
    """Sequences, several tasks, ranking, regression, classes and layers of one's own."""
    kind = draw.choice(("din", "dien", "mmoe", "shared_bottom", "layers", "layers", "deepfm", "ranking", "regression", "classes"))
    dims = {"embedding": dim}
    label = {"regression": "stars", "classes": "kind"}.get(kind, "click")
    item = {"name": "item", "role": "sparse", "table": ["embedding"]}
    text = often(draw, 0.5)  # of what is a number, too
    missing = {"missing_value": "1"} if label != "click" and often(draw, 0.4) else {}
    padding = {"padding_id": "7"} if often(draw, 0.3) else {}
    columns = [{"name": label, "role": "label", **missing}, item,
               {"name": "category", "role": "sparse", "table": "embedding", **({"type": "string"} if text else {})}]
    history = {"name": "history", "role": "sparse", "table": "embedding", "separator": "|", **padding}
    places = draw.choice((3, 8))
    sequence = {**history, "pooling": "sequence", "max_length": places}
    if kind in ("din", "dien"):
        same = {"type": "string", "key_space": "category"} if text else {}
        columns += [sequence, {**sequence, "name": "categories", **same}]
    elif kind == "layers":
        columns.append(sequence)
    else:
        columns.append({**history, "pooling": draw.choice(("sum", "mean", "sqrtn", "max"))})
    if kind in ("mmoe", "shared_bottom"):
        columns.insert(1, {"name": "buy", "role": "label"})
    if kind in ("deepfm", "ranking"):
        dims["linear"] = 1
    if kind == "deepfm":
        item["table"].append("linear")
    if kind == "ranking":
        columns.insert(1, {"name": "user", "role": "sparse", "table": "linear"})
    elif often(draw, 0.4):
        columns.append({"name": "weight", "role": "weight"})
    sequences = {"sequence": ["history", "categories"], "target": ["item", "category"], "hidden": [16, 8]}
    dnn = {"name": "dnn", "options": {"hidden": [16], "batch_norm": often(draw, 0.3)}}
    model = {
        "din": lambda: {"name": "din", "options": {**sequences, "attention": [8, 4], "attention_softmax": often(draw, 0.5)}},
        "dien": lambda: {"name": "dien", "options": {**sequences, "units": draw.choice((0, 6)), "evolution": draw.choice((0, 5)),
                                                     "auxiliary": draw.choice((0, 0.1))}},
        "mmoe": lambda: two_tasks("mmoe"),
        "shared_bottom": lambda: two_tasks("shared_bottom"),
        "layers": lambda: {"name": "layers", "layers": draw_layers(draw, {
            "item.embedding": (dim,), "category.embedding": (dim,), "history.embedding": (places, dim), "history.length": (1,)})},
        "deepfm": lambda: {"name": "deepfm", "options": {"hidden": [16]}},
        "ranking": lambda: {**dnn, "loss": draw.choice(RANKING), "group_by": "user"},
        "regression": lambda: {**dnn, "loss": draw.choice(("mean_squared_error", "huber"))},
        "classes": lambda: {"name": "dnn", "options": {"hidden": [16], "classes": CLASSES}, "loss": "softmax_cross_entropy"},
    }[kind]()
    return columns, dims, model


SCHEDULES = ({"warmup_steps": 5}, {"decay_start": 6, "decay_steps": 20, "end": 0.1}, {"decay_steps": 30, "decay": "cosine"},
             {"step": {"factor": 0.5, "every": 9}}, {"plateau": {"factor": 0.5, "patience": 1}})


def draw_job(draw):
    dim = draw.choice((3, 4, 8, 12))
    data = draw.choice(("clicks", "clicks", "behaviour"))
    columns, dims, model = (clicks if data == "clicks" else behaviour)(draw, dim)
    model["optimizer"] = optimizer(draw)
    if often(draw, 0.2):
        model["ema_decay"] = 0.9
    train = {"batch_size": draw.choice((250, 333, 512)), "epochs": 2}
    for field, share, values in (
            ("clip", 0.3, ({"norm": 0.5}, {"value": 0.1}, {"norm": 1, "value": 0.1})), ("dense_gradients", 0.3, ("all_reduce",)),
            ("schedule", 0.4, SCHEDULES)):
        if often(draw, share):
            train[field] = draw.choice(values)
    spec = {
        "name": "drawn", "seed": draw.randrange(1 << 40),
        "data": {"format": "csv", "header": True, "columns": columns, "train": {"files": "train.csv"},
                 "validation": {"files": "validation.csv"}, "test": {"files": "test.csv"},
                 "shuffle_window_records": draw.choice((1100, 2000, 262144)), "shard_records": draw.choice((100, 1024))},
        "tables": [table(draw, name, width) for name, width in dims.items()],
        "model": model, "train": train, "consistency": {"sparse": "sync", "dense": "sync"},
        "checkpoint": {"every_steps": draw.choice((0, 7, 11)), "keep_best": often(draw, 0.3)},
        "evaluation": draw.choice(({}, {"every_steps": 10})),
        "recovery": {"push_log": draw.choice(("off", "off", "async"))}}
    return Job(spec, data, workers=draw.choice((1, 2, 3)))
