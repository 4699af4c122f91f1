"""Rows 13 and 17: memory, file descriptors and threads that run out."""
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import time

from cluster import BIN, Failure, Skip
from harness import LOGGED, fault
from jobs import SyncJob
from schedules import kill_at

MIB = 1 << 20
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class MemoryGroup:
    """A memory cgroup, of version 1 or 2. Needs root."""

    def __init__(self, name, limit):
        self.limit = limit
        if (CGROUPS / "cgroup.controllers").exists():
            self.folder, self.max, self.peak, self.now = CGROUPS / name, "memory.max", "memory.peak", "memory.current"
        else:
            self.folder, self.max = CGROUPS / "memory" / name, "memory.limit_in_bytes"
            self.peak, self.now = "memory.max_usage_in_bytes", "memory.usage_in_bytes"

    def __enter__(self):
        try:
            self.folder.mkdir()
            self.set_limit(self.limit)
        except OSError as error:
            raise Skip(f"no memory cgroup may be made here: {error}") from error
        return self

    def __exit__(self, *unused):
        for _ in range(50):
            try:
                self.folder.rmdir()
                return
            except OSError:
                time.sleep(0.1)

    def command(self):
        """Words before a command that runs in it."""
        return ["sh", "-c", f"echo $$ > {self.folder}/cgroup.procs && exec \"$@\"", "sh"]

    def set_limit(self, limit):
        (self.folder / self.max).write_text(str(limit))

    def bytes_now(self):
        return int((self.folder / self.now).read_text())

    def peak_bytes(self):
        return int((self.folder / self.peak).read_text())


def folder_bytes(folder):
    """Of its files, some of which may go meanwhile."""
    total = 0
    for file in folder.rglob("*.sst"):
        try:
            total += file.stat().st_size
        except OSError:
            continue
    return total


# ---- row 13: memory -------------------------------------------------------------------------------------------------------

@fault(13, "a ps whose rows are larger than its memory limit spills, and stays below it", once=True)
def budget(t):
    """The kernel would kill a ps that went beyond the limit, and the job would return to a checkpoint."""
    limit = 112 * MIB

    def disturb(cluster, job_id):
        cluster.fault(f"rows of ps-0 have 8 MiB, the process {limit // MIB} MiB")
        spilled = 0
        while not cluster.watch(job_id, 0.5):
            spilled = max(spilled, folder_bytes(t.folder / "spill"))
        t.notes.append(f"{spilled // MIB} MiB spilled, peak of ps-0 with its page cache {group.peak_bytes() // MIB} MiB")
        if spilled < 16 * MIB:
            raise Failure(f"{spilled} bytes were spilled: the budget was no limit")
    with MemoryGroup(f"tessera-faults-{os.getpid()}", limit) as group:
        t.identical(disturb, sets=SyncJob.wide, most_restarts=0, prefix={"ps-0": group.command()},
                    flags={"ps-0": ["--memory", "16MiB", "--spill-dir", t.folder / "spill"]}, timeout=500)


@fault(13, "a ps with a budget is smaller than one without by most of its rows", once=True)
def resident_memory(t):
    """Small batches: what is on its way between processes is of the size of batches, whatever the budget of rows. A ps has 63 MiB
    of rows (the checkpoint: 5,394 of 24 KiB on two ps), of which 55 can go; what it needs to bring and write them varies."""
    sets = [*SyncJob.wide, "tables.embedding.dim=2048", "train.batch_size=32"]

    def disturb(cluster, job_id):
        cluster.fault("rows of each ps have 8 MiB")
        cluster.wait_for_end(job_id)
    without = t.undisturbed(sets).resident["ps"]
    outcome = t.identical(disturb, sets=sets, most_restarts=0,
                          flags={f"ps-{i}": ["--memory", "16MiB", "--spill-dir", t.folder / f"spill-{i}"] for i in (0, 1)})
    found = outcome.resident["ps"]
    t.notes.append(f"resident size of a ps {found // MIB} MiB, without a budget {without // MIB} MiB")
    if found > without - 45 * MIB:
        raise Failure(f"a ps of which 8 MiB were for rows took {found // MIB} MiB, without a budget {without // MIB} MiB")


