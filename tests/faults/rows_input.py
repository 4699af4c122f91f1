"""Rows 14 and 16: versions that do not fit, and input that nobody should send."""
import shutil

import grpc_call
from cluster import ROOT, Failure
from harness import ALL_REDUCE, SERVING, fault
from jobs import CountingJob, SyncJob
from oracle import check_counts, missing_counts

GOLDEN = ROOT / "tests" / "golden" / "checkpoints"


# ---- row 14: versions -----------------------------------------------------------------------------------------------------

def hello(protocol, name="ps-7", kind=1):
    """NodeMessage.hello of cluster.proto."""
    return grpc_call.text(1, grpc_call.number(1, kind) + grpc_call.text(2, name) + grpc_call.text(3, "127.0.0.1:9") +
                          grpc_call.text(4, "9.9.9") + grpc_call.number(5, protocol) + grpc_call.number(7, 1))


@fault(14, "a node of another protocol version is refused, with both versions in the message", short=True, once=True)
def other_protocol(t):
    with t.cluster(CountingJob, ps=1, workers=1) as cluster:
        job_id = cluster.submit(t.spec(CountingJob), "train.epochs=2")
        cluster.wait_for_end(job_id)
        for protocol in (1, 99):
            answer = grpc_call.call(cluster.master, "/tessera.v1.ClusterService/Join", hello(protocol))
            for word in (b"9.9.9", f"protocol {protocol}".encode(), b"run the same version everywhere"):
                if word not in answer:
                    raise Failure(f"protocol {protocol}: the answer does not say {word}: {answer}")
        again = cluster.submit(t.spec(CountingJob), "train.epochs=1")
        cluster.wait_for_end(again)


@fault(14, "a checkpoint of the format before loads, and training goes on from it", short=True, once=True)
def earlier_format(t):
    """tests/golden/checkpoints/format-1: one epoch of the counting job over the data beside it."""
    with t.cluster(CountingJob, data=GOLDEN) as cluster:
        shutil.copytree(GOLDEN / "format-1", cluster.checkpoints / "golden")
        code, _, error = cluster.run("checkpoint", "verify", cluster.checkpoints / "golden")
        if code != 0:
            raise Failure(f"verify: exit {code}: {error}")
        counts = CountingJob.count(GOLDEN)
        check_counts(cluster.checkpoints / "golden", counts, 1, CountingJob.dim)
        job_id = cluster.submit(t.spec(CountingJob), "train.epochs=3", "start.checkpoint=golden")
        status = cluster.wait_for_end(job_id)
        check_counts(cluster.checkpoints / status["checkpoint"], counts, 3, CountingJob.dim)


@fault(14, "a checkpoint of a later format is refused, with the versions in the message", short=True, once=True)
def later_format(t):
    with t.cluster(CountingJob, data=GOLDEN, ps=1, workers=1) as cluster:
        shutil.copytree(GOLDEN / "format-99", cluster.checkpoints / "later")
        code, _, error = cluster.run("checkpoint", "verify", cluster.checkpoints / "later")
        if code == 0 or "format 99" not in error:
            raise Failure(f"verify: exit {code}: {error}")
        job_id = cluster.submit(t.spec(CountingJob), "train.epochs=1", "start.checkpoint=later")
        try:
            cluster.wait_for_end(job_id)
        except Failure as failure:
            if "format 99" not in str(failure):
                raise
            t.notes.append(str(failure))
            return
        raise Failure("a job has started from a checkpoint of format 99")


# ---- row 16: poison -------------------------------------------------------------------------------------------------------

BAD_RECORDS = {
    "a label that is no number": "nan,1,2\n",
    "an infinite label": "inf,1,2\n",
    "a negative id": "1,-5,2\n",
    "an id beyond 64 bits": "1,99999999999999999999999,2\n",
    "an id of 2^63": "1,9223372036854775808,2\n",
    "an id that is a fraction": "1,1.5,2\n",
    "an id that is no number": "1,abc,2\n",
    "a bad id among good ones": "1,7,1|2|x|4\n",
    "a record cut off": "1,7\n",
    "too many columns": "1,7,8,9\n",
    "an empty label": ",7,8\n",
    "bytes that are no text": "\xff\xfe,\x01,\x02\n",
}


