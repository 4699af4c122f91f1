"""Rows 1 and 2 of the matrix, of workers whose cards train the rows that they keep. The cards are emulated."""
from cluster import Failure
from harness import LOGGED, fault
from jobs import CountingJob
from oracle import missing_counts
from schedules import kill_at, nothing, random_kills

# Of the counting job: in 512 places for its thousands of rows.
ON_CARD = ["train.row_cache.bytes=8192", "train.row_cache.write_back=true"]
# A window is all of the data: whoever is killed is most likely within a unit.
LONG_UNITS = [f"data.shuffle_window_records={CountingJob.records}"]
CARDS = {"worker": ["--device", "emulated"], "spare": ["--device", "emulated"]}


@fault(1, "cards train the rows that they keep, one for a worker, and every sample counts once", once=True)
def trained_on_cards(t):
    t.counted(nothing, sets=ON_CARD, flags=CARDS, most_restarts=0)
    t.counted(nothing, sets=ON_CARD, flags=CARDS, most_restarts=0, workers=1, name="one")


@fault(1, "a worker whose card trains rows is killed: what it took along is trained again, and every sample counts once", once=True)
def worker_with_card(t):
    # Of one worker units are long, but for a checkpoint every 500 steps.
    t.counted(kill_at(["worker-0"], 1650), sets=[*ON_CARD, *LONG_UNITS], flags=CARDS, workers=1, takeovers=1, least_restarts=1,
              back_to=650)


@fault(1, "a worker whose card trains rows is killed in a job with partial recovery: it goes on, and what is lost is missing",
       once=True)
def partial_worker_with_card(t):
    with t.cluster(CountingJob, workers=1, flags=CARDS) as cluster:
        job_id = cluster.submit(t.spec(CountingJob), *ON_CARD, *LONG_UNITS, "recovery.mode=partial", "checkpoint.every_steps=2000")
        cluster.wait_for_step(job_id, 2500)
        cluster.restart("worker-0")
        status = cluster.wait_for_end(job_id)
        missing = missing_counts(cluster.checkpoints / status["checkpoint"], CountingJob.count(t.shared.data(CountingJob)),
                                 CountingJob.epochs)
        said = any("the job goes on (recovery.mode: partial)" in event["message"] for event in status["events"])
        # Of one unit at most, which is all of an epoch at most.
        if status["restarts"] != 0 or not said or not 0 < missing <= CountingJob.records * CountingJob.most_keys:
            raise Failure(f"{status['restarts']} restarts, {missing} counts missing, {'an' if said else 'no'} event that says so")
        t.notes.append(f"{missing:.0f} counts are lost")


@fault([1, 2], "workers whose cards train rows, and ps, are killed at random, and every sample counts once")
def random_with_cards(t):
    t.counted(random_kills(t.draw), sets=LOGGED + ON_CARD, flags=CARDS)
