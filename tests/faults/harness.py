"""What the tests of the matrix are made with: named tests by row, jobs that are trained under faults, results."""
import json
import pathlib
import random
import re
import shutil
import time
import traceback

from cluster import Cluster, Failure, Skip, digest, training_share
from jobs import CountingJob, SyncJob
from oracle import check_counts

TESTS = []
LOGGED = ["recovery.push_log=async"]
SYNCED = ["recovery.push_log=fsync"]
# The job leaves its best model, which is written while training goes on.
BEST = ["evaluation.every_steps=60", "checkpoint.keep_best=true"]
# Workers call each other, so they need servers.
ALL_REDUCE = ["train.dense_gradients=all_reduce"]
SERVING = {"worker": ["--listen", "127.0.0.1:0"], "spare": ["--listen", "127.0.0.1:0"]}
# Many keys have been seen and have no row yet, at any moment.
WAITING = ["tables.embedding.admission.after_sightings=20"]
# At each checkpoint that the job asks for rows go that 40 steps have not updated.
EXPIRING = ["tables.embedding.expiry.after_steps=40"]
# Checkpoints of two layers each, so close to one another that kills meet them.
SPILLED = [*SyncJob.wide, "checkpoint.every_steps=15"]
# What a test may say of the way to the job's end (Run.check_course).
COURSE = ("most_restarts", "least_restarts", "takeovers", "most_takeovers", "back_to")


def spilling(t, ps=2):
    """Flags of ps whose rows are on disk for the most part."""
    return {f"ps-{i}": ["--memory", "16MiB", "--spill-dir", t.folder / f"spill-{i}"] for i in range(ps)}


class FaultTest:
    def __init__(self, rows, name, body, short, once, known_failure):
        self.rows, self.name, self.body, self.short, self.once = rows, name, body, short, once
        self.known_failure = known_failure


def fault(rows, name, short=False, once=False, known_failure=None):
    """Registers a test of these rows of the matrix. `short`: one of --short. `once`: nothing in it is drawn from a seed, so
    --minutes runs it once. `known_failure`: why it fails; it is run and reported all the same, and fails when it passes."""
    def register(body):
        TESTS.append(FaultTest([rows] if isinstance(rows, int) else list(rows), name, body, short, once, known_failure))
        return body
    return register


