"""What a move of partitions to other ps costs: the pause of training, and the samples per second while rows are copied."""
import random
import re
import time

from cluster import Failure
from harness import LOGGED, FaultTest
from jobs import CountingJob

DIM = 1024
BATCH = 256


def write_data(folder, keys):
    """Every key in one sample."""
    folder.mkdir()
    order = list(range(keys))
    random.Random(1).shuffle(order)
    with open(folder / "train.csv", "w") as out:
        out.write("label,one,many\n")
        out.writelines(f"{CountingJob.label:.0f},{key},\n" for key in order)


def rate(cluster, job_id, until):
    """Steps a second from now until until(status, seconds); the last status, and how long it took."""
    begin = status = cluster.describe(job_id)
    start = time.monotonic()
    while not until(status, time.monotonic() - start):
        time.sleep(0.1)
        status = cluster.describe(job_id)
        if status["state"] != "Running":
            raise Failure(f"the job is {status['state']}: {status['message']}")
    seconds = time.monotonic() - start
    return (status["steps"] - begin["steps"]) / seconds, seconds


def events_of(status, text):
    return [e["message"] for e in status["events"] if text in e["message"]]


def moves_test(mebibytes):
    """Rows of so many MiB in all; a third of them from two ps to three and back, with push logs and without."""
    def body(t):
        keys = mebibytes * (1 << 20) // (4 * DIM)
        write_data(t.folder / "data", keys)
        for what, sets in (("without push logs", []), ("with push logs", LOGGED)):
            with t.cluster(CountingJob, name=what, data=t.folder / "data", ps=3) as cluster:
                job_id = cluster.submit(t.spec(CountingJob), f"tables.counts.dim={DIM}", f"train.batch_size={BATCH}",
                                        "train.epochs=100000", "checkpoint.every_steps=0", "data.shuffle_window_records=65536",
                                        *sets, ps=2)
                cluster.wait(job_id, lambda s: s["steps"] > 1.2 * keys / BATCH, timeout=600, what="an epoch")
                usual, _ = rate(cluster, job_id, lambda s, seconds: seconds > 15)
                for move, ps in enumerate((3, 2)):
                    cluster.tessera("scale", job_id, "--ps", ps)
                    moving, seconds = rate(cluster, job_id, lambda s, _: len(events_of(s, "training stood for")) > move)
                    status = cluster.describe(job_id)
                    stood = re.search(r"stood for (\d+) ms", events_of(status, "training stood for")[-1])[1]
                    t.notes.append(f"{what}, to {ps} ps: training stood for {stood} ms; {moving / usual:.2f} of the usual "
                                   f"{usual:.0f} steps a second over {seconds:.1f} s; "
                                   f"{events_of(status, 'partitions have moved')[-1]}")
                cluster.tessera("cancel", job_id)
    return FaultTest([15], f"rows of {mebibytes} MiB move while a job trains", body, False, False, None)