def poisoned_data(t):
    """The counting job's records, among which bad ones stand. Batches stay full: windows are cut by the records of a file,
    and so the bad ones have a file of their own."""
    folder = t.folder / "poisoned"
    shutil.copytree(t.shared.data(CountingJob), folder)
    lines = list(BAD_RECORDS.values())
    t.draw.shuffle(lines)
    with open(folder / "bad.csv", "w", encoding="latin-1") as out:
        out.write("label,one,many\n" + "".join(lines))
    return folder, len(lines)


@fault(16, "bad records are counted and left out, and every good sample counts once", short=True)
def bad_records(t):
    folder, bad = poisoned_data(t)
    with t.cluster(CountingJob, data=folder) as cluster:
        job_id = cluster.submit(t.spec(CountingJob), "train.epochs=2", "data.train.files=[train.csv, bad.csv]",
                                f"data.max_bad_records={bad}", "data.shard_records=256")
        status = cluster.wait_for_end(job_id)
        found = status["progress"]["bad_records"]
        if found != bad:
            raise Failure(f"{found} bad records were counted, expected {bad}")
        check_counts(cluster.checkpoints / status["checkpoint"], CountingJob.count(folder), 2, CountingJob.dim)


@fault(16, "one bad record more than allowed ends the job, with the record's place", short=True)
def too_many_bad_records(t):
    folder, bad = poisoned_data(t)
    with t.cluster(CountingJob, data=folder) as cluster:
        job_id = cluster.submit(t.spec(CountingJob), "train.epochs=2", "data.train.files=[train.csv, bad.csv]",
                                f"data.max_bad_records={bad - 1}")
        try:
            cluster.wait_for_end(job_id)
        except Failure as failure:
            if "bad.csv:" not in str(failure) or "bad records" not in str(failure):
                raise
            t.notes.append(str(failure))
        else:
            raise Failure(f"the job took {bad} bad records, {bad - 1} were allowed")
        cluster.check_alive()
        job_id = cluster.submit(t.spec(CountingJob), "train.epochs=1")
        cluster.wait_for_end(job_id)


# A label of 3e38 is a number, and the gradient that it gives is none.
TOO_STEEP = """\
name: steep
data:
  format: csv
  header: true
  columns: [{name: label, role: label}, {name: key, role: sparse, table: values}]
  train: {files: train.csv}
tables:
  - {name: values, dim: 1, initializer: {constant: {value: 0}}, optimizer: {learning_rate: 0.01, sgd: {}}}
model:
  name: layers
  layers: [{name: value, op: reduce_sum, inputs: [key.values], options: {axes: [1]}}]
  loss: mean_squared_error
  optimizer: {learning_rate: 0.01, sgd: {}}
train: {batch_size: 64, epochs: 2}
evaluation: {every_epochs: 0}
"""


def steep_data(t):
    folder = t.folder / "steep"
    folder.mkdir()
    poison = t.draw.randrange(2048)
    labels = {poison: "3e38", poison ^ 1: "bad"}
    with open(folder / "train.csv", "w") as out:
        out.write("label,key\n")
        out.writelines(f"{labels.get(i, '1')},{i % 100}\n" for i in range(2048))
    (t.folder / "steep.yaml").write_text(TOO_STEEP)
    return folder, t.folder / "steep.yaml"


@fault(16, "a batch whose gradient is no number is set aside and counted, whoever has it", short=True)
def poison_batch(t):
    folder, spec = steep_data(t)
    with t.cluster(CountingJob, data=folder) as cluster:
        for mode in ("sync", "async"):
            modes = [f"consistency.sparse={mode}", f"consistency.dense={mode}"]
            # Each rank has its part of a sync batch.
            expected = 2 * (32 if mode == "sync" else 64)
            # A window's last batch lacks a record for each bad one, and where that batch is set aside they count with it: always in
            # async, where a window is one batch here, and seldom in sync.
            bad = 1 if mode == "sync" else 0
            aside = ["recovery.set_aside_after=3", f"data.max_bad_records={expected + bad}", *modes]
            status = cluster.wait_for_end(cluster.submit(spec, *aside))
            found = status["progress"]["set_aside_records"]
            if found != expected or f"{expected} records set aside" not in status["message"]:
                raise Failure(f"{mode}: {found} records were set aside, expected {expected}: {status['message']}")
            if not status["progress"]["bad_records"] <= bad:
                raise Failure(f"{mode}: {status['progress']['bad_records']} bad records were counted beside those set aside, "
                              f"expected at most {bad}")
            try:
                cluster.wait_for_end(cluster.submit(spec, *modes, "data.max_bad_records=1"))
            except Failure as failure:
                if "finite" not in str(failure):
                    raise
            else:
                raise Failure(f"{mode}: a gradient that is no number was taken")
        cluster.check_alive()


