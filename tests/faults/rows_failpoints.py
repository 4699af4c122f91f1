"""Rows 2, 3, 10 and 12 by named failpoints (common/failpoint.h): a process ends at a place, is started again, and the model
has the bits of the undisturbed run's."""
import re
import subprocess

from cluster import BIN, Failure
from harness import BEST, LOGGED, SYNCED, fault
from schedules import random_kills

# place: (process, job settings, hits to draw from). What a hit is differs: a push, a block of a file, a checkpoint.
PUSH_LOG = {
    "ps.push_log.append": ("ps-0", LOGGED, (50, 600)),
    "ps.push_log.half_written": ("ps-0", LOGGED, (50, 600)),
    "ps.push_log.appended": ("ps-0", LOGGED, (50, 600)),
    "ps.push_log.sync": ("ps-0", SYNCED, (50, 600)),
    "ps.push_log.synced": ("ps-0", SYNCED, (50, 600)),
    "ps.push_log.segment": ("ps-0", LOGGED, (2, 8)),
    "ps.push_log.segment_begun": ("ps-0", LOGGED, (2, 8)),
    "ps.push_log.forget": ("ps-0", LOGGED, (1, 6)),
    "ps.push.answer": ("ps-0", LOGGED, (50, 600)),
}
CHECKPOINT_PS = {
    "ps.checkpoint.cut": ("ps-0", LOGGED, (1, 8)),
    "checkpoint.rows.append": ("ps-0", LOGGED, (1, 12)),
    "checkpoint.rows.sync": ("ps-0", LOGGED, (1, 8)),
    "checkpoint.rows.synced": ("ps-0", LOGGED, (1, 8)),
    "ps.checkpoint.written": ("ps-0", LOGGED, (1, 8)),
}
CHECKPOINT_MASTER = {
    "master.checkpoint.begin": ("master", [], (1, 6)),
    "checkpoint.manifest": ("master", [], (1, 6)),
    "atomic_file.synced": ("master", [], (1, 6)),
    "atomic_file.renamed": ("master", [], (1, 6)),
    "master.checkpoint.committed": ("master", [], (1, 6)),
    "master.checkpoint.prune": ("master", [], (1, 4)),
}
STATE_LOG = {
    "master.state_log.apply": ("master", [], (8, 30)),
    "master.state_log.applied": ("master", [], (8, 30)),
}
WORKER = {
    "worker.push.send": ("worker-0", [], (50, 600)),
    "worker.push.answered": ("worker-0", [], (50, 600)),
}
SHORT = {"ps.push_log.half_written", "atomic_file.renamed"}


def crash_at(t, place, process, sets, hits, takeovers=0, most_restarts=0):
    """The process ends itself at a drawn hit of the place, and comes back without failpoints."""
    hit = t.draw.randint(*hits)
    t.notes.append(f"hit {hit}")

    def disturb(cluster, job_id):
        code = cluster.await_death(process)
        if code != 137:
            raise Failure(f"{process} did not end at {place}, hit {hit}: exit code {code}")
        half_written_is_invisible(cluster, job_id)
        cluster.environment = {}
        cluster.start(process)
    outcome = t.identical(disturb, sets=sets, environment={process: {"TESSERA_FAILPOINTS": f"{place}=crash@{hit}"}})
    t.check_course(outcome, most_restarts=1 if lost_before_training(outcome) else most_restarts, takeovers=takeovers, most_takeovers=takeovers)


def lost_before_training(outcome):
    """Whether the master was lost before all records were counted: then the job may begin again."""
    messages = [event["message"] for event in outcome.status["events"]]
    begun = messages.index("the master restarted") if "the master restarted" in messages else len(messages)
    return any(re.match(r"\w+: \d+ records in ", message) for message in messages[begun:])


def half_written_is_invisible(cluster, job_id):
    """Every checkpoint that the list shows verifies, whatever else lies in the folder."""
    code, out, error = cluster.run("checkpoint", "list", cluster.checkpoints / job_id)
    if code not in (0, 3):
        raise Failure(f"checkpoint list: exit {code}: {error.strip()}")
    for folder in sorted((cluster.checkpoints / job_id).glob("step-*")):
        if folder.name not in out:
            continue
        code, _, error = cluster.run("checkpoint", "verify", folder)
        # It may have been pruned since.
        if code != 0 and folder.exists():
            raise Failure(f"checkpoint list shows {folder.name}, which does not verify: {error.strip()}")


def register(row, places, takeovers=0):
    for place, (process, sets, hits) in places.items():
        name = f"{process} ends at {place}, and the job goes on where it was"
        fault(row, name, short=place in SHORT)(lambda t, p=place, w=process, s=sets, h=hits: crash_at(t, p, w, s, h, takeovers))


