"""Ways to train, or to use, a drawn job that must agree with the plain run of it: functions of a Trial, which name what differs."""
import copy
import csv
import dataclasses
import gzip
import json
from typing import Callable

from cluster import Cluster, Failure, Skip, digest
from schedules import operations


@dataclasses.dataclass
class Way:
    words: str  # which end the sentence "a drawn job ..."
    applies: Callable  # to which jobs
    body: Callable


WAYS = []


def way(words, applies=lambda job: True):
    def register(body):
        WAYS.append(Way(words, applies, body))
        return body
    return register


def same_bits(trial, result):
    found = digest(result["checkpoint"])
    if found != trial.plain_digest:
        raise Failure(f"digest {found}, of the plain run {trial.plain_digest}")


def keys_are_numbers(job):
    return all(column.get("type") != "string" for column in job.columns)


def has_its_auc(job):
    """One can tell the AUC from the predictions of its one task."""
    weighs = any(column["role"] == "weight" for column in job.columns)
    return "tasks" not in job.spec["model"] and job.losses == {"binary_cross_entropy"} and not weighs


@way("has the same bits and metrics with three ps and more threads")
def on_more_ps(trial):
    result = trial.train("more-ps", "--in-process", "--ps", 3, "--threads", 2)
    same_bits(trial, result)
    if result["metrics"] != trial.plain["metrics"]:
        raise Failure(f"metrics {result['metrics']}, of the plain run {trial.plain['metrics']}")


@way("has the same bits through separate processes")
def in_processes(trial):
    same_bits(trial, trial.train("processes", "--ps", 2))


def rows_that_left(cluster):
    """How many rows have left the memory of all ps so far, while their job is open."""
    sum_of = 0
    for name, command in cluster.commands.items():
        if name.startswith("ps-"):
            _, out, _ = cluster.run("metrics", command[command.index("--listen") + 1])
            sum_of += sum(float(line.split()[-1]) for line in out.splitlines() if line.startswith("tessera_ps_table_evicted_total"))
    return sum_of


# Other jobs have too few rows, and every_row keeps its own in memory. A ps that has so little takes one request at a time, and pushes
# others back until they wait for seconds: there is one worker.
@way("has the same bits while rows come from disk and go there", lambda job: job.workers == 1 and any(
     column["name"] == "c7" for column in job.columns) and all(table.get("update") != "every_row" for table in job.spec["tables"]))
def on_disk(trial):
    flags = {f"ps-{i}": ["--memory", "16KiB", "--spill-dir", trial.folder / f"spill-{i}"] for i in range(2)}
    with trial.cluster("disk", ps=2, flags=flags) as cluster:
        job_id = cluster.submit(trial.file)
        status = cluster.wait(job_id, lambda status: rows_that_left(cluster) > 0 or status["state"] == "Succeeded", what="a row that leaves memory")
        if status["state"] == "Succeeded":
            raise Failure("no row has left memory")
        same_bits(trial, trial.end(cluster, job_id))


# A cut lets rows expire; the model of keep_best is not where the next run goes on; the end of a run is an evaluation more,
# which the rules that follow metrics hear of.
@way("has the same bits when its second epoch is another run", lambda job: not job.expires and not job.spec["checkpoint"]["keep_best"]
     and not job.follows_metrics and "steps" not in job.spec["train"])
def resumed(trial):
    first = trial.train("first", "--in-process", "--ps", 2, "--set", "train.epochs=1")
    same_bits(trial, trial.train("second", "--in-process", "--ps", 3, "--start", first["checkpoint"]))


@way("starts warm to the same bits on one ps and on three")
def warm(trial):
    start = ("--in-process", "--start", trial.plain["checkpoint"], "--set", "start.warm=true", "--ps")
    one, three = (digest(trial.train(f"warm-{ps}", *start, ps)["checkpoint"]) for ps in (1, 3))
    if one != three:
        raise Failure(f"digest {one} on one ps, {three} on three")


SPLITS = ("train", "validation", "test")