@fault(13, "the kernel kills a ps for its memory, and that is as any other death", once=True)
def killed_for_memory(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 3)
        cluster.fault("ps-0 may grow by 1 MiB")
        group.set_limit(group.bytes_now() + MIB)
        code = cluster.await_death("ps-0")
        if code != -9:
            raise Failure(f"ps-0: exit code {code}, expected death by the kernel")
        group.set_limit(group.limit)
        cluster.start("ps-0")
    with MemoryGroup(f"tessera-faults-{os.getpid()}", 512 * MIB) as group:
        t.identical(disturb, sets=[*SyncJob.wide, *LOGGED], most_restarts=0, prefix={"ps-0": group.command()}, timeout=500)


# ---- row 17: file descriptors and threads ---------------------------------------------------------------------------------

def limit_files(pid, most):
    """Returns how many it might have before."""
    before, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, hard))
    return before


@fault(17, "a ps runs out of file descriptors at a checkpoint: the status says so, and it goes on when it has some",
       once=True)
def files_of_ps(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 150)
        pid = cluster.processes["ps-0"].pid
        cluster.fault("no file descriptors for ps-0")
        before = limit_files(pid, 8)
        # Either it cannot make its file, or cannot take the connection by which it is asked for it.
        event = cluster.wait_for_event(job_id, "on ps-0")
        t.notes.append(f"\"{event}\"")
        cluster.check_alive()
        limit_files(pid, before)
    t.identical(disturb, timeout=90)


@fault(17, "the master runs out of file descriptors for a while, and the model is the same", once=True)
def files_of_master(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 150)
        pid = cluster.processes["master"].pid
        cluster.fault("no file descriptors for the master")
        before = limit_files(pid, 8)
        host, port = cluster.master.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10):
            cluster.wait_for_log("takes no connections", "master")
            time.sleep(3)  # nobody can ask it meanwhile
        cluster.check_alive()
        limit_files(pid, before)
        cluster.wait_for_log("are taken again", "master")
    t.identical(disturb)


@fault(17, "processes that start with too few file descriptors say so and end, those with enough work", once=True, short=True)
def files_at_start(t):
    """From far too few up: neither a crash by signal nor a hang beyond its time."""
    for most in (6, 12, 24, 63, 96):
        for program, flags in (("tessera-master", ["--listen", "127.0.0.1:0", "--data-dir", t.folder / f"m{most}"]),
                               ("tessera-ps", ["--listen", "127.0.0.1:0", "--master", "127.0.0.1:1", "--name", "ps-0"])):
            process = subprocess.Popen([str(a) for a in (shutil.which("prlimit") or "prlimit", f"--nofile={most}", BIN / program, *flags)],
                                       cwd=t.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            try:
                out = process.communicate(timeout=3)[0].decode()
            except subprocess.TimeoutExpired:
                process.terminate()
                try:
                    out = process.communicate(timeout=30)[0].decode()
                except subprocess.TimeoutExpired as hangs:
                    process.kill()
                    process.communicate()
                    raise Failure(f"{program} with {most} file descriptors does not stop at SIGTERM") from hangs
            refused = process.returncode == 1 and f"may open {most} files" in out
            if (most < 64 and not refused) or (most >= 64 and process.returncode != 0):
                raise Failure(f"{program} with {most} file descriptors: exit {process.returncode}: {out[-2000:]}")
            t.notes.append(f"{program} with {most}: exit {process.returncode}")


@fault(17, "a ps that may start no more threads is killed and comes back, and the model is the same", once=True)
def threads_of_ps(t):
    """RLIMIT_NPROC binds nobody with root's capabilities; so few that the kill matters more than the limit."""
    if os.geteuid() == 0:
        raise Skip("the limit of threads does not bind root; needs another user")
    t.identical(kill_at(["ps-0"], 300), prefix={"ps-0": ["prlimit", "--nproc=64"]})
