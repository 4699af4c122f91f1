"""Rows 7, 8 and 9: disks that are full, that fail, that hold what nobody wrote."""
import contextlib
import json
import os
import shutil
import struct
import subprocess
import time

from cluster import BIN, Failure
from disk import SmallDisk, flip, zero_page
from harness import EXPIRING, LOGGED, SYNCED, WAITING, fault
from jobs import SyncJob
from rows_network import traced
from schedules import ask

SPILL = ["--memory", "16MiB"]  # of which rows have half
# The last checkpoint has the rows of the one before, and in a layer those that were changed since.
LAYERED = ["checkpoint.every_steps=15", "train.epochs=1"]


# ---- row 7: full disks ----------------------------------------------------------------------------------------------------

def full_for(disk, step, seconds, sign):
    """No room from a step on, until the job's status says so, and some seconds more."""
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, step)
        with disk.kept_full():
            cluster.fault("disk full")
            sign(cluster, job_id)
            cluster.watch(job_id, seconds)
        cluster.check_alive()
    return disturb


def status_says(*texts):
    def sign(cluster, job_id):
        def found(status):
            lines = [e["message"] for e in status["events"]] + status["waits"] + [status["message"]]
            return any(all(text in line for text in texts) for line in lines)
        cluster.wait(job_id, found, 60, f"a status of {texts}")
    return sign


@fault(7, "the disk of a push log is full: the status says so, training waits, and goes on when there is room", short=True,
       once=True)
def full_push_log(t):
    with SmallDisk(t.folder / "disk", 24) as disk:
        t.identical(full_for(disk, 150, 1, status_says("ps-0", "No space left")), sets=LOGGED, most_restarts=0,
                    folders={"ps-0": disk.folder / "ps-0"})


@fault(7, "the disk of checkpoints is full: the status says so, training goes on, and the next one succeeds", once=True)
def full_checkpoints(t):
    with SmallDisk(t.folder / "disk", 48) as disk:
        outcome = t.identical(full_for(disk, 150, 0, status_says("No space left")), most_restarts=0,
                              checkpoints=disk.folder / "checkpoints")
        if outcome.status["steps"] <= 150:
            raise Failure("training did not go on")


@fault(7, "the disk of checkpoints is full for so long that push logs would be: training waits while they have room, and goes on",
       once=True)
def full_checkpoints_of_logs(t):
    with SmallDisk(t.folder / "disk", 48) as disk, SmallDisk(t.folder / "log-0", 24) as first, SmallDisk(t.folder / "log-1", 24) as second:
        t.identical(full_for(disk, 150, 2, status_says("tries its checkpoint again", "push log has little room", "No space left")),
                    sets=LOGGED, most_restarts=0, checkpoints=disk.folder / "checkpoints",
                    folders={"ps-0": first.folder / "ps-0", "ps-1": second.folder / "ps-1"})


@fault((4, 7), "push logs have little room, so that checkpoints are cut early: the same rows expire as without", once=True)
def early_checkpoints(t):
    t.identical(await_early(1), sets=[*LOGGED, *EXPIRING], most_restarts=0, flags={"ps": ["--log-bytes", "6MiB"]})


@fault(7, "the disk of a push log is small: checkpoints are cut early, over and over, and training goes on", once=True)
def small_push_log(t):
    with SmallDisk(t.folder / "disk", 16) as disk:
        t.identical(await_early(3), sets=[*LOGGED, "checkpoint.every_steps=100000"], most_restarts=0,
                    folders={"ps-0": disk.folder / "ps-0"})


def await_early(count):
    """Until so many checkpoints were cut that the job has not asked for."""
    def disturb(cluster, job_id):
        early = set()

        def found(status):
            if status["checkpoint"] != "" and int(status["checkpoint"].rsplit("-", 1)[1]) % 100 != 0:
                early.add(status["checkpoint"])
            return len(early) >= count or status["state"] == "Succeeded"
        status = cluster.wait(job_id, found, every=0.02, what=f"{count} checkpoints that the job has not asked for")
        if len(early) < count:
            raise Failure(f"{len(early)} checkpoints were cut early, expected {count}; the job is {status['state']}")
    return disturb