def text_of(form, rows):
    """The bytes of a file of rows, the names of the columns first."""
    if form == "tsv":
        return "".join("\t".join(row) + "\n" for row in rows).encode()
    if form == "headless":
        return "\r\n".join(",".join(row) for row in rows[1:]).encode()
    quoted = "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows).encode()
    return gzip.compress(quoted) if form == "gzip" else quoted


def without_header(spec, names):
    """Columns in the order of the file."""
    known = {column["name"]: column for column in spec["data"]["columns"]}
    spec["data"].update(header=False, columns=[known.get(name, {"name": name, "role": "ignored"}) for name in names])


def as_libsvm(spec, splits):
    """The lines of each split: ids are indices, which lie apart by column, and numbers have those behind them."""
    records = {split: [dict(zip(rows[0], row)) for row in rows[1:]] for split, rows in splits.items()}
    columns = spec["data"]["columns"]
    sparse = [column for column in columns if column["role"] == "sparse"]
    numbers = [column["name"] for column in columns if column["role"] == "dense"]
    for column in sparse:
        ids = [int(record[column["name"]]) for split in records.values() for record in split]
        column.update(index_begin=min(ids), index_end=max(ids) + 1)
    first = max(column["index_end"] for column in sparse)
    dense = [{"name": "numbers", "role": "dense", "index_begin": first, "index_end": first + len(numbers)}] if numbers else []
    del spec["data"]["header"]
    spec["data"].update(format="libsvm", columns=dense + sparse)
    line = lambda record: " ".join([record["label"], *(f"{record[column['name']]}:1" for column in sparse),
                                    *(f"{first + i}:{record[name]}" for i, name in enumerate(numbers))])
    return {split: "".join(line(record) + "\n" for record in lines).encode() for split, lines in records.items()}


def rewritten(trial, form, splits):
    """The spec over the same records in files of another form, and their folder."""
    spec, folder = copy.deepcopy(trial.job.spec), trial.folder / form
    folder.mkdir()
    name = {"tsv": "{}.tsv", "gzip": "{}.csv.gz", "libsvm": "{}.svm"}.get(form, "{}.csv").format
    if form == "tsv":
        spec["data"]["format"] = "tsv"
    if form == "headless":
        without_header(spec, splits["train"][0])
    files = as_libsvm(spec, splits) if form == "libsvm" else {split: text_of(form, rows) for split, rows in splits.items()}
    for split, content in files.items():
        (folder / name(split)).write_bytes(content)
        spec["data"][split] = {"files": name(split)}
    return spec, folder


@way("has the same bits from files of other forms", lambda job: job.data != "clicks-with-holes")
def from_other_files(trial):
    splits = {}
    for split in SPLITS:
        with open(trial.shared.data(trial.job.data) / f"{split}.csv", newline="") as lines:
            splits[split] = list(csv.reader(lines))
    forms = ["tsv", "quoted", "gzip"]
    # Without a header columns stand in the order of the file, which is that of layers.
    names = [column["name"] for column in trial.job.columns]
    if [name for name in splits["train"][0] if name in names] == names:
        forms.append("headless")
    if trial.job.data == "clicks" and keys_are_numbers(trial.job) and all("transform" not in column for column in trial.job.columns):
        forms.append("libsvm")
    spec, folder = rewritten(trial, trial.draw.choice(forms), splits)
    same_bits(trial, trial.train("other-files", "--in-process", spec=spec, data=folder))


