"""Row 6: one worker of three is slow for as long as the job lasts. In `async` and `bounded` it costs what it does not train."""
from cluster import Failure
from harness import Outcome, fault
from jobs import CountingJob
from oracle import check_counts

WORKERS = 3
# Before each push, so that workers wait for the clock and not for each other's processors.
USUAL, SLOW = ({"TESSERA_FAILPOINTS": f"worker.push.send=delay:{ms}ms"} for ms in (50, 1000))
# Without its share, and a margin: for the step and the unit that the others wait for at the end.
MOST = WORKERS / (WORKERS - 1) * 1.25
# Until a rank of a bounded job rests: some of its steps, and StragglerRest::kSlowFor.
SECONDS_TO_REST = 10


def train(t, name, data, mode, environment):
    """One long epoch; how many seconds it took."""
    with t.cluster(CountingJob, name=name, data=data, ps=1, workers=WORKERS, environment=environment) as cluster:
        job_id = cluster.submit(t.spec(CountingJob), "train.epochs=1", "checkpoint.every_steps=0",
                                f"consistency.sparse={mode}", f"consistency.dense={mode}")
        outcome = Outcome(cluster, cluster.wait_for_end(job_id))
        counts = t.shared.once("counts of a long epoch", lambda: CountingJob.count(data))
        check_counts(outcome.checkpoint, counts, 1, CountingJob.dim)
        if outcome.restarts or outcome.takeovers:
            raise Failure(f"{outcome.restarts} restarts and {outcome.takeovers} takeovers, expected none")
        return outcome.seconds


def straggling(t, mode, besides=0):
    """A slow worker may cost its share, and so many seconds besides."""
    data = t.folder / "data"
    CountingJob.generate(data, records=4 * CountingJob.records)
    usual = train(t, "usual", data, mode, {"worker": USUAL})
    slow = train(t, "slow", data, mode, {"worker": USUAL, f"worker-{WORKERS - 1}": SLOW})
    words = f"{slow:.1f} s with a slow worker, {usual:.1f} s without: {slow / usual:.2f} times as long"
    t.notes.append(words)
    if slow > MOST * usual + besides:
        raise Failure(f"{words}, expected at most {MOST:.2f}" + (f", and {besides} s" if besides else ""))


@fault(6, "one of three workers of an async job takes 20 times as long for a step: the others train its share, and every sample counts once",
       once=True)
def async_straggler(t):
    straggling(t, "async")


@fault(6, "the same of a bounded job, where it rests after some seconds", once=True)
def bounded_straggler(t):
    straggling(t, "bounded", SECONDS_TO_REST)