@fault(7, "the disk of a ps that is to have a copy of rows is full: no push log waits for it, and training goes on", once=True)
def full_copy(t):
    with contextlib.ExitStack() as mounted:
        disks = {name: mounted.enter_context(SmallDisk(t.folder / f"disk-{name}", 64)) for name in ("ps-0", "ps-1", "ps-2")}

        def disturb(cluster, job_id):
            spare = cluster.wait_for_event(job_id, "has a copy of").split()[0]
            with disks[spare].kept_full():
                cluster.fault(f"no room for {spare}")
                cluster.wait_for_end(job_id)
        t.identical(disturb, sets=[*LOGGED, "recovery.replicas=1"], ps=3, ask_ps=2, most_restarts=0,
                    folders={name: disks[name].folder / name for name in disks}, flags={"ps": ["--log-bytes", "16MiB"]})


@fault(7, "the disk of a ps is full where a job is resumed: the job is opened on another that has room, and ends with the same bits",
       once=True)
def full_where_it_opens(t):
    with contextlib.ExitStack() as mounted:
        disks = {name: mounted.enter_context(SmallDisk(t.folder / f"disk-{name}", 64)) for name in ("ps-0", "ps-1", "ps-2")}

        def disturb(cluster, job_id):
            cluster.wait_for_step(job_id, 100)
            # Where it had been is where it goes, if it can.
            before = next(node["name"] for node in cluster.describe(job_id)["nodes"] if node["kind"] == "ps")
            ask(cluster, "suspend", job_id)
            cluster.wait(job_id, lambda status: status["state"] == "Suspended", what="the job's suspension")
            with disks[before].kept_full():
                cluster.fault(f"no room on {before}")
                ask(cluster, "resume", job_id)
                cluster.wait_for_event(job_id, "the job is opened on other ps")
                cluster.wait_for_end(job_id)
        t.identical(disturb, sets=LOGGED, ps=3, ask_ps=1, folders={name: disks[name].folder / name for name in disks})


@fault(7, "the disk that rows spill to is full: the status says so, and training goes on when there is room", once=True)
def full_spill(t):
    with SmallDisk(t.folder / "disk", 256) as disk:
        t.identical(full_for(disk, 40, 1, status_says("ps-0", "No space left")), sets=SyncJob.wide,
                    flags={"ps-0": [*SPILL, "--spill-dir", disk.folder / "spill"]})


@fault(7, "the disk of the master's state is full: the status says so, jobs wait for the master, and go on when there is room", once=True)
def full_state(t):
    with SmallDisk(t.folder / "disk", 64) as disk:
        disk.leave(3)  # less than what RocksDB takes for its log at once, where it gets it
        t.identical(full_for(disk, 150, 1, status_says("cannot write its state", "No space left")), most_restarts=0, most_takeovers=0,
                    folders={"master": disk.folder / "master"})


def full_in_turn(t, disks, step, at_once, longest):
    """From a step on, eight times: so many of the disks, of `at_once`, have no room for `longest` seconds at most. Nobody ends."""
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, step)
        for _ in range(8):
            if cluster.watch(job_id, t.draw.uniform(0, 0.5)):
                break
            full = t.draw.sample(sorted(disks), t.draw.choice(at_once))
            with contextlib.ExitStack() as filled:
                for name in full:
                    filled.enter_context(disks[name].kept_full())
                cluster.fault(f"no room for {', '.join(full)}")
                cluster.watch(job_id, t.draw.uniform(0.1, longest))
        cluster.wait_for_end(job_id)
        cluster.check_alive()
    return disturb


@fault(7, "disks are full for moments, one or several at once, drawn by seed: no process ends, and the model is the same")
def full_for_moments(t):
    with contextlib.ExitStack() as mounted:
        logs = t.draw.choice((24, 96))  # MiB; of the smaller ones checkpoints are cut early
        disks = {name: mounted.enter_context(SmallDisk(t.folder / f"disk-{name}", size))
                 for name, size in (("master", 48), ("checkpoints", 48), ("ps-0", logs), ("ps-1", logs))}
        disks["master"].leave(3)

        t.identical(full_in_turn(t, disks, 50, (1, 1, 2, 3), 2), sets=t.draw.choice((LOGGED, SYNCED)),
                    checkpoints=disks["checkpoints"].folder / "checkpoints",
                    folders={name: disks[name].folder / name for name in ("master", "ps-0", "ps-1")})


@fault(7, "disks that rows spill to are full for moments, one or both, drawn by seed: no process ends, and the model is the same")
def full_spills_for_moments(t):
    with contextlib.ExitStack() as mounted:
        disks = {name: mounted.enter_context(SmallDisk(t.folder / f"disk-{name}", 256)) for name in ("ps-0", "ps-1")}
        t.identical(full_in_turn(t, disks, 10, (1, 1, 2), 3), sets=SyncJob.wide,
                    folders={name: disks[name].folder / name for name in disks},
                    flags={name: [*SPILL, "--spill-dir", disks[name].folder / "spill"] for name in disks})


