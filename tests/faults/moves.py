"""What a move of partitions to other ps costs: the pause of training and of each key, and the steps a second while rows are copied."""
import random
import re
import time

from cluster import Failure
from harness import LOGGED, FaultTest
from jobs import CountingJob
from reader import KeyReader, MachineWatch

DIM = 1024
BATCH = 256
READERS = 6  # each of a key of its own
# No pause is longer; steps a second while rows move, relative to the usual, are at least so many.
MOST_PAUSE_MS = 200
LEAST_SHARE = 0.80
# Over a shorter time steps say nothing: they are told unit by unit.
LEAST_SECONDS = 10


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


def start_readers(cluster, job_id, keys):
    addresses = []
    for name, command in cluster.commands.items():
        if name.startswith("ps-"):
            addresses.append(command[command.index("--listen") + 1])
    generation = cluster.describe(job_id)["generation"]
    watch = MachineWatch()
    readers = [KeyReader(addresses, job_id, generation, keys * i // READERS, watch) for i in range(READERS)]
    for thread in (watch, *readers):
        thread.start()
    return readers


def longest_of(readers):
    """Milliseconds without an answer, of the key that had to wait longest; of the machine, and of no key, while it stood still."""
    key = max(round(1000 * reader.take_longest()) for reader in readers)
    return key, round(1000 * readers[0].watch.take_longest())


class Move:
    """Figures of one move, and which of them miss their bars."""

    def __init__(self, name, pause, key_pause, usual_key_pause, share, seconds):
        self.name, self.pause, self.key_pause, self.usual_key_pause = name, pause, key_pause, usual_key_pause
        self.share, self.seconds = share, seconds

    def missed(self):
        misses = []
        if self.pause > MOST_PAUSE_MS:
            misses.append(f"{self.name}: training stood for {self.pause} ms, expected at most {MOST_PAUSE_MS}")
        if self.key_pause > MOST_PAUSE_MS:
            misses.append(f"{self.name}: a key was not answered for {self.key_pause} ms, expected at most {MOST_PAUSE_MS} "
                          f"(it was {self.usual_key_pause} while nothing moved)")
        if self.seconds >= LEAST_SECONDS and self.share < LEAST_SHARE:
            misses.append(f"{self.name}: {self.share:.2f} of the usual steps a second, expected at least {LEAST_SHARE:.2f}")
        return misses


def moves_of(t, cluster, job_id, what, readers):
    """A third of the rows goes to a third ps, and back. The usual steps a second are those before and after a move, in the mean."""
    def usual_rate():
        return rate(cluster, job_id, lambda s, seconds: seconds > 15)[0]
    moves = []
    longest_of(readers)
    before, (usual_key_pause, _) = usual_rate(), longest_of(readers)
    t.notes.append(f"{what}: {before:.0f} steps a second, a key is answered within {usual_key_pause} ms while nothing moves")
    for ps in (3, 2):
        said = len(events_of(cluster.describe(job_id), "training stood for"))
        cluster.tessera("scale", job_id, "--ps", ps)
        moving, seconds = rate(cluster, job_id, lambda s, _: len(events_of(s, "training stood for")) > said)
        key_pause, stood = longest_of(readers)
        status = cluster.describe(job_id)
        pause = int(re.search(r"stood for (\d+) ms", events_of(status, "training stood for")[-1])[1])
        after = usual_rate()
        usual, before = (before + after) / 2, after
        moves.append(Move(f"{what}, to {ps} ps", pause, key_pause, usual_key_pause, moving / usual, seconds))
        usual_key_pause, _ = longest_of(readers)
        judged = "" if seconds >= LEAST_SECONDS else " (too short to be judged)"
        t.notes.append(f"{what}, to {ps} ps: training stood for {pause} ms, a key for {key_pause} ms (the machine for {stood} more); {moving / usual:.2f} of the "
                       f"usual {usual:.0f} steps a second over {seconds:.1f} s{judged}; "
                       f"{events_of(status, 'partitions have moved')[-1]}")
    return moves


def moves_test(mebibytes):
    """Rows of so many MiB in all; a third of them from two ps to three and back, with push logs and without."""
    def body(t):
        keys = mebibytes * (1 << 20) // (4 * DIM)
        write_data(t.folder / "data", keys)
        missed = []
        for what, sets in (("without push logs", []), ("with push logs", LOGGED)):
            with t.cluster(CountingJob, name=what, data=t.folder / "data", ps=3) as cluster:
                job_id = cluster.submit(t.spec(CountingJob), f"tables.counts.dim={DIM}", f"train.batch_size={BATCH}",
                                        "train.epochs=100000", "checkpoint.every_steps=0", "data.shuffle_window_records=65536",
                                        *sets, ps=2)
                cluster.wait(job_id, lambda s: s["steps"] > 1.2 * keys / BATCH, timeout=600, what="an epoch")
                readers = start_readers(cluster, job_id, keys)
                missed += [m for move in moves_of(t, cluster, job_id, what, readers) for m in move.missed()]
                moved = sum(len(reader.owners) > 1 for reader in readers)
                for thread in (*readers, readers[0].watch):
                    thread.ends = True
                    thread.join()
                t.notes.append(f"{what}: of {READERS} keys that were read {moved} moved")
                cluster.tessera("cancel", job_id)
        if missed:
            raise Failure("; ".join(missed))
    return FaultTest([15], f"rows of {mebibytes} MiB move while a job trains", body, False, False, None)