class Shared:
    """What tests of one run of the harness share: data, and the models of undisturbed runs."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.made = {}

    def data(self, job):
        folder = self.folder / f"data-{job.__name__}"
        if not folder.exists():
            job.generate(folder)
        return folder

    def once(self, what, make):
        if what not in self.made:
            self.made[what] = make()
        return self.made[what]


class Outcome:
    """Of a job that was trained to its end."""

    def __init__(self, cluster, status):
        self.status = status
        self.restarts = status["restarts"]
        self.takeovers = sum("takes over rank" in event["message"] for event in status["events"])
        self.checkpoint = cluster.checkpoints / status["checkpoint"]
        self.seconds = (status["finished_unix_ms"] - status["created_unix_ms"]) / 1000
        self.resident = cluster.resident
        self.training_share = training_share(cluster.seen)


class Run:
    """One test with one seed. `short`: of --short."""

    def __init__(self, shared, test, seed, folder, short):
        self.shared, self.test, self.seed, self.folder, self.short = shared, test, seed, pathlib.Path(folder), short
        self.draw = random.Random(f"{test.name} {seed}")
        self.recoveries, self.goodput, self.share, self.restarts, self.takeovers, self.notes = [], None, None, 0, 0, []

    # ---- jobs -------------------------------------------------------------------------------------------------------------

    def cluster(self, job=SyncJob, **options):
        name = options.pop("name", "cluster")
        return Cluster(self.folder / name, options.pop("data", None) or self.shared.data(job), **options)

    def spec(self, job):
        if job is SyncJob:
            return SyncJob.spec
        path = self.folder / "counting.yaml"
        CountingJob.write_spec(path)
        return path

    def train(self, disturb, job=SyncJob, sets=(), ask_ps=None, timeout=300, undisturbed=None, expected=None, **options):
        """Trains while disturb(cluster, job_id) does its worst; returns the outcome once `check` has seen the model. `expected`:
        the digest of the sync job's, where another run of it is at hand."""
        with self.cluster(job, **options) as cluster:
            job_id = cluster.submit(self.spec(job), *(job.sets if job is SyncJob else ()), *sets, ps=ask_ps)
            try:
                cluster.start_spares(job_id)
                disturb(cluster, job_id)
                status = cluster.wait_for_end(job_id, timeout)
            finally:
                self.recoveries += cluster.recoveries()
            outcome = Outcome(cluster, status)
            self.restarts, self.takeovers = outcome.restarts, outcome.takeovers
            # Where clocks jump, the job's own times are no measure.
            if cluster.faults and undisturbed and 0 < outcome.seconds < 3000:
                self.goodput = round(undisturbed.seconds / outcome.seconds, 3)
                self.share = round(outcome.training_share / undisturbed.training_share, 3)
            self.check(job, outcome, sets, expected)
            return outcome

    def check(self, job, outcome, sets, expected=None):
        if job is SyncJob:
            found = digest(outcome.checkpoint)
            expected = expected or self.undisturbed(sets).digest
            if found != expected:
                raise Failure(f"the model differs from the undisturbed run's: digest {found}, expected {expected}")
        else:
            data = self.shared.data(job)
            counts = self.shared.once("counts", lambda: CountingJob.count(data))
            check_counts(outcome.checkpoint, counts, self.epochs(sets), CountingJob.dim)

    @staticmethod
    def epochs(sets):
        given = [s.split("=")[1] for s in sets if s.startswith("train.epochs=")]
        return int(given[-1]) if given else CountingJob.epochs

    def undisturbed(self, sets=(), job=SyncJob):
        """The outcome of the job that nobody disturbs, on two ps. Recovery, when checkpoints are cut and how many bad records
        there may be do not change its model, nor, with two workers, who sums the dense gradients: a + b is b + a."""
        others = ("recovery.", "checkpoint.every_", "checkpoint.keep=", "data.max_bad_records=", "train.dense_gradients=")
        relevant = tuple(s for s in sets if not s.startswith(others))
        return self.shared.once((job, relevant), lambda: self.train_undisturbed(relevant, job))

    def train_undisturbed(self, sets, job=SyncJob):
        """Trains it, whether it was trained before or not."""
        folder = self.shared.folder / f"undisturbed-{len(self.shared.made)}"
        with Cluster(folder, self.shared.data(job)) as cluster:
            own = job.sets if job is SyncJob else ()
            job_id = cluster.submit(self.spec(job), *own, *sets)
            outcome = Outcome(cluster, cluster.wait_for_end(job_id, 3600))
            outcome.digest = digest(outcome.checkpoint)
        shutil.rmtree(folder)
        return outcome

    def identical(self, disturb, sets=(), **options):
        """The sync job, whose model must have the bits of the undisturbed one. Of the options those of COURSE are for check_course."""
        course = {name: options.pop(name) for name in COURSE if name in options}
        undisturbed = self.undisturbed(sets)
        outcome = self.train(disturb, SyncJob, sets, undisturbed=undisturbed, **options)
        self.check_course(outcome, **course)
        return outcome

    def counted(self, disturb, sets=(), **options):
        """The counting job, whose rows must be what the data says."""
        course = {name: options.pop(name) for name in COURSE if name in options}
        undisturbed = self.undisturbed(sets, CountingJob)
        outcome = self.train(disturb, CountingJob, sets, undisturbed=undisturbed, **options)
        self.check_course(outcome, **course)
        return outcome

    @staticmethod
    def check_course(outcome, most_restarts=None, least_restarts=0, takeovers=0, most_takeovers=None, back_to=0):
        """takeovers: of ranks, at least so many. back_to: of each return to a checkpoint, the least step of that one."""
        messages = [event["message"] for event in outcome.status["events"]]
        events = f"; the job's events: {'; '.join(messages)}"
        if most_restarts is not None and outcome.restarts > most_restarts:
            raise Failure(f"went back to a checkpoint {outcome.restarts} times, expected at most {most_restarts}{events}")
        if outcome.restarts < least_restarts:
            raise Failure(f"went back to a checkpoint {outcome.restarts} times, expected {least_restarts}: the fault came too late")
        if outcome.takeovers < takeovers:
            raise Failure(f"{outcome.takeovers} ranks were taken over, expected {takeovers}: the fault came too late")
        if most_takeovers is not None and outcome.takeovers > most_takeovers:
            raise Failure(f"{outcome.takeovers} ranks were taken over, expected at most {most_takeovers}{events}")
        if back_to:
            steps = [int(step) for step in re.findall(r"restarted from step (\d+)", "\n".join(messages))]
            if not steps or min(steps) < back_to or sum(message.startswith("started with") for message in messages) > 1:
                raise Failure(f"went back to the steps {steps}, expected to {back_to} or later{events}")