def check_refusal(t, disk, program, *flags):
    """It says in what folder there is no room, and ends with the code of those to be started again."""
    done = subprocess.run([str(word) for word in (BIN / program, *flags)], capture_output=True, text=True, timeout=60, cwd=t.folder)
    if done.returncode != 128 or "No space left" not in done.stderr or str(disk.folder) not in done.stderr:
        raise Failure(f"{program} {' '.join(map(str, flags))}: exit {done.returncode}, expected 128; it says: {done.stderr.strip()}")


@fault(7, "the disk is full when a process starts: it says in what folder, and ends with the code for another try", short=True, once=True)
def full_at_start(t):
    master = ["--listen", "127.0.0.1:0", "--data-dir"]
    with SmallDisk(t.folder / "no-files", 1, files=1) as disk:
        check_refusal(t, disk, "tessera-master", *master, disk.folder / "master")
        check_refusal(t, disk, "tessera-master", *master, t.folder / "master", "--checkpoint-root", disk.folder / "checkpoints")
        check_refusal(t, disk, "tessera-ps", "--listen", "127.0.0.1:0", "--data-dir", disk.folder / "ps-0")
        check_refusal(t, disk, "tessera-ps", "--listen", "127.0.0.1:0", "--memory", "1GiB", "--spill-dir", disk.folder / "spill")
        check_refusal(t, disk, "tessera-worker", "--scratch-dir", disk.folder / "worker")
    with SmallDisk(t.folder / "no-bytes", 1) as disk, disk.kept_full():
        check_refusal(t, disk, "tessera-master", *master, disk.folder / "master")


# ---- row 8: I/O errors ----------------------------------------------------------------------------------------------------

def check_injected(cluster, *names):
    """Somebody's log must tell of it."""
    if not any("an injected error" in cluster.log(name) for name in names):
        raise Failure(f"no failpoint was hit: the logs of {names} tell of no injected error")


@fault(8, "an fsync of a push log fails: the ps takes nothing for written, and the job returns to its checkpoint",
       once=True)
def failed_fsync(t):
    """Of the syncs of ps-0's log one fails, some time in training."""
    def disturb(cluster, job_id):
        cluster.fault("an fsync of ps-0 fails")
        cluster.wait(job_id, lambda s: s["restarts"] > 0, 120, "a return to the checkpoint")
    t.identical(disturb, sets=SYNCED, least_restarts=1, prefix={"ps-0": traced(t, "fdatasync:error=EIO:when=100")})


@fault(8, "a write of a ps fails once, drawn by seed, and the model is the same")
def failed_append(t):
    place = t.draw.choice(("ps.push_log.append", "ps.push_log.sync", "ps.push_log.segment", "checkpoint.rows.append",
                           "checkpoint.rows.sync"))
    hit = t.draw.randint(2, 400) if place in ("ps.push_log.append", "ps.push_log.sync") else t.draw.randint(2, 8)
    t.notes.append(f"{place} fails at hit {hit}")

    def disturb(cluster, job_id):
        cluster.fault("an injected error")
        cluster.wait_for_end(job_id)
        check_injected(cluster, "ps-0", "master")
    t.identical(disturb, sets=SYNCED, environment={"ps-0": {"TESSERA_FAILPOINTS": f"{place}=error@{hit}"}})


@fault(8, "a new segment of a push log cannot be made at a checkpoint: the job is back within 30 s", once=True)
def failed_segment(t):
    def disturb(cluster, job_id):
        cluster.fault("a segment of ps-0's log fails")
        cluster.wait_for_end(job_id)
        check_injected(cluster, "ps-0", "master")
        if cluster.recoveries()[0][1] > 30:
            raise Failure(f"the job stood still for {cluster.recoveries()[0][1]} s")
    t.identical(disturb, sets=LOGGED, environment={"ps-0": {"TESSERA_FAILPOINTS": "ps.push_log.segment=error@5"}})


@fault(8, "writes of the master fail now and then, and the model is the same", short=True)
def failed_state_log(t):
    first, every = t.draw.randint(10, 20), t.draw.randint(5, 9)

    def disturb(cluster, job_id):
        cluster.fault("injected errors")
        cluster.wait_for_end(job_id)
        check_injected(cluster, "master")
    t.identical(disturb, environment={"master": {"TESSERA_FAILPOINTS":
                                                 f"master.state_log.apply=error@{first}+{every};checkpoint.manifest=error@2"}})


