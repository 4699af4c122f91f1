"""Rows 5, 6, 11 and 18: partitions, what is slow, clocks that jump, peers that hang."""
import os
import pathlib
import shutil
import subprocess
import time

from cluster import Failure, Skip
from harness import ALL_REDUCE, LOGGED, SERVING, SYNCED, fault
from network import Network
from proxy import SlowProxy
from schedules import nothing, pause_at

LEASE_SECONDS = 3
SHORT_LEASE = {"master": ["--lease-seconds", LEASE_SECONDS]}
FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


# ---- row 5: partitions ----------------------------------------------------------------------------------------------------

def cut_for(cluster, job_id, seconds, cut):
    """A cut is a host, or a pair (sender, receiver) for one way."""
    cluster.fault(f"cut {cut if isinstance(cut, str) else ' to '.join(cut)}")
    if isinstance(cut, str):
        cluster.network.cut(cut)
    else:
        cluster.network.mute(*cut)
    cluster.watch(job_id, seconds)
    if isinstance(cut, str):
        cluster.network.heal(cut)
    else:
        cluster.network.unmute(*cut)


def partitioned(t, train, step, seconds, cut, flags=None, lost=None, **options):
    """Once the job has reached a step, for so many seconds. `lost`: whose lease is over by then ("": anybody's)."""
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, step)
        cut_for(cluster, job_id, seconds, cut)
        if lost is not None:
            t.notes.append(f"\"{cluster.wait_for_event(job_id, f'{lost} lost (no heartbeat for', 5)}\"")
    with Network() as network:
        train(disturb, network=network, flags={**SHORT_LEASE, **(flags or {})}, **options)


@fault(5, "a worker is cut off beyond its lease, a spare has its rank, and it comes back", short=True, once=True)
def worker_cut(t):
    partitioned(t, t.identical, 300, 8, "worker-0", spares=1, most_restarts=0, takeovers=1)


@fault(5, "a worker of an async job is cut off beyond its lease, and every sample counts once", once=True)
def async_worker_cut(t):
    partitioned(t, t.counted, 1000, 8, "worker-0", spares=1, takeovers=1)


@fault(5, "a worker's link fails for a moment, and nothing is lost", once=True)
def worker_cut_briefly(t):
    partitioned(t, t.identical, 300, 1, "worker-0")


@fault(5, "a ps with a push log is cut off beyond its lease", once=True)
def ps_cut(t):
    partitioned(t, t.identical, 300, 8, "ps-0", sets=LOGGED, lost="ps-0", most_restarts=0)


@fault(5, "a ps of an async job is cut off beyond its lease, and every sample counts once", once=True)
def async_ps_cut(t):
    partitioned(t, t.counted, 1000, 8, "ps-0", lost="ps-0", least_restarts=1, back_to=500)


@fault(5, "the master is cut off from all", once=True)
def master_cut(t):
    partitioned(t, t.identical, 300, 8, "master", lost="", least_restarts=1, back_to=200)


@fault(5, "a worker hears the master and is not heard", once=True)
def worker_unheard(t):
    partitioned(t, t.identical, 300, 8, ("worker-0", "master"), spares=1, takeovers=1)


@fault(5, "a worker does not hear a ps that hears it, and every sample counts once", once=True)
def ps_unheard(t):
    partitioned(t, t.counted, 1000, 8, ("ps-0", "worker-0"))


@fault(5, "two workers that sum their dense gradients do not reach each other: nobody is taken for lost, and they go on where they were",
       once=True)
def ring_cut(t):
    # For longer than a lease, of which none may be over: of the usual length, whatever else the machine has to do.
    partitioned(t, t.identical, 300, 13, ("worker-0", "worker-1"), sets=ALL_REDUCE, flags={**SERVING, "master": []}, spares=1,
                most_restarts=0, most_takeovers=0)


@fault(5, "a worker of a job that all-reduces its dense gradients is cut off beyond its lease, and a spare has its rank", once=True)
def all_reduce_worker_cut(t):
    partitioned(t, t.identical, 300, 8, "worker-0", sets=ALL_REDUCE, flags=SERVING, spares=1, most_restarts=0, takeovers=1)


def talk(a, b):
    """Whether one calls the other: all have the master, workers the ps."""
    kinds = {name.split("-")[0] for name in (a, b)}
    return a != b and ("master" in kinds or kinds == {"worker", "ps"})


@fault(5, "links fail at random, one way and both, and every sample counts once")
def random_cuts(t):
    def disturb(cluster, job_id):
        pairs = [(a, b) for a in cluster.commands for b in cluster.commands if talk(a, b)]
        for _ in range(3):
            pause, (a, b), one_way, seconds = (t.draw.uniform(0.5, 2), t.draw.choice(pairs), t.draw.random() < 0.5,
                                               t.draw.uniform(0.5, 6))
            if cluster.watch(job_id, pause):
                break
            cut_for(cluster, job_id, seconds, (a, b) if one_way else a)
        cluster.check_faults()
    with Network() as network:
        t.counted(disturb, network=network, flags=SHORT_LEASE, sets=LOGGED, spares=1)