@fault((2, 10), "ps-0 has written its rows of the best model, and ends; the job leaves the same model")
def best_model(t):
    """Of the checkpoints that the undisturbed run cut, each written by both ps, that of its best model."""
    status = t.undisturbed(BEST).status
    best, last_best = 0, 0
    cut = set(range(100, status["steps"], 100))
    for evaluation in status["evaluations"]:
        if evaluation["metrics"]["auc"] > best:
            best, last_best = evaluation["metrics"]["auc"], evaluation["step"]
            cut.add(last_best)
    hit = sum(step <= last_best for step in cut)
    # The ps have gone on by then, and the model's step is trained once more.
    crash_at(t, "ps.checkpoint.written", "ps-0", LOGGED + BEST, (hit, hit), most_restarts=1)


register(1, WORKER, takeovers=1)
register(2, PUSH_LOG)
register((2, 10), CHECKPOINT_PS)
register((3, 10), CHECKPOINT_MASTER)
register(3, STATE_LOG)


@fault(10, "the places of a half-written checkpoint are invisible to list and restore, and collected later", short=True, once=True)
def collected_later(t):
    """All are killed while a checkpoint has no manifest; after the job's end only sound checkpoints are left."""
    def disturb(cluster, job_id):
        if cluster.await_death("master") != 137:
            raise Failure("the master did not end before the manifest of its third checkpoint")
        folders = {f.name for f in (cluster.checkpoints / job_id).glob("step-*")}
        without = {f for f in folders if not (cluster.checkpoints / job_id / f / "MANIFEST.json").exists()}
        if not without:
            raise Failure(f"no folder without a manifest: {folders}")
        half_written_is_invisible(cluster, job_id)
        code, out, _ = cluster.run("checkpoint", "list", cluster.checkpoints / job_id)
        if code != 0 or any(f in out for f in without):
            raise Failure(f"checkpoint list shows {without}: {out}")
        cluster.environment = {}
        cluster.restart(*[n for n in cluster.commands if n != "master"])
        cluster.start("master")
        status = cluster.wait_for_end(job_id)
        left = {f.name for f in (cluster.checkpoints / job_id).glob("step-*")}
        bad = [f for f in left if not (cluster.checkpoints / job_id / f / "MANIFEST.json").exists()]
        if bad or len(left) > 4:
            raise Failure(f"left behind: {bad}; all folders: {left}; the job: {status['state']}")
    t.identical(disturb, environment={"master": {"TESSERA_FAILPOINTS": "checkpoint.manifest=crash@3"}}, least_restarts=1, back_to=200)


@fault((2, 3, 10), "a failpoint that does not exist is refused with those that do", short=True, once=True)
def unknown_failpoint(t):
    for program in ("tessera-ps", "tessera-master", "tessera-worker"):
        done = subprocess.run([str(BIN / program)], capture_output=True, text=True, timeout=30, cwd=t.folder,
                              env={"TESSERA_FAILPOINTS": "ps.push_log.apend=crash"})
        if done.returncode != 1 or "ps.push_log.append" not in done.stderr:
            raise Failure(f"{program}: exit {done.returncode}: {done.stderr}")


# ---- row 12: duplicate, reordered, late calls -----------------------------------------------------------------------------

def calls(t):
    first, every = t.draw.randint(1, 20), t.draw.randint(20, 50)
    return {"worker": {"TESSERA_FAILPOINTS": f"worker.push.answered=error@{first}+{every};"
                                             f"worker.push.again=error@{first + 1}+{every + 2};"
                                             f"worker.push.send=delay:20ms@{first + 2}+{2 * every}"}}


def check_calls(cluster):
    """The faults must have been there."""
    for name in ("worker-0", "worker-1"):
        log = cluster.log(name)
        for sign in ("goes to ps", "an injected error"):
            if sign not in log:
                raise Failure(f"{name}: no call was lost or repeated: \"{sign}\" is not in its log")


def until_the_end(cluster, job_id):
    cluster.fault("pushes twice and late")
    cluster.wait_for_end(job_id)
    check_calls(cluster)


@fault(12, "pushes that come twice, late and out of order change no bit of a sync job")
def repeated_pushes(t):
    t.identical(until_the_end, environment=calls(t), most_restarts=0)


@fault(12, "pushes of an async job that come twice, late and out of order count once", short=True)
def repeated_async_pushes(t):
    t.counted(until_the_end, environment=calls(t), most_restarts=0)


@fault((2, 12), "pushes come twice and late while ps with push logs are killed, and every sample counts once")
def repeated_pushes_and_kills(t):
    t.counted(random_kills(t.draw, "ps"), sets=LOGGED, environment=calls(t), most_restarts=0)
