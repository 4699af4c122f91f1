"""Row 15: rows move to other ps, while processes are killed too."""
import re

from cluster import Failure
from harness import LOGGED, SPILLED, WAITING, fault, spilling
from jobs import SyncJob
from schedules import resize

# Of small rows, on a machine that may be busy with other things; --moves has the bar of one that is not.
MOST_PAUSE_MS = 2000


def check_moves(t, status, times, ps):
    """Rows have moved so many times, and so many ps have them in the end."""
    moved = [event["message"] for event in status["events"] if "partitions have moved" in event["message"]]
    if len(moved) != times or len(status["partitions"]) != ps:
        events = "; ".join(event["message"] for event in status["events"])
        raise Failure(f"expected {times} moves, the last to {ps} ps; found partitions {status['partitions']} and the events: {events}")
    t.notes.extend(moved)
    return moved


def resized_undisturbed(t, sets=()):
    outcome = t.identical(resize(0, (4, 3), kills=False), ps=4, ask_ps=1, sets=sets, most_restarts=0)
    check_moves(t, outcome.status, 2, ps=3)
    pauses = [int(ms) for event in outcome.status["events"] for ms in re.findall(r"training stood for (\d+) ms", event["message"])]
    t.notes.append(f"training stood for {pauses} ms")
    if len(pauses) != 2 or max(pauses) > MOST_PAUSE_MS:
        raise Failure(f"training stood for {pauses} ms, expected two pauses of at most {MOST_PAUSE_MS}")


@fault(15, "the ps are resized from 1 to 4 to 3 while it trains", once=True)
def resized(t):
    resized_undisturbed(t)


@fault(15, "ps with push logs are resized from 1 to 4 to 3 while it trains", once=True)
def logged_resized(t):
    resized_undisturbed(t, LOGGED)


@fault(15, "ps whose keys wait for their rows are resized from 1 to 4 to 3 while it trains", once=True)
def waiting_resized(t):
    resized_undisturbed(t, WAITING)


@fault(15, "ps whose rows spill are resized from 1 to 4 to 3 while it trains", once=True)
def spilling_resized(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 50)
        for ps in (4, 3):
            cluster.tessera("scale", job_id, "--ps", ps)
            cluster.wait(job_id, lambda s: "scaling" not in s, what="the end of the move")
    outcome = t.identical(disturb, ps=4, ask_ps=1, sets=[*SyncJob.wide, "train.epochs=2", "checkpoint.every_steps=0"],
                          most_restarts=0, flags=spilling(t, 4), timeout=500)
    moved = check_moves(t, outcome.status, 2, ps=3)
    if any("by the checkpoint" in message for message in moved):
        raise Failure(f"expected moves from ps to ps, found {moved}")


@fault(15, "the ps are balanced by the weight of partitions while it trains", once=True)
def balanced(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 300)
        cluster.tessera("balance", job_id)
        t.notes.append(cluster.wait_for_event(job_id, "of 4096 partitions"))
        cluster.wait(job_id, lambda s: "scaling" not in s, what="the end of the move")
    outcome = t.identical(disturb, most_restarts=0)
    check_moves(t, outcome.status, 1, ps=2)


@fault(15, "the ps are resized from 1 to 4 to 3 and processes killed", short=True)
def resized_and_killed(t):
    t.identical(resize(t.seed, (4, 3), kills=True), ps=4, ask_ps=1)


@fault(15, "the ps of an async job are resized from 1 to 4 to 3 and processes killed, and every sample counts once")
def async_resized_and_killed(t):
    t.counted(resize(t.seed, (4, 3), kills=True, first=1000, every=1300), ps=4, ask_ps=1)


@fault(15, "ps whose rows spill are resized from 1 to 4 to 3 and processes killed")
def spilling_resized_and_killed(t):
    t.identical(resize(t.seed, (4, 3), kills=True, first=50, every=60), ps=4, ask_ps=1, sets=SPILLED, flags=spilling(t, 4), timeout=500)


@fault(15, "ps with push logs whose rows spill are resized from 1 to 4 to 3 and processes killed")
def logged_spilling_resized_and_killed(t):
    t.identical(resize(t.seed, (4, 3), kills=True, first=50, every=60), ps=4, ask_ps=1, sets=[*SPILLED, *LOGGED], flags=spilling(t, 4),
                timeout=500)


@fault(15, "ps with push logs are resized from 1 to 4 to 3 and processes killed")
def logged_resized_and_killed(t):
    t.identical(resize(t.seed, (4, 3), kills=True), ps=4, ask_ps=1, sets=LOGGED)


def killed_unsaved(cluster, job_id):
    """Rows move from 1 ps to 2, and both are killed before a checkpoint has them where they are now."""
    cluster.wait_for_step(job_id, 150)
    cluster.tessera("scale", job_id, "--ps", 2)
    cluster.wait_for_event(job_id, "partitions have moved")
    for ps in ("ps-1", "ps-0"):
        cluster.kill(ps)
        cluster.start(ps)
        cluster.wait_for_event(job_id, f"{ps} is back with all that was pushed")
    if (checkpoint := cluster.describe(job_id)["checkpoint"]):
        raise Failure(f"{checkpoint} is there already: the fault came too late")


# To write it takes so long that all of that happens before.
UNSAVED = {"sets": [*LOGGED, "checkpoint.every_steps=0"], "environment": {"ps": {"TESSERA_FAILPOINTS": "ps.checkpoint.written=delay:3s@1"}},
           "ps": 2, "ask_ps": 1, "most_restarts": 0}


@fault(15, "ps with push logs are killed before a checkpoint has the rows that came to them, and the model is the same", once=True)
def unsaved_killed(t):
    t.identical(killed_unsaved, **UNSAVED)


@fault(15, "ps with push logs of an async job are killed before a checkpoint has the rows that came to them, and every sample counts once",
       once=True)
def async_unsaved_killed(t):
    t.counted(killed_unsaved, **UNSAVED)


@fault(15, "ps with push logs of an async job are resized from 1 to 4 to 3 and processes killed, and every sample counts once")
def async_logged_resized_and_killed(t):
    t.counted(resize(t.seed, (4, 3), kills=True, first=1000, every=1300), ps=4, ask_ps=1, sets=LOGGED)