class Harness:
    """Runs tests, prints and keeps what they found."""

    def __init__(self, folder, keep, short=False):
        self.folder, self.keep, self.short = pathlib.Path(folder), pathlib.Path(keep), short
        self.shared = Shared(folder)
        self.results = []
        self.left_out = 0  # for lack of time

    def run(self, test, seed):
        folder = self.folder / f"test-{len(self.results)}"
        folder.mkdir()
        run = Run(self.shared, test, seed, folder, self.short)
        start = time.monotonic()
        state, problem = "passed", ""
        try:
            test.body(run)
        except Skip as skip:
            state, problem = "skipped", str(skip)
        except Failure as failure:
            state, problem = "failed", str(failure)
        except Exception:  # a mistake of the harness is no reason to lose the other results
            state, problem = "failed", traceback.format_exc()
        if test.known_failure and state in ("passed", "failed"):
            state, problem = (("known failure", f"{test.known_failure} ({problem})") if state == "failed" else
                              ("failed", f"is marked as a known failure, and passes: {test.known_failure}"))
        seconds = round(time.monotonic() - start, 1)
        if state in ("failed", "known failure"):
            problem += f"; logs: {self.save(test, seed, folder)}"
        self.results.append({"rows": test.rows, "name": test.name, "seed": seed, "state": state, "seconds": seconds,
                             "restarts": run.restarts, "takeovers": run.takeovers, "goodput": run.goodput, "training_share": run.share,
                             "recoveries": [{"fault": what, "seconds": s} for what, s in run.recoveries],
                             "notes": run.notes, "problem": problem})
        self.report(self.results[-1])
        shutil.rmtree(folder, ignore_errors=True)
        return state

    def leave_out(self, test, seed, why):
        self.results.append({"rows": test.rows, "name": test.name, "seed": seed, "state": "skipped", "seconds": 0, "restarts": 0,
                             "takeovers": 0, "goodput": None, "training_share": None, "recoveries": [], "notes": [],
                             "problem": why})
        self.report(self.results[-1])
        self.left_out += 1

    def save(self, test, seed, folder):
        """The logs of a failing test's cluster, and its seed, outlive the harness."""
        name = "".join(c if c.isalnum() else "-" for c in test.name)
        target = self.keep / f"{name}-seed-{seed}"
        for log in folder.rglob("*.log"):
            if log.stat().st_size < 64 << 20:
                copy = target / log.relative_to(folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                try:
                    shutil.copy(log, copy)
                except OSError:
                    continue
        self.keep.mkdir(parents=True, exist_ok=True)
        with open(self.keep / "failed-seeds", "a") as out:
            out.write(f"--row {test.rows[0]} --seed {seed}  {test.name}\n")
        return target

    @staticmethod
    def report(result):
        rows = ",".join(map(str, result["rows"]))
        words = {"passed": "ok     ", "failed": "FAILED ", "skipped": "skipped", "known failure": "KNOWN  "}
        line = f"{words[result['state']]} {rows:>5}  {result['name']}: {result['seconds']} s"
        if result["restarts"]:
            line += f", {result['restarts']} restarts"
        if result["takeovers"]:
            line += f", {result['takeovers']} takeovers"
        if result["recoveries"]:
            slowest = max(result["recoveries"], key=lambda r: r["seconds"])
            line += f"; {len(result['recoveries'])} faults, longest standstill {slowest['seconds']} s ({slowest['fault']})"
        if result["goodput"] is not None:
            line += f"; goodput {result['goodput']}, training share {result['training_share']}"
        for note in result["notes"]:
            line += f"; {note}"
        if result["problem"]:
            line += f"\n         seed {result['seed']}: {result['problem']}"
        print(line, flush=True)

    def summary(self):
        counts = {s: sum(r["state"] == s for r in self.results) for s in ("passed", "failed", "known failure", "skipped")}
        for result in self.results:
            if result["state"] == "failed":
                print(f"failed: {result['name']}: tests/faults/run --row {result['rows'][0]} --seed {result['seed']}")
        late = f" ({self.left_out} for lack of time)" if self.left_out else ""
        print("faults: " + ", ".join(f"{n} {s}" for s, n in counts.items() if n or s in ("passed", "failed")) + late)
        return counts["failed"]

    def write(self, path):
        pathlib.Path(path).write_text(json.dumps(self.results, indent=1) + "\n")