def die_in_a_row(cluster, rules):
    """worker-0 has failpoints and ends by them; so do those that come after it, but for the last one, which has none."""
    for points in (*rules, ""):
        if cluster.await_death("worker-0") is None:
            raise Failure("the worker has not died")
        cluster.environment["worker-0"] = {"TESSERA_FAILPOINTS": points}
        cluster.start("worker-0")


@fault((1, 16), "a batch that its workers die of is set aside after three of them", once=True)
def deadly_batch(t):
    """One worker and one ps: the batch is nowhere, or whole."""
    first = {"TESSERA_FAILPOINTS": "worker.push.send=crash@700"}
    with t.cluster(CountingJob, ps=1, workers=1, environment={"worker-0": first}) as cluster:
        job_id = cluster.submit(t.spec(CountingJob), "recovery.set_aside_after=3",
                                f"data.max_bad_records={CountingJob.batch}")
        die_in_a_row(cluster, ["worker.push.send=crash@1"] * 2)
        status = cluster.wait_for_end(job_id)
        found = status["progress"]["set_aside_records"]
        if found != CountingJob.batch or status["restarts"] != 0:
            raise Failure(f"{found} records were set aside in {status['restarts']} restarts, expected {CountingJob.batch} in 0")
        missing = missing_counts(cluster.checkpoints / status["checkpoint"], CountingJob.count(t.shared.data(CountingJob)),
                                 CountingJob.epochs)
        if not CountingJob.batch <= missing <= CountingJob.most_keys * CountingJob.batch:
            raise Failure(f"{missing} counts are missing, expected those of {CountingJob.batch} samples")


@fault(1, "a batch whose dense gradients are in the sums of others is not set aside, however many die before they push it")
def summed_batch(t):
    hit = t.draw.randint(50, 600)
    t.notes.append(f"hit {hit}")

    def disturb(cluster, job_id):
        die_in_a_row(cluster, ["worker.ring.summed=crash@1"] * 2)
        aside = cluster.wait_for_end(job_id)["progress"]["set_aside_records"]
        if aside != 0:
            raise Failure(f"{aside} records were set aside")
    t.identical(disturb, sets=[*ALL_REDUCE, "recovery.set_aside_after=2", "data.max_bad_records=256"], flags=SERVING,
                most_restarts=0, takeovers=3, environment={"worker-0": {"TESSERA_FAILPOINTS": f"worker.ring.summed=crash@{hit}"}})


@fault((1, 16), "a batch that its workers die of before its dense gradients leave them is set aside", once=True)
def deadly_reduced_batch(t):
    """Of three workers, so that the others have partial sums of each other when they are asked."""
    first = {"TESSERA_FAILPOINTS": "worker.ring.sum=crash@150"}
    with t.cluster(SyncJob, workers=3, flags=SERVING, environment={"worker-0": first}) as cluster:
        job_id = cluster.submit(SyncJob.spec, *SyncJob.sets, *ALL_REDUCE, "recovery.set_aside_after=2",
                                "data.max_bad_records=256")
        die_in_a_row(cluster, ["worker.ring.sum=crash@1"])
        status = cluster.wait_for_end(job_id)
        found = status["progress"]["set_aside_records"]
        # Each rank has its part of a batch.
        if found not in (85, 86) or status["restarts"] != 0:
            raise Failure(f"{found} records were set aside in {status['restarts']} restarts, expected 85 or 86 in 0")


@fault(16, "a data file that is cut off while packed ends the job with its name", once=True)
def truncated_file(t):
    import gzip
    folder = t.folder / "cut"
    folder.mkdir()
    packed = gzip.compress((t.shared.data(CountingJob) / "train.csv").read_bytes())
    (folder / "train.csv.gz").write_bytes(packed[:len(packed) // 2])
    with t.cluster(CountingJob, data=folder) as cluster:
        job_id = cluster.submit(t.spec(CountingJob), "train.epochs=1", "data.train.files=[train.csv.gz]")
        try:
            cluster.wait_for_end(job_id, 60)
        except Failure as failure:
            if "train.csv.gz" not in str(failure) or "failed" not in str(failure):
                raise
            t.notes.append(str(failure))
        else:
            raise Failure("the job has trained half a file as if it were whole")
        cluster.check_alive()
