"""Models of drawn jobs: those of the zoo with their options, and networks of `layers:`. Each is drawn with the columns that it reads."""
import json
import pathlib

from layers import draw_layers

ROOT = pathlib.Path(__file__).resolve().parents[2]
RANKING = ("bayesian_personalized_ranking", "listwise_softmax")
# What `tessera data behaviour` writes as `kind` is below it.
CLASSES = 8


def often(draw, share):
    return draw.random() < share


def layers_of_a_network(draw):
    """What users' MLPs have in common, and their options."""
    options = {"hidden": draw.choice(([8], [16, 8]))}
    if often(draw, 0.4):
        options["batch_norm"] = True
    if often(draw, 0.3):
        options["dropout"] = 0.2
    if often(draw, 0.3):
        options["init"] = draw.choice(("xavier_uniform", "he_normal", "lecun_uniform"))
    if often(draw, 0.4):
        options["activation"] = draw.choice(("dice", "elu", "gelu", "hard_sigmoid", "leaky_relu", "prelu", "selu", "sigmoid", "silu", "softplus",
                                             "tanh"))
    return options


# What a model has beside the layers of a network.
CLICK_MODELS = {
    "dnn": lambda draw: {},
    "wide_deep": lambda draw: {},
    "deepfm": lambda draw: {},
    "nfm": lambda draw: {},
    "dcn": lambda draw: {"cross_layers": draw.choice((1, 3))},
    "dcn_v2": lambda draw: {"low_rank": draw.choice((0, 3)), "structure": draw.choice(("parallel", "stacked"))},
    "xdeepfm": lambda draw: {"cin": draw.choice(([4], [6, 3]))},
    "autoint": lambda draw: {"attention": 8, "heads": draw.choice((1, 2)), "layer_norm": often(draw, 0.5), "scale": often(draw, 0.5),
                             "attention_dropout": draw.choice((0, 0.2)), "wide": often(draw, 0.5)},
    "afn": lambda draw: {"log_neurons": 7, "afn_hidden": [6], "ensemble": False, "log_batch_norm": often(draw, 0.5)},
    "dlrm": lambda draw: {"bottom": [8], "interaction": draw.choice(("dot", "cat")), "self": often(draw, 0.3)},
    "masknet": lambda draw: {"structure": draw.choice(("parallel", "serial")), "blocks": 2, "block_dim": 6,
                             "reduction_ratio": draw.choice((1, 0.5)), "embedding_norm": often(draw, 0.5), "layer_norm": often(draw, 0.5)},
}
# Those that have other layers or none.
BARE_MODELS = {
    "lr": lambda draw: {},
    "fm": lambda draw: {},
    "ffm": lambda draw: {},
    "fwfm": lambda draw: {},
    "afm": lambda draw: {"attention": 5, "dropout": draw.choice((0, 0.2)), "attention_dropout": draw.choice((0, 0.2))},
    "edcn": lambda draw: {"cross_layers": 2, "bridge": draw.choice(("hadamard", "add")), "regulation": often(draw, 0.5)},
    "finalmlp": lambda draw: {"mlp1": [8], "mlp2": [8, 4], "heads": draw.choice((1, 2)), "gate_hidden": draw.choice(([], [5]))},
    "finalnet": lambda draw: {"block1": [8], "residual": draw.choice(("sum", "concat")), "field_gate": often(draw, 0.5),
                              **draw.choice(({"block2": [6], "mutual": draw.choice((0, 0.5))}, {"block2": []}))},
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
# Those that do without numbers, and without a dim of their own.
PLAIN_MODELS = sorted({**CLICK_MODELS, **BARE_MODELS}.keys() - {"dlrm", "ffm", "lr"})


def of_the_zoo(draw, name):
    own = {**CLICK_MODELS, **BARE_MODELS}[name](draw)
    return {"name": name, "options": {**layers_of_a_network(draw), **own} if name in CLICK_MODELS else own}


def own_layers(draw, inputs, lengths=None, losses=("binary_cross_entropy",)):
    """A network of layers, with a tensor for each loss."""
    layers, heads = draw_layers(draw, inputs, lengths or {}, [CLASSES if loss == "softmax_cross_entropy" else 1 for loss in losses])
    return {"name": "layers", "layers": layers}, heads


def clicks(draw, dim):
    """A model of one task over columns of numbers and of ids: its columns, the dims of its tables, and itself."""
    name = draw.choice((*CLICK_MODELS, *BARE_MODELS, "layers", "layers", "layers"))
    fields = draw.choice((3, 8))
    numbers = draw.choice((2, 4) if name == "dlrm" else (0, 2, 4))
    dims = {"linear": 1, "embedding": 2 * (fields - 1) if name == "ffm" else dim}
    if name == "lr":
        del dims["embedding"]
    if name in ("dnn", "dlrm"):
        del dims["linear"]
    columns = [{"name": "label", "role": "label"}]
    columns += [{"name": f"d{i}", "role": "dense", **({"transform": "log1p"} if often(draw, 0.2) else {})} for i in range(numbers)]
    columns += [{"name": f"c{i}", "role": "sparse", "table": list(dims)} for i in range(fields)]
    if often(draw, 0.25):
        # Strings; two columns share what they mean.
        for i in draw.choice(((0,), (1, 2))):
            columns[1 + numbers + i].update(type="string", **({"key_space": "shop"} if i > 0 else {}))
    if name == "layers":
        inputs = {"embedding": (fields, dim), "c0.embedding": (dim,), "linear": (fields, 1), **({"dense": (numbers,), "d0": (1,)} if numbers else {})}
        model, _ = own_layers(draw, inputs)
    else:
        model = of_the_zoo(draw, name)
    if often(draw, 0.15):
        model["positive_weight"] = 1.5
    return columns, dims, model


# Of each loss: the columns of `tessera data behaviour` that are labels of it, and its fields.
def binary(draw):
    return {"label": draw.choice(("click", "buy")), **({"positive_weight": 2} if often(draw, 0.3) else {})}


LOSSES = {
    "binary_cross_entropy": binary,
    "mean_squared_error": lambda draw: {"label": "stars"},
    "huber": lambda draw: {"label": "stars", **draw.choice(({}, {"huber_delta": 0.5}))},
    "softmax_cross_entropy": lambda draw: {"label": draw.choice(("kind", "stars"))},
    "bayesian_personalized_ranking": lambda draw: {"label": "click"},
    "listwise_softmax": lambda draw: {"label": draw.choice(("click", "stars"))},
}


def draw_tasks(draw, count):
    """The fields of model.tasks; two tasks may have one label, for one loss."""
    tasks, loss_of = [], {}
    while len(tasks) < count:
        loss = draw.choice(("binary_cross_entropy", *LOSSES))
        task = {"name": f"task-{len(tasks)}", "loss": loss, **LOSSES[loss](draw), **draw.choice(({}, {"weight": 0.5}))}
        if loss_of.setdefault(task["label"], loss) == loss:
            tasks.append(task)
    return tasks


def label_column(draw, label):
    """Of those with more values than two, one may stand for no label."""
    missing = {"missing_value": "1"} if label in ("stars", "kind") and often(draw, 0.4) else {}
    return {"name": label, "role": "label", **missing}


def clicked(draw):
    """What was clicked before, without its pooling; one id may only fill places."""
    padding = {"padding_id": "7"} if often(draw, 0.3) else {}
    return {"name": "history", "role": "sparse", "table": "embedding", "separator": "|", **padding}


def sequences_of(draw, columns, places, text):
    """The options of din and dien, whose columns are added."""
    history = {**clicked(draw), "pooling": "sequence", "max_length": places}
    same = {"type": "string", "key_space": "category"} if text else {}
    columns += [history, {**history, "name": "categories", **same}]
    return {"sequence": ["history", "categories"], "target": ["item", "category"], "hidden": [16, 8]}


def behaviour(draw, dim):
    """Sequences, several tasks, all losses, and layers of one's own."""
    kind = draw.choice(("din", "dien", "mmoe", "shared_bottom", "layers", "layers", "layers", "dnn", "plain", "plain"))
    name = draw.choice(PLAIN_MODELS) if kind == "plain" else kind
    towers = name in ("mmoe", "shared_bottom")
    tasks = draw_tasks(draw, draw.choice((2, 3)) if towers or (kind == "layers" and often(draw, 0.4)) else 1)
    many = len(tasks) > 1
    if kind == "plain":
        while tasks[0]["loss"] == "softmax_cross_entropy":  # these have one output
            tasks = draw_tasks(draw, 1)
    losses = [task["loss"] for task in tasks]
    text = often(draw, 0.5)  # of what is a number, too
    dims = {"embedding": dim, **({"linear": 1} if name not in ("din", "dien", "dnn", "layers", "mmoe", "shared_bottom") else {})}
    columns = [{"name": "item", "role": "sparse", "table": list(dims)},
               {"name": "category", "role": "sparse", "table": "embedding", **({"type": "string"} if text else {})}]
    ranks = any(loss in RANKING for loss in losses)
    if ranks or often(draw, 0.3):
        columns.append({"name": "user", "role": "sparse", **({"table": "embedding"} if often(draw, 0.5) or not ranks else {})})
    if not ranks and often(draw, 0.4):
        columns.append({"name": "weight", "role": "weight"})
    columns += [label_column(draw, label) for label in sorted({task["label"] for task in tasks})]
    places = draw.choice((3, 8))
    options = {"classes": CLASSES} if "softmax_cross_entropy" in losses else {}
    if name == "din":
        options |= {**sequences_of(draw, columns, places, text), "attention": [8, 4], "attention_softmax": often(draw, 0.5)}
    elif name == "dien":
        options |= {**sequences_of(draw, columns, places, text), "units": draw.choice((0, 6)), "evolution": draw.choice((0, 5)),
                    "auxiliary": draw.choice((0, 0.1)), **draw.choice(({}, {"auxiliary_hidden": [4]}))}
    elif name == "layers":
        columns.append({**clicked(draw), "pooling": "sequence", "max_length": places})
    else:
        columns.append({**clicked(draw), "pooling": draw.choice(("sum", "mean", "sqrtn", "max"))})
        if towers:
            options |= {**layers_of_a_network(draw), "tower": [4], **({"experts": 2} if name == "mmoe" else {})}
        elif name == "dnn":
            options |= layers_of_a_network(draw)
    model, heads = {"name": name, "options": options}, [task["name"] for task in tasks]
    if name == "layers":
        model, heads = own_layers(draw, {"item.embedding": (dim,), "category.embedding": (dim,), "history.embedding": (places, dim),
                                         "history.length": (1,)}, {"history.length": places}, losses)
    elif kind == "plain":
        model = of_the_zoo(draw, name)
        if losses != ["binary_cross_entropy"]:
            model["options"].pop("mutual", None)  # of logits alone
    if ranks:
        model["group_by"] = "user"
    if many:
        model["tasks"] = [{**task, "output": head} for task, head in zip(tasks, heads)]
    else:
        model.update({field: value for field, value in tasks[0].items() if field not in ("name", "label", "weight")})
    order = ("click", "buy", "stars", "kind", "weight", "user", "item", "category", "history", "categories")  # of the files
    return sorted(columns, key=lambda column: order.index(column["name"])), dims, model
