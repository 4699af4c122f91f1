"""Jobs with something of everything that a job file may say, drawn by seed. All of them are valid, and so small that one trains in seconds."""
import dataclasses
import re

from layers import JUMP
from models import RANKING, ROOT, behaviour, clicks, often

PROTO = (ROOT / "proto/tessera/v1/job.proto").read_text()
# All kinds of OptimizerSpec.
OPTIMIZERS = re.findall(r"^    \w+ (\w+) = \d+;", PROTO.split("message OptimizerSpec {")[1].split("oneof kind {")[1].split("  }\n")[0],
                        re.MULTILINE)
# The losses of each metric, as EvaluationSpec lists them.
METRICS = {name.replace("@k", "@3"): re.findall(r"\w+_\w+|huber", losses)
           for names, losses in re.findall(r"^  //   (\S.*?)  +(?:larger|smaller|nearer to 1) +(.*)$", PROTO, re.MULTILINE)
           for name in names.split(", ")}


@dataclasses.dataclass
class Job:
    """`spec` as in a YAML file, over the files of `data`: "clicks" (tessera data generate), "behaviour" (tessera data behaviour), or
    "clicks-with-holes", in which fields are empty and some records bad."""
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
    def losses(self):
        model = self.spec["model"]
        return {task.get("loss", "binary_cross_entropy") for task in model.get("tasks", [model])}

    @property
    def ranks(self):
        return not self.losses.isdisjoint(RANKING)

    @property
    def jumps(self):
        """The last bits of a float decide something in its network."""
        return any(layer["op"] in JUMP for layer in self.spec["model"].get("layers", []))

    @property
    def follows_metrics(self):
        """Its training hangs on what evaluations say."""
        return "early_stopping" in self.spec["train"] or "plateau" in self.spec["train"].get("schedule", {})


def some(draw, spec, *choices):
    """Sets some fields: each with its share, and the values that it may have."""
    for field, share, values in choices:
        if often(draw, share):
            spec[field] = draw.choice(values)
    return spec


def optimizer(draw):
    kind = draw.choice(OPTIMIZERS)
    adam = lambda: draw.choice(({}, {"beta1": 0.8, "beta2": 0.99}, {"epsilon": 1e-4}))
    options = {
        "momentum": lambda: {"nesterov": often(draw, 0.5), "momentum": draw.choice((0.5, 0.9))},
        "adagrad": lambda: draw.choice(({}, {"decay": 0.99, "initial_accumulator": 0.2})),
        "row_wise_adagrad": lambda: draw.choice(({}, {"initial_accumulator": 0.2, "epsilon": 1e-6})),
        "rmsprop": lambda: draw.choice(({}, {"momentum": 0.5, "decay": 0.8})),
        "adadelta": lambda: draw.choice(({}, {"decay": 0.9, "epsilon": 1e-5})),
        "ftrl": lambda: {"l1": draw.choice((0, 0.001)), "l2": draw.choice((0, 0.001)), "beta": draw.choice((1, 0.5))},
        "adam": adam, "amsgrad": adam, "lamb": adam,
    }.get(kind, dict)()
    rate = draw.choice((0.001, 0.005)) if kind in ("sgd", "momentum", "rmsprop") else draw.choice((0.001, 0.005, 0.02))
    return some(draw, {"learning_rate": 1 if kind == "adadelta" else rate, kind: options}, ("l2", 0.4, (1e-5, 1e-3)),
                ("weight_decay", 0.3, (1e-4, 1e-2)), ("clip_value", 0.3, (0.01, 1)), ("clip_norm", 0.3, (0.05, 1)))


def table(draw, name, dim):
    zero = {"constant": {"value": draw.choice((0, 0, 0.03))}}
    spread = draw.choice(({"normal": {"stddev": 0.05}}, {"normal": {"mean": 0.02, "stddev": 0.05}}, {"uniform": {"min": -0.05, "max": 0.05}}))
    spec = {"name": name, "dim": dim, "initializer": zero if name == "linear" else spread, "optimizer": optimizer(draw)}
    return some(
        draw, spec, ("row_type", 0.2, ("bfloat16",)), ("wire_type", 0.2, ("bfloat16",)), ("update", 0.2, ("every_row",)),
        ("admission", 0.2, ({"after_sightings": 2}, {"probability": 0.6}, {"after_sightings": 3, "probability": 0.9})),
        ("expiry", 0.15, ({"after_steps": 9}, {"min_frequency": 3, "grace_steps": 4}, {"min_norm": 0.02, "grace_steps": 3})))