@way("is about the same on an emulated card, and has the same bits there twice", lambda job: not job.jumps)
def on_a_card(trial):
    spec = copy.deepcopy(trial.job.spec)
    if trial.draw.random() < 0.5:
        spec["train"]["row_cache"] = trial.draw.choice(({"bytes": 4000}, {"bytes": 200000}, {"share": 0.5}))
    if trial.draw.random() < 0.3:
        spec["train"]["precision"] = trial.draw.choice(("tf32", "float16", "bfloat16"))
    once, twice = (trial.train(f"card-{ps}", "--in-process", "--device", "emulated", "--ps", ps, spec=spec) for ps in (1, 2))
    if digest(once["checkpoint"]) != digest(twice["checkpoint"]):
        raise Failure("two digests")
    # After a few steps: a network that begins with a huge loss makes much of the last bits later on. And with SGD: others divide by the
    # size of the gradients, so that the last bits of one that is nearly 0 become a step of full length.
    spec["train"].update(steps=4, precision="float32")
    for trained in (spec["model"], *spec["tables"]):
        trained["optimizer"] = {"learning_rate": 0.01, "sgd": {}}
    found, expected = (trial.train(f"four-steps-{device}", "--in-process", "--device", device, spec=spec)["metrics"]["validation"]
                       for device in ("emulated", "cpu"))
    for name, value in expected.items():
        if value is None and found[name] is None:
            continue  # not defined
        # Ranks of predictions that are nearly the same hang on their last bits.
        ranks = any(word in name for word in ("auc", "ndcg", "precision", "recall"))
        if abs(found[name] - value) > (0.02 if ranks else 0.005) * max(1, abs(value)):
            raise Failure(f"validation {name} {found[name]}, on the CPU {value}")


def predictions(trial, *sets):
    """The columns of what `tessera predict` writes: label and prediction, or those of each task. NaN: a label that a record lacks."""
    file = trial.folder / "predictions.csv"
    words = [word for value in sets for word in ("--set", value)]
    trial.tessera("predict", trial.file, "--checkpoint", trial.plain["checkpoint"], "--data", trial.shared.data(trial.job.data), "--output",
                  file, *words)
    with open(file, newline="") as lines:
        header, *rows = csv.reader(lines)
    return {name: [float(row[i] or "nan") for row in rows] for i, name in enumerate(header)}


def measured_again(trial, spec, result):
    """`tessera evaluate` says of the checkpoint what the job said of its model, to the bit."""
    file = trial.write(spec, "measured")
    out = trial.tessera("evaluate", file, "--checkpoint", result["checkpoint"], "--data", trial.shared.data(trial.job.data), "--json")
    found, expected = json.loads(out.splitlines()[-1])["metrics"], dict(result["metrics"])
    if trial.job.expires:
        # Rows go when the checkpoint is cut, after the validation split was measured.
        del found["validation"], expected["validation"]
    if found != expected:
        raise Failure(f"evaluate says {found}, the job {expected}")


ASYNC = ({"sparse": "async", "dense": "sync"}, {"sparse": "async", "dense": "async"}, {"sparse": "bounded", "dense": "bounded", "max_lead": 2})


@way("predicts and is evaluated as its metrics were measured")
def predicted(trial):
    measured_again(trial, trial.job.spec, trial.plain)
    spec = copy.deepcopy(trial.job.spec)
    spec["consistency"] = trial.draw.choice(ASYNC)
    if spec["consistency"]["dense"] != "sync":
        spec["train"].pop("dense_gradients", None)
    measured_again(trial, spec, trial.train("async", "--in-process", "--ps", 2, spec=spec))
    columns = predictions(trial)
    if not has_its_auc(trial.job) or "auc" not in trial.plain["metrics"]["test"]:
        return
    pairs = list(zip(columns["label"], columns["prediction"]))
    scores = {label: [score for other, score in pairs if other == label] for label in (0, 1)}
    above = sum((one > zero) + (one == zero) / 2 for one in scores[1] for zero in scores[0])
    all_pairs = len(scores[0]) * len(scores[1])
    auc, measured = above / all_pairs, trial.plain["metrics"]["test"]["auc"]
    # Probabilities may be equal where the logits that were measured are not.
    ties = sum(one == zero for one in scores[1] for zero in scores[0]) / all_pairs
    if abs(auc - measured) > 1e-5 + ties / 2:
        raise Failure(f"the predictions' AUC is {auc}, measured were {measured}")


# Of keys without a row the file knows their mean alone: there are none among those of training, unless it was told so.
@way("predicts the same as an ONNX file", lambda job: keys_are_numbers(job) and not (
     job.admits or job.expires or job.ranks or job.jumps or job.spec["checkpoint"]["keep_best"] or job.data == "clicks-with-holes"))
