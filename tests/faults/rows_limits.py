"""Rows 13 and 17: memory, file descriptors and threads that run out."""
import os
import pathlib
import resource

from cluster import BIN, Failure, Skip
from harness import LOGGED, fault
from schedules import kill_at

import shutil
import subprocess
import time

MIB = 1 << 20
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class MemoryGroup:
    """A memory cgroup, of version 1 or 2. Needs root."""

    def __init__(self, name, limit):
        self.limit = limit
        if (CGROUPS / "cgroup.controllers").exists():
            self.folder, self.max, self.peak = CGROUPS / name, "memory.max", "memory.peak"
        else:
            self.folder, self.max, self.peak = CGROUPS / "memory" / name, "memory.limit_in_bytes", "memory.max_usage_in_bytes"

    def __enter__(self):
        try:
            self.folder.mkdir()
            (self.folder / self.max).write_text(str(self.limit))
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

    def peak_bytes(self):
        return int((self.folder / self.peak).read_text())


# ---- row 13: memory -------------------------------------------------------------------------------------------------------

WIDE = ["tables.embedding.dim=256"]


@fault(13, "a ps whose rows are larger than its budget spills, and stays below its memory limit", once=True)
def budget(t):
    """The kernel would kill a ps that went beyond the limit, and the job would return to a checkpoint."""
    limit = 160 * MIB

    def disturb(cluster, job_id):
        cluster.fault(f"rows of ps-0 have 16 MiB, the process {limit // MIB} MiB")
        cluster.wait_for_end(job_id)
        spilled = sum(f.stat().st_size for f in (t.folder / "spill").rglob("*.sst"))
        t.notes.append(f"peak of ps-0 with its page cache {group.peak_bytes() // MIB} MiB, {spilled // MIB} MiB spilled")
        if spilled < 16 * MIB:
            raise Failure(f"{spilled} bytes were spilled: the budget was no limit")
    with MemoryGroup(f"tessera-faults-{os.getpid()}", limit) as group:
        t.identical(disturb, sets=WIDE, most_restarts=0, prefix={"ps-0": group.command()},
                    flags={"ps-0": ["--memory", "16MiB", "--spill-dir", t.folder / "spill"]}, timeout=500)


@fault(13, "a ps with a budget keeps its resident memory within bounds", short=True, once=True)
def resident_memory(t):
    peaks = []

    def disturb(cluster, job_id):
        cluster.fault("rows of each ps have 4 MiB")
        while True:
            status = cluster.wait(job_id, lambda s: True)
            peaks.extend(n["resident_bytes"] for n in status["nodes"] if n["kind"] == "ps")
            if cluster.watch(job_id, 0.3):
                break
        t.notes.append(f"largest resident size of a ps {max(peaks) // MIB} MiB")
        if max(peaks) > 120 * MIB:
            raise Failure(f"a ps of a budget of 4 MiB took {max(peaks) // MIB} MiB")
    t.identical(disturb, most_restarts=0, flags={"ps-0": ["--memory", "4MiB", "--spill-dir", t.folder / "spill-0"],
                                                 "ps-1": ["--memory", "4MiB", "--spill-dir", t.folder / "spill-1"]})


@fault(13, "the kernel kills a ps for its memory, and that is as any other death", once=True)
def killed_for_memory(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 300)
        cluster.fault("the memory limit of ps-0 is below what it has")
        (group.folder / group.max).write_text(str(6 * MIB))
        code = cluster.await_death("ps-0")
        if code != -9:
            raise Failure(f"ps-0: exit code {code}, expected death by the kernel")
        (group.folder / group.max).write_text(str(512 * MIB))
        cluster.start("ps-0")
    with MemoryGroup(f"tessera-faults-{os.getpid()}", 512 * MIB) as group:
        t.identical(disturb, sets=LOGGED, most_restarts=0, prefix={"ps-0": group.command()})


# ---- row 17: file descriptors and threads ---------------------------------------------------------------------------------

def limit_files(pid, most):
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))


@fault(17, "a ps runs out of file descriptors at a checkpoint: the status says so, and it goes on when it has some", short=True,
       once=True)
def files_of_ps(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 150)
        pid = cluster.processes["ps-0"].pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        cluster.fault("no file descriptors for ps-0")
        limit_files(pid, 8)
        event = cluster.wait_for_event(job_id, "Too many open files")
        t.notes.append(f"\"{event}\"")
        if cluster.processes["ps-0"].poll() is not None:
            raise Failure(f"ps-0 ended, exit code {cluster.processes['ps-0'].returncode}")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    t.identical(disturb, most_restarts=0)


@fault(17, "the master runs out of file descriptors for a while, and the model is the same", once=True)
def files_of_master(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 150)
        pid = cluster.processes["master"].pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        cluster.fault("no file descriptors for the master")
        limit_files(pid, 8)
        time.sleep(3)  # nobody can ask it meanwhile
        if cluster.processes["master"].poll() is not None:
            raise Failure(f"the master ended, exit code {cluster.processes['master'].returncode}")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    t.identical(disturb)


@fault(17, "processes that start with too few file descriptors say so and end, or work", once=True)
def files_at_start(t):
    """From far too few up: neither a crash by signal nor a hang beyond its time."""
    for most in (6, 9, 12, 16, 24):
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
            if process.returncode not in (0, 1, 128) or (process.returncode != 0 and " E " not in out):
                raise Failure(f"{program} with {most} file descriptors: exit {process.returncode}: {out[-2000:]}")
            t.notes.append(f"{program} with {most}: exit {process.returncode}")


@fault(17, "a ps that may start no more threads is killed and comes back, and the model is the same", once=True)
def threads_of_ps(t):
    """RLIMIT_NPROC binds nobody with root's capabilities; so few that the kill matters more than the limit."""
    if os.geteuid() == 0:
        raise Skip("the limit of threads does not bind root; needs another user")
    t.identical(kill_at(["ps-0"], 300), prefix={"ps-0": ["prlimit", "--nproc=64"]})
