"""Faults at moments of a job, as functions disturb(cluster, job_id)."""
import random
import time

from cluster import Failure


def nothing(cluster, job_id):
    del cluster, job_id


def kill_at(names, step):
    """kill -9 of the named processes (None: all) once the job has reached a step; each is started again at once."""
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, step)
        cluster.restart(*(names or cluster.commands))
    return disturb


def pause_at(name, step, seconds):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, step)
        cluster.pause(name)
        cluster.watch(job_id, seconds)
        cluster.go_on(name)
    return disturb


def down_for(cluster, name, seconds):
    """Nobody is asked meanwhile: who asks a master that is dead waits for it."""
    cluster.kill(name)
    time.sleep(seconds)
    cluster.start(name)


def random_kills(draw, prefix=""):
    """Of processes whose names begin with prefix, or with one of a tuple of them."""
    schedule = [(draw.uniform(0.2, 3), draw.random(), draw.uniform(0, 0.5)) for _ in range(draw.randint(2, 4))]

    def disturb(cluster, job_id):
        names = [n for n in cluster.commands if n.startswith(prefix)]
        for before, which, down in schedule:
            if cluster.watch(job_id, before):
                break
            name = names[int(which * len(names))]
            down_for(cluster, name, down)
        cluster.check_faults()
    return disturb


def random_hangs(draw, prefix):
    """SIGSTOP for longer than a lease or shorter; who has ended by itself meanwhile is started again, as under a supervisor."""
    schedule = [(draw.uniform(0.2, 2), draw.random(), draw.uniform(0.5, 9)) for _ in range(3)]

    def disturb(cluster, job_id):
        names = [n for n in cluster.commands if n.startswith(prefix)]
        for before, which, seconds in schedule:
            if cluster.watch(job_id, before):
                break
            name = names[int(which * len(names))]
            cluster.pause(name)
            time.sleep(seconds)
            cluster.go_on(name)
            time.sleep(0.5)
            for ended in [n for n in names if cluster.processes[n].poll() is not None]:
                cluster.fault(f"{ended} ended by itself")
                cluster.start(ended)
        cluster.check_faults()
    return disturb


def kills_while(draw, ends, prefix=""):
    """Three kills of any process close to each other: while the job starts, or (ends) from about its last steps on, while its last
    checkpoint is written and it is closed."""
    schedule = [(draw.uniform(0, 0.5), draw.random(), draw.uniform(0, 0.3)) for _ in range(3)]
    share = draw.uniform(0.93, 1)

    def disturb(cluster, job_id):
        names = [n for n in cluster.commands if n.startswith(prefix)]
        if ends:
            cluster.wait(job_id, lambda s: s["state"] == "Succeeded" or s["steps"] > max(0, share * s["progress"]["total_steps"] - 1),
                         what=f"{share:.3f} of its steps", every=0.02)
        for before, which, down in schedule:
            time.sleep(before)
            down_for(cluster, names[int(which * len(names))], down)
    return disturb


def kills_every(draw, mean_seconds, prefix=""):
    """A Poisson process of kills until the job ends; the victim is back after a second, as under a supervisor."""
    def disturb(cluster, job_id):
        names = [n for n in cluster.commands if n.startswith(prefix)]
        while not cluster.watch(job_id, draw.expovariate(1 / mean_seconds)):
            name = draw.choice(names)
            down_for(cluster, name, 1)
        cluster.check_faults()
    return disturb


def resize(seed, numbers, kills, first=150, every=300):
    """Other numbers of ps one after the other; with kills, of any process while rows are on their way."""
    draw = random.Random(seed)

    def disturb(cluster, job_id):
        for i, ps in enumerate(numbers):
            status = cluster.wait_for_step(job_id, first + every * i)
            if status["state"] == "Succeeded":
                raise Failure("the job ended before it was resized")
            cluster.fault(f"scale to {ps} ps")
            cluster.tessera("scale", job_id, "--ps", ps)
            if not kills:
                cluster.wait(job_id, lambda s: "scaling" not in s, what=f"the end of the move to {ps} ps")
                continue
            cluster.watch(job_id, draw.uniform(0, 0.6))
            cluster.restart(draw.choice(list(cluster.commands)))
    return disturb


def ask(cluster, *words):
    """`tessera` with these words, until the master has heard them. True: it does so. It may refuse what the job does not allow now, but
    not crash or hang."""
    deadline = time.monotonic() + 60
    while True:
        code, _, error = cluster.run(*words, "--master", cluster.master)
        if code in (0, 1, 2):
            return code == 0
        if code != 128 or time.monotonic() > deadline:
            raise Failure(f"tessera {' '.join(map(str, words))}: exit {code}: {error.strip()}")


def operations(draw, kinds, kills, most_ps, most_workers=1):
    """Six times something is asked of the job, of these kinds: "scale", "workers", "drain", "balance", "suspend"; with kills, of any
    process shortly after each. What was suspended is resumed. Something of it must have been done."""
    schedule = [(draw.uniform(0.3, 2), draw.choice(kinds), draw.random(), draw.uniform(0, 0.8), draw.random(), draw.uniform(0, 0.5))
                for _ in range(6)]

    def words_of(kind, share, job_id):
        return {"scale": ("scale", job_id, "--ps", 1 + int(share * most_ps)),
                "workers": ("scale", job_id, "--workers", 1 + int(share * most_workers)),
                "drain": ("drain", job_id, f"ps-{int(share * most_ps)}"),
                "balance": ("balance", job_id),
                "suspend": ("suspend", job_id)}[kind]

    def disturb(cluster, job_id):
        names = list(cluster.commands)
        done = 0
        for before, kind, share, until_kill, which, down in schedule:
            if cluster.watch(job_id, before):
                break
            cluster.fault(kind)
            done += ask(cluster, *words_of(kind, share, job_id))
            if kills:
                time.sleep(until_kill)
                down_for(cluster, names[int(which * len(names))], down)
            if kind == "suspend":
                cluster.watch(job_id, share)
                ask(cluster, "resume", job_id)
        if done == 0:
            raise Failure("nothing that was asked of the job was done")
        # A master that is killed between the two may know of the suspend alone.
        while not cluster.watch(job_id, 0.5):
            ask(cluster, "resume", job_id)
    return disturb