# ---- rows 6 and 18: slow, stalled, hanging --------------------------------------------------------------------------------

def waits_for(cluster, job_id, who, seconds=10):
    """The status is to say within so many seconds that somebody waits for `who`; returns that line."""
    start = time.monotonic()
    status = cluster.wait(job_id, lambda s: s["state"] in ("Succeeded", "Failed") or any(who in w for w in s["waits"]),
                          seconds, f"a wait for {who} in the status")
    lines = [w for w in status["waits"] if who in w]
    if not lines:
        raise Failure(f"the job is {status['state']} and nobody waits for {who}: {status['message']}")
    return time.monotonic() - start, lines[0]


def hangs(t, name, who, words):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 300)
        cluster.pause(name)
        seconds, line = waits_for(cluster, job_id, who)
        cluster.go_on(name)
        t.notes.append(f"after {seconds:.1f} s: \"{line}\"")
        for word in words:
            if word not in line:
                raise Failure(f"\"{line}\" does not say \"{word}\"")
    return disturb


@fault((6, 18), "a ps hangs: within 10 s the status says who waits for it, for what, since when", short=True, once=True)
def ps_hangs(t):
    # Not in a cut, for which all workers wait: that the status says in other words.
    t.identical(hangs(t, "ps-0", "ps-0", ["worker-", "waits for", "step", "since", " s"]), sets=["checkpoint.every_steps=0"],
                most_restarts=0)


@fault((6, 18), "a worker hangs: within 10 s the status says who waits for its rank, for what, since when", once=True)
def worker_hangs(t):
    t.identical(hangs(t, "worker-0", "from rank 0", ["ps-", "rank 1's pull of step", "since"]), most_restarts=0)


@fault(18, "the master hangs: a command that asks it ends within its deadline, and says whom it asked", once=True)
def master_hangs(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 300)
        cluster.pause("master")
        start = time.monotonic()
        code, _, error = cluster.run("describe", job_id, "--master", cluster.master, timeout=60)
        seconds = time.monotonic() - start
        cluster.go_on("master")
        t.notes.append(f"answered after {seconds:.1f} s: {error.strip()}")
        if code != 128 or cluster.master not in error:
            raise Failure(f"describe: exit {code} after {seconds:.1f} s: {error}")
    t.identical(disturb)


@fault(18, "the master hangs beyond every lease: nobody is taken for lost, and nothing is trained again", once=True)
def master_stands_still(t):
    t.identical(pause_at("master", 250, 13), most_restarts=0, most_takeovers=0)


@fault(18, "each process hangs for a moment, drawn by seed")
def random_pauses(t):
    def disturb(cluster, job_id):
        for _ in range(3):
            name = t.draw.choice(list(cluster.commands))
            if cluster.watch(job_id, t.draw.uniform(0.3, 1.5)):
                break
            cluster.pause(name)
            cluster.watch(job_id, t.draw.uniform(0.3, 4))
            cluster.go_on(name)
        cluster.check_faults()
    t.counted(disturb, sets=LOGGED)


@fault(6, "a ps is slow: it is named in the status, deadlines hold, and memory stays as it was", once=True)
def slow_ps(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 100)
        before = cluster.resident["worker"]
        cluster.fault("ps-0 answers pushes 3 s late")
        _, line = waits_for(cluster, job_id, "ps-0", 30)
        t.notes.append(f"\"{line}\"")
        cluster.wait_for_end(job_id)
        after = cluster.resident["worker"]  # the largest that was seen
        if after > before + (64 << 20):
            raise Failure(f"a worker grew from {before >> 20} to {after >> 20} MiB")
    t.identical(disturb, most_restarts=0, environment={"ps-0": {"TESSERA_FAILPOINTS": "ps.push.answer=delay:3s@200+400"}})


def named_while_slow(t, who):
    """Of many waits that are too short to be said one by one."""
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 100)
        seconds, line = waits_for(cluster, job_id, f"{who} is slow: ", 10)
        t.notes.append(f"after {seconds:.1f} s: \"{line}\"")
        cluster.wait(job_id, lambda s: not any("is slow" in w for w in s["waits"]), 60, f"{who} to be quick again")
    return disturb


@fault(6, "a ps takes 300 ms for each push: it is named within 10 s, and no longer than that lasts", short=True, once=True)
def slow_pushes(t):
    t.identical(named_while_slow(t, "ps-0"), most_restarts=0,
                environment={"ps-0": {"TESSERA_FAILPOINTS": "ps.push.answer=delay:300ms@200-280"}})


@fault(6, "a worker takes 300 ms for each push: it is named within 10 s, and no longer than that lasts", once=True)
def slow_worker(t):
    t.identical(named_while_slow(t, "worker-0"), most_restarts=0,
                environment={"worker-0": {"TESSERA_FAILPOINTS": "worker.push.send=delay:300ms@200-280"}})


