"""Row 2, with copies of rows: a ps is lost for good, with its disk, and another takes its place."""
import re
import shutil
import time

from cluster import Failure
from harness import LOGGED, SYNCED, fault
from schedules import random_kills

REPLICATED = [*LOGGED, "recovery.replicas=1"]
# From the loss, as its master sees it, to when workers go on.
LONGEST = 3.0
# With the master, from its start on: it gives the ps 5 s to find it.
LONGEST_WITH_MASTER = 10.0
# Until a worker's log says which ps has not taken what it pushed.
WAIT_NAMED = 10.0


def lose(cluster, name):
    """The process, and all that its machine had."""
    cluster.kill(name)
    shutil.rmtree(cluster.folder_of(name))


def replaced(t, cluster, job_id, name):
    """Waits until another has taken its place; in how many seconds it did."""
    text = cluster.wait_for_event(job_id, f"takes {name}'s place")
    seconds = float(re.search(r"after ([0-9.]+) s", text).group(1))
    # A machine that has much else to do in the short run is no measure.
    if seconds > LONGEST and not t.short:
        raise Failure(f"{text}: expected at most {LONGEST} s")
    t.notes.append(text)


def copied(cluster, job_id, times=1):
    """The name of the ps whose rows another one has got last, once that has been said so many times."""
    def found(status):
        names = [name for e in status["events"] for name in re.findall(r"has a copy of (\S+)'s rows", e["message"])]
        return names[-1] if len(names) >= times else None
    return found(cluster.wait(job_id, found, 60, f"copies of ps's rows, {times} times"))


def lose_at(t, step):
    def disturb(cluster, job_id):
        name = copied(cluster, job_id)
        cluster.wait_for_step(job_id, step)
        lose(cluster, name)
        replaced(t, cluster, job_id, name)
    return disturb


def lose_with_master_at(t, step):
    def disturb(cluster, job_id):
        name = copied(cluster, job_id)
        cluster.wait_for_step(job_id, step)
        cluster.kill("master")
        lose(cluster, name)
        start = time.monotonic()
        cluster.start("master")
        replaced(t, cluster, job_id, name)
        seconds = time.monotonic() - start
        if seconds > LONGEST_WITH_MASTER:
            raise Failure(f"{seconds:.1f} s after the master's start: expected at most {LONGEST_WITH_MASTER} s")
        t.notes.append(f"{seconds:.1f} s after the master's start")
    return disturb


def hang_without_master_at(t, step):
    """Who has a copy hangs, and nobody is there to give it up."""
    def disturb(cluster, job_id):
        copied(cluster, job_id)
        events = [e["message"] for e in cluster.wait_for_step(job_id, step)["events"]]
        follower = next(m.split()[0] for m in events if "has a copy of" in m)
        # In this order, so that the workers do not end their units in between, and have nothing to push.
        cluster.pause(follower)
        cluster.kill("master")
        cluster.wait_for_log("which has a copy of the rows, lacks record", "worker-0", "worker-1", seconds=WAIT_NAMED)
        cluster.start("master")
        cluster.wait_for_event(job_id, "no copy any more")
        cluster.go_on(follower)
    return disturb


@fault(2, "a ps is lost with its disk, and the one that has a copy of its rows takes its place", short=True, once=True)
def lost_ps(t):
    t.identical(lose_at(t, 450), sets=REPLICATED, ps=3, ask_ps=2, most_restarts=0)


@fault(2, "a ps of an async job is lost with its disk, another takes its place, and every sample counts once", once=True)
def lost_async_ps(t):
    t.counted(lose_at(t, 2000), sets=REPLICATED, ps=3, ask_ps=2, most_restarts=0)


@fault(2, "a ps whose log is synced is lost with its disk, and another takes its place", once=True)
def lost_synced_ps(t):
    t.identical(lose_at(t, 450), sets=[*SYNCED, "recovery.replicas=1"], ps=3, ask_ps=2, most_restarts=0)


@fault((2, 3), "the master is killed, a ps is lost with its disk, and the next master puts the copy in its place", once=True)
def lost_ps_and_master(t):
    t.identical(lose_with_master_at(t, 450), sets=REPLICATED, ps=3, ask_ps=2, most_restarts=0)


@fault((2, 3), "the same of an async job, and every sample counts once", once=True)
def lost_async_ps_and_master(t):
    t.counted(lose_with_master_at(t, 2000), sets=REPLICATED, ps=3, ask_ps=2, most_restarts=0)


@fault((2, 3, 18), "the master is away and who has a copy hangs: within 10 s workers are told so, and every sample counts once", once=True)
def hanging_copy_without_master(t):
    t.counted(hang_without_master_at(t, 2000), sets=[*REPLICATED, "train.epochs=60"], ps=3, ask_ps=2, most_restarts=0)


@fault(2, "one ps after the other is lost with its disk, and comes back as the one that has a copy", once=True)
def lost_in_turn(t):
    def disturb(cluster, job_id):
        for turn in range(3):
            name = copied(cluster, job_id, turn + 1)
            cluster.watch(job_id, 1)
            lose(cluster, name)
            replaced(t, cluster, job_id, name)
            cluster.start(name)
    t.counted(disturb, sets=[*REPLICATED, "train.epochs=90"], ps=2 + 1, ask_ps=2, most_restarts=0)


@fault(2, "ps with copies of each other's rows are killed at random")
def random_replicated_ps(t):
    t.identical(random_kills(t.draw, "ps"), sets=REPLICATED, ps=4, ask_ps=2, most_restarts=0)


@fault(2, "ps of an async job with copies of their rows are killed at random, and every sample counts once")
def random_replicated_async_ps(t):
    t.counted(random_kills(t.draw, "ps"), sets=REPLICATED, ps=4, ask_ps=2, most_restarts=0)