@fault(8, "a ps cannot read its checkpoint: the job tries again, and goes on with one that can", once=True)
def failed_read(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 450)
        cluster.kill("ps-0")
        files = sorted((cluster.checkpoints / job_id).glob("step-*/rows-*"))
        cluster.prefix = {"ps-0": traced(t, "pread64:error=EIO", files)}
        cluster.start("ps-0")
        cluster.wait(job_id, lambda s: "Input/output error" in cluster.log("master"), 60, "a read that fails")
        cluster.prefix = {}
        cluster.restart("ps-0")
    t.identical(disturb, least_restarts=1, back_to=250)


# ---- row 9: damage --------------------------------------------------------------------------------------------------------

def damage(draw, path):
    """At a drawn place; says what was done."""
    size = os.path.getsize(path)
    kind = draw.choice(("flip", "truncate", "zero"))
    at = draw.randrange(size)
    if kind == "zero" and not any(path.read_bytes()[at // 4096 * 4096:at // 4096 * 4096 + 4096]):
        kind = "flip"
    if kind == "flip":
        flip(path, at)
    elif kind == "truncate":
        os.truncate(path, at)
    else:
        zero_page(path, at)
    return f"{kind} at byte {at} of {size} of {path.name}"


@fault(9, "any damage to a checkpoint is found, and the file named")
def damage_is_named(t):
    find_damages(t, "whole", sets=["checkpoint.keep=1"])


@fault(9, "any damage to a checkpoint of two layers, and of keys that wait for their rows, is found, and the file named")
def damage_of_layers_is_named(t):
    manifest = find_damages(t, "layers", sets=[*LAYERED, *WAITING, "checkpoint.keep=1"])
    if not manifest.get("sightings") or not any(file.get("layer", 0) for file in manifest["files"]):
        raise Failure(f"the checkpoint has no sightings, or one layer: {sorted(manifest)}, {manifest['files']}")


def find_damages(t, name, sets):
    """A sound checkpoint, and for each of its files several copies with one damage each; returns its manifest."""
    outcome_folder = []

    def keep(cluster, job_id):
        status = cluster.wait_for_end(job_id)
        copy = t.folder / "sound"
        shutil.copytree(cluster.checkpoints / status["checkpoint"], copy)
        outcome_folder.append((cluster, copy))
    t.identical(keep, sets=sets, name=name)
    cluster, sound = outcome_folder[0]
    tried = 0
    for name in sorted(f.name for f in sound.iterdir()):
        for _ in range(6):
            copy = t.folder / "damaged"
            shutil.copytree(sound, copy)
            what = damage(t.draw, copy / name)
            code, out, error = cluster.run("checkpoint", "verify", copy)
            if code == 0 or name not in out + error:
                raise Failure(f"{what}: verify: exit {code}: {out}{error}")
            for reader in ("digest", "inspect"):
                code, out, error = cluster.run("checkpoint", reader, copy)
                if reader == "digest" and code == 0:
                    raise Failure(f"{what}: {reader} reads it: {out}{error}")
                if code not in (0, 1, 3):
                    raise Failure(f"{what}: {reader} exit {code}: {out}{error}")
            shutil.rmtree(copy)
            tried += 1
    t.notes.append(f"{tried} damages to {len(list(sound.iterdir()))} files")
    return json.loads((sound / "MANIFEST.json").read_text())


@fault(9, "the newest checkpoint is damaged: a restart says so, takes the one before, and the model is the same", short=True)
def falls_back(t):
    def disturb(cluster, job_id):
        # Every step makes a folder; the newest is taken once all stand still.
        cluster.wait_for_step(job_id, 550)
        for name in cluster.commands:
            cluster.kill(name)
        newest = max((f.parent for f in (cluster.checkpoints / job_id).glob("step-*/MANIFEST.json")))
        what = damage(t.draw, t.draw.choice(sorted(newest.iterdir())))
        t.notes.append(what)
        for name in cluster.commands:
            cluster.start(name)
        # The message names the file.
        event = cluster.wait_for_event(job_id, newest.name)
        if what.rsplit(" ", 1)[1] not in event and "MANIFEST" not in event:
            raise Failure(f"the event does not name the file ({what}): {event}")
    t.identical(disturb, sets=["checkpoint.keep=5"], least_restarts=1, back_to=300)


@fault(9, "a layer that the newest checkpoints share is damaged: all of them are refused, and the job begins at the one before their chain")
def falls_back_behind_a_chain(t):
    """Increments link the files of lower layers, so a damage is in all that do."""
    def newest_first(cluster, job_id):
        return sorted((f.parent for f in (cluster.checkpoints / job_id).glob("step-*/MANIFEST.json")), reverse=True)

    def shared(newest, before):
        return sorted(f for f in newest.glob("rows-*") if (before / f.name).exists() and f.samefile(before / f.name))

    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 550)
        # Right after an increment is committed, so that it is the newest when all stand still.
        seen = newest_first(cluster, job_id)[0]
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            newest, before, *_ = newest_first(cluster, job_id)
            if newest != seen and shared(newest, before):
                break
            seen = newest
            time.sleep(0.01)
        for name in cluster.commands:
            cluster.kill(name)
        folders = newest_first(cluster, job_id)
        linked = shared(*folders[:2])
        if not linked:
            raise Failure(f"{folders[0].name} shares no layer with {folders[1].name}")
        damaged = t.draw.choice(linked)
        chain = [f for f in folders if (f / damaged.name).exists() and damaged.samefile(f / damaged.name)]
        sound = next((f for f in folders if f not in chain), None)
        if sound is None:
            raise Failure(f"all of {', '.join(f.name for f in folders)} share {damaged.name}")
        t.notes.append(f"{damage(t.draw, damaged)}, which {len(chain)} checkpoints share; {sound.name} is before them")
        for name in cluster.commands:
            cluster.start(name)
        for folder in chain:
            cluster.wait_for_event(job_id, folder.name)
        step = int(sound.name.split("-")[1])
        cluster.wait_for_event(job_id, f"restarted from step {step}")
    t.identical(disturb, sets=["checkpoint.every_steps=30", "checkpoint.keep=5"], least_restarts=1)


def log_bytes(segment):
    """Of the records of a segment of a push log (ps/push_log/FORMAT.md): behind them may lie what the file held before."""
    header = struct.Struct("<8sQIIQQQ")
    data, at, last = segment.read_bytes(), 0, None
    while at + header.size <= len(data):
        magic, number, _, text, bulk, _, _ = header.unpack_from(data, at)
        if magic != b"TSSRLOG1" or last not in (None, number - 1):
            break
        last = number
        at += header.size + (text + 7) // 8 * 8 + bulk
    return at


@fault(9, "a push log is damaged: nothing of it is replayed in silence, and the model is the same")
def damaged_push_log(t):
    """A ps dies, and its log has changed when it comes back: it may not go on from what it has."""
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 450)
        cluster.kill("ps-0")
        log = sorted((cluster.folder / "ps-0").glob("push_log/*/*/*.log"))[-1]
        # Not the end, which may be torn for good reasons.
        written = log_bytes(log)
        at = t.draw.randrange(written * 9 // 10)
        kind, change = t.draw.choice((("flip", flip), ("zero", zero_page)))
        change(log, at)
        t.notes.append(f"{kind} at byte {at} of {written}")
        cluster.start("ps-0")
    t.identical(disturb, sets=LOGGED, least_restarts=1, back_to=250)


@fault(9, "a push log has lost its end: it is told, sync or async, and the job returns to its checkpoint", short=True)
def lost_end_of_a_push_log(t):
    """As after a power cut: what is gone are whole pushes, which were acknowledged."""
    def lose_it(step):
        def disturb(cluster, job_id):
            cluster.wait_for_step(job_id, step)
            cluster.kill("ps-0")
            log = sorted((cluster.folder / "ps-0").glob("push_log/*/*/*.log"))[-1]
            written = log_bytes(log)
            at = t.draw.randrange(written * 3 // 4, written * 9 // 10)
            os.truncate(log, at)
            cluster.fault(f"ps-0's log ends at byte {at} of {written}")
            cluster.start("ps-0")
            cluster.wait_for_event(job_id, "without the end of its push log")
        return disturb
    t.identical(lose_it(450), sets=LOGGED, least_restarts=1, back_to=250)
    t.counted(lose_it(1650), sets=LOGGED, least_restarts=1, back_to=650, name="async")


@fault(9, "files that rows are spilled to are damaged: it is found, and the job returns to its checkpoint", once=True)
def damaged_spill(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 120)
        files = sorted((t.folder / "spill").rglob("*.sst"))
        if not files:
            raise Failure("nothing was spilled")
        cluster.fault("spilled rows are damaged")
        for file in files:
            try:
                size = os.path.getsize(file)
                for at in range(100, size - 200, 3000):
                    flip(file, at)
            except OSError:
                continue  # compacted away meanwhile
    t.identical(disturb, sets=SyncJob.wide, least_restarts=1,
                flags={"ps-0": [*SPILL, "--spill-dir", t.folder / "spill"]})