def exported(trial):
    try:
        import numpy
        import onnxruntime
    except ImportError as missing:
        raise Skip(f"{missing}; deploy/install-dependencies --ci installs it") from missing
    file = trial.folder / "model.onnx"
    trial.tessera("export", trial.plain["checkpoint"], "--output", file)
    with open(trial.shared.data(trial.job.data) / "train.csv", newline="") as lines:
        rows = list(csv.DictReader(lines))
    feeds, session = {}, onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    columns = {column["name"]: column for column in trial.job.columns}
    for feed in session.get_inputs():
        values = [row[feed.name] for row in rows]
        if columns[feed.name]["role"] == "dense":
            feeds[feed.name] = numpy.array([[float(value)] for value in values], dtype=numpy.float32)
        else:
            padding = columns[feed.name].get("padding_id")
            ids = [[int(part) for part in value.split("|") if part and part != padding] for value in values]
            most = columns[feed.name].get("max_length") or max(map(len, ids))
            feeds[feed.name] = numpy.array([i[-most:] + [-1] * (most - len(i)) for i in ids], dtype=numpy.int64)
    expected = {name: values for name, values in predictions(trial, "data.test.files=train.csv").items() if name.startswith("prediction")}
    for name, found in zip(expected, session.run(list(expected), feeds)):
        apart = float(numpy.max(numpy.abs(found[:, 0] - numpy.array(expected[name]))))
        if not apart <= 2e-5:
            raise Failure(f"{name}: up to {apart} apart")


# Where cuts are depends on when it is asked, and rows expire at cuts.
@way("has the same bits after it was scaled, drained, balanced, suspended, and processes killed", lambda job: not job.expires)
def disturbed(trial):
    # About five seconds, so that there is something to be disturbed.
    spec = copy.deepcopy(trial.job.spec)
    for field in ("steps", "early_stopping"):
        spec["train"].pop(field, None)
    spec["train"]["epochs"] = max(20, round(5 * trial.plain["samples_per_second"] / trial.shared.samples))
    spec["recovery"] = trial.draw.choice(({"push_log": "off"}, {"push_log": "async"}, {"push_log": "async", "replicas": 1}))
    expected = digest(trial.train("undisturbed", "--in-process", spec=spec)["checkpoint"])
    file = trial.write(spec, "disturbed")
    with trial.cluster("disturbed", ps=3) as cluster:
        job_id = cluster.submit(file, ps=2)
        operations(trial.draw, ("scale", "drain", "balance", "suspend"), True, 3)(cluster, job_id)
        result = trial.end(cluster, job_id)
    found = digest(result["checkpoint"])
    if found != expected:
        raise Failure(f"digest {found}, undisturbed {expected}; the job: {json.dumps(result['events'])}")


class Trial:
    """One job, its plain run, and a folder for another way."""

    def __init__(self, shared, job, draw, folder):
        self.shared, self.job, self.draw, self.folder = shared, job, draw, folder
        self.file = self.write(job.spec, "job")
        self.tessera("check", self.file, "--data", shared.data(job.data))
        self.plain = self.train("plain", "--in-process")
        self.plain_digest = digest(self.plain["checkpoint"])

    def write(self, spec, name):
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(spec, indent=1) + "\n")  # which YAML is a superset of
        return file

    def tessera(self, *words):
        return self.shared.tessera(*words)

    def train(self, name, *words, spec=None, data=None):
        """`tessera local` to a good end; its last line."""
        file = self.file if spec is None else self.write(spec, name)
        out = self.tessera("local", file, "--data", data or self.shared.data(self.job.data), "--workers", self.job.workers, "--work-dir",
                           self.folder / name, "--output", "json", *words)
        return json.loads(out.splitlines()[-1])

    def cluster(self, name, **options):
        worker = ["--listen", "127.0.0.1:0", "--threads", "1"]  # those who sum gradients call each other
        flags = {"worker": worker, **options.pop("flags", {})}
        return Cluster(self.folder / name, self.shared.data(self.job.data), workers=self.job.workers, flags=flags, **options)

    def end(self, cluster, job_id):
        """What train() gives, of a job that ends well."""
        status = cluster.wait_for_end(job_id, 600)
        return {**status, "checkpoint": cluster.checkpoints / status["checkpoint"]}