@fault(6, "a ps's disk stalls: it is named in the status, and nothing is lost", once=True)
def stalled_disk(t):
    def disturb(cluster, job_id):
        cluster.fault("fsync of ps-0 takes 3 s now and then")
        _, line = waits_for(cluster, job_id, "ps-0", 60)
        t.notes.append(f"\"{line}\"")
    t.identical(disturb, sets=SYNCED, most_restarts=0,
                prefix={"ps-0": traced(t, "fdatasync:delay_enter=3000000:when=100+400")})


@fault(6, "the way between a worker and the master is slow", once=True)
def slow_master(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 100)
        with SlowProxy(cluster.master, 0.3) as proxy:
            command = cluster.commands["worker-0"]
            command[command.index("--master") + 1] = proxy.address
            cluster.restart("worker-0")
            cluster.wait_for_end(job_id)
    t.identical(disturb, most_restarts=0, takeovers=1)


def traced(t, injection, paths=()):
    """Words before a command whose system calls (on these paths, if any) fail or stall. The tracer is a child: the process keeps
    its place."""
    if shutil.which("strace") is None:
        raise Skip("no strace")
    words = ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", t.folder / "strace.log"]
    if subprocess.run([*map(str, words), "-e", "inject=getppid:error=EIO", "true"], capture_output=True, timeout=30).returncode:
        raise Skip("strace may not trace or inject here")
    for path in paths:
        words += ["-P", path]
    return [*words, "-e", f"trace={injection.split(':')[0]}", "-e", f"inject={injection}"]


# ---- row 11: clocks -------------------------------------------------------------------------------------------------------

def check_clock(cluster, kind, offset, environment):
    """Programs with this environment have that clock, and those of the kind have the library."""
    told = subprocess.run(["date", "+%s"], env={**os.environ, **environment}, capture_output=True, text=True, timeout=30, check=True)
    if abs(int(told.stdout) - time.time() - offset) > 60:
        raise Failure(f"of a clock at {offset:+} s \"date\" tells {told.stdout.strip()}: libfaketime had no effect")
    for name, process in cluster.processes.items():
        if name.startswith(kind) and FAKETIME.name not in pathlib.Path(f"/proc/{process.pid}/maps").read_text():
            raise Failure(f"{name} has not loaded {FAKETIME}")
    if kind == "master" and offset:  # which alone says something at each checkpoint
        deadline = time.monotonic() + 60
        while len({line[:13] for line in cluster.log(kind).splitlines() if line.startswith("20")}) < 2:
            if time.monotonic() > deadline:
                raise Failure("the master's log shows no jump: libfaketime had no effect")
            time.sleep(0.1)


def clocks(t, steps, then=nothing, takeovers=0, **options):
    """steps: [(step, kind of process, its wall clock's offset in seconds from then on)]. Only the programs see it; the
    kernel's own clock stays. A wait that ended by the kernel's wall clock would end at once where the program's clock is behind, and
    last that much longer where it is ahead."""
    if not FAKETIME.exists():
        raise Skip("no libfaketime")
    files = {kind: t.folder / f"clock-{kind}" for kind in ("master", "ps", "worker")}
    for file in files.values():
        file.write_text("+0")
    environment = {kind: {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_CACHE_DURATION": "1",
                          "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"} for kind, file in files.items()}

    def disturb(cluster, job_id):
        for step, kind, offset in steps:
            cluster.wait_for_step(job_id, step)
            cluster.fault(f"the clock of every {kind} at {offset:+} s")
            files[kind].write_text(f"{offset:+}")
            check_clock(cluster, kind, offset, environment[kind])
            cluster.watch(job_id, 1.5)
        then(cluster, job_id)
    t.identical(disturb, environment=environment, most_restarts=0, takeovers=takeovers, most_takeovers=takeovers, **options)


@fault(11, "wall clocks jump hours back and ahead again while it trains", once=True)
def clocks_jump(t):
    clocks(t, [(30, "master", -7200), (60, "worker", -10800), (90, "ps", -7200), (130, "master", 0), (160, "worker", 0),
               (190, "ps", 0)], sets=["train.epochs=12"])


@fault(11, "the clock of every ps jumps an hour ahead of all others, and no lease is lost", once=True)
def clocks_differ(t):
    clocks(t, [(30, "ps", 3600)], sets=["train.epochs=20"], flags=SHORT_LEASE)


@fault(11, "all clocks are set back by an hour, and a worker that hangs loses its lease all the same", once=True)
def clocks_set_back(t):
    clocks(t, [(30, kind, 3600) for kind in ("master", "ps", "worker")], then=pause_at("worker-0", 60, 3 * LEASE_SECONDS),
           sets=["train.epochs=20"], flags=SHORT_LEASE, spares=1, takeovers=1)