def schedule(draw):
    """One rule, or several whose product counts."""
    decays = ({"decay_start": 6, "decay_steps": 20, "end": 0.1}, {"decay_steps": 30, "decay": "cosine"}, {"decay_steps": 25, "power": 1, "end": 0.2})
    rules = ({"warmup_steps": 5}, draw.choice(decays), draw.choice(({"step": {"factor": 0.5, "every": 9}}, {"step": {"factor": 0.3, "at": [4, 17]}})),
             {"plateau": draw.choice(({"factor": 0.5, "patience": 1}, {"factor": 0.5, "minimum": 0.4}))})
    spec = {}
    for rule in draw.sample(rules, draw.choice((1, 1, 2, 3))):
        spec |= rule
    return {**spec, "decay_start": max(5, spec.get("decay_start", 0))} if {"warmup_steps", "decay_steps"} <= spec.keys() else spec


def evaluation(draw, model, columns):
    """When, and what is measured; the columns have one that says the groups where metrics need it."""
    spec = some(draw, {}, ("every_steps", 0.4, (10,)), ("every_epochs", 0.2, (1, 2)))
    if often(draw, 0.4):
        return spec
    tasks = model.get("tasks", [model])
    of = lambda metric, task: task.get("loss", "binary_cross_entropy") in METRICS[metric]
    # Of all tasks, and of one.
    names = [metric for metric in METRICS if all(of(metric, task) for task in tasks)]
    if "tasks" in model:
        names += [f"{metric}/{task['name']}" for task in tasks for metric in METRICS if of(metric, task) and metric not in names]
    groups = next((column["name"] for column in columns if column["name"] in ("user", "c0")), "")
    by_group = lambda name: name.split("/")[0] == "gauc" or "@" in name
    if not groups:
        names = [name for name in names if not by_group(name)]
    chosen = draw.sample(names, min(len(names), draw.randrange(1, 5)))
    spec["metrics"] = chosen
    if any(map(by_group, chosen)):
        spec["group_by"] = groups
    one = [name for name in chosen if "tasks" not in model or "/" in name]
    return some(draw, spec, *([("monitor", 0.5, one)] if one else []))


def with_holes(draw, columns):
    """For data of which some fields are empty: what stands for them."""
    for column in columns:
        if column["name"] == "d1":
            column["default_value"] = "0.5"
        if column["name"] == "c1" and often(draw, 0.5):
            column["default_value"] = "7"


def draw_job(draw):
    dim = draw.choice((3, 4, 8, 12))
    data = draw.choice(("clicks", "clicks", "clicks-with-holes", "behaviour", "behaviour", "behaviour"))
    columns, dims, model = (behaviour if data == "behaviour" else clicks)(draw, dim)
    if data == "clicks-with-holes":
        with_holes(draw, columns)
    model["optimizer"] = optimizer(draw)
    if often(draw, 0.2):
        model["ema_decay"] = 0.9
    train = some(
        draw, {"batch_size": draw.choice((250, 333, 512)), "epochs": 2}, ("steps", 0.1, (29,)),
        ("clip", 0.3, ({"norm": 0.5}, {"value": 0.1}, {"norm": 1, "value": 0.1})), ("dense_gradients", 0.3, ("all_reduce",)),
        ("early_stopping", 0.1, ({"patience": 1}, {"patience": 2, "min_delta": 0.01})))
    if often(draw, 0.4):
        train["schedule"] = schedule(draw)
    spec = {
        "name": "drawn", "seed": draw.randrange(1 << 40),
        "data": {"format": "csv", "header": True, "columns": columns, "train": {"files": "train.csv"},
                 "validation": {"files": "validation.csv"}, "test": {"files": "test.csv"},
                 "shuffle_window_records": draw.choice((1100, 2000, 262144)), "shard_records": draw.choice((100, 1024)),
                 **({"max_bad_records": 20} if data == "clicks-with-holes" else {})},
        "tables": [table(draw, name, width) for name, width in dims.items()],
        "model": model, "train": train, "consistency": {"sparse": "sync", "dense": "sync"},
        "checkpoint": some(draw, {"every_steps": draw.choice((0, 7, 11)), "keep_best": often(draw, 0.3)}, ("every_epochs", 0.2, (1,)),
                           ("keep", 0.2, (1,))),
        "evaluation": evaluation(draw, model, columns),
        "recovery": some(draw, {"push_log": draw.choice(("off", "off", "async", "fsync"))}, ("set_aside_after", 0.1, (3,)))}
    if model["name"] == "afn":
        # A logarithm's slope has no bound near 0, so that a step by the gradient itself may be of any length.
        for rows in spec["tables"]:
            rows["optimizer"].setdefault("clip_value", 0.1)
    return Job(spec, data, workers=draw.choice((1, 2, 3)))
