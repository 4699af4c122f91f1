"""A Tessera cluster of separate processes on loopback, for tests that kill them."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build" / "release" / "bin"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Failure(Exception):
    """What a test found wrong; the message is for a person."""


class Cluster:
    """1 master, `ps` parameter servers, `workers` workers and `spares` that a job does not ask for; each can be killed and
    started again on its address and folder."""

    def __init__(self, folder, data, ps=2, workers=2, spares=0):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.master = f"127.0.0.1:{free_port()}"
        self.checkpoints = self.folder / "checkpoints"
        roots = ["--checkpoint-root", self.checkpoints]
        self.commands = {"master": [BIN / "tessera-master", "--listen", self.master, "--data-dir", self.folder / "master", *roots]}
        for i in range(ps):
            self.commands[f"ps-{i}"] = [
                BIN / "tessera-ps", "--listen", f"127.0.0.1:{free_port()}", "--master", self.master, "--name", f"ps-{i}",
                "--data-dir", self.folder / f"ps-{i}", *roots]
        for name in [f"worker-{i}" for i in range(workers)] + [f"spare-{i}" for i in range(spares)]:
            self.commands[name] = [BIN / "tessera-worker", "--master", self.master, "--name", name, "--data-root", data,
                                   "--scratch-dir", self.folder / name]
        self.processes = {}

    def __enter__(self):
        for name in self.commands:
            self.start(name)
        return self

    def __exit__(self, *unused):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
        for process in self.processes.values():
            process.wait()

    def start(self, name):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen([str(a) for a in self.commands[name]], stdin=subprocess.DEVNULL,
                                                    stdout=log, stderr=log)

    def send(self, name, number):
        self.processes[name].send_signal(number)

    def kill(self, name):
        self.send(name, signal.SIGKILL)
        self.processes[name].wait()

    def stop(self, name, timeout=30):
        """SIGTERM; returns the exit code."""
        self.send(name, signal.SIGTERM)
        return self.processes[name].wait(timeout)

    def tessera(self, *arguments, timeout=60):
        """Runs the command against this master, returns what it printed."""
        done = subprocess.run([str(BIN / "tessera"), *map(str, arguments), "--master", self.master], capture_output=True,
                              text=True, timeout=timeout, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise Failure(f"tessera {' '.join(map(str, arguments))}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def submit(self, job, *sets):
        arguments = ["submit", job, "--output", "json", "--ps", sum(n.startswith("ps-") for n in self.commands),
                     "--workers", sum(n.startswith("worker-") for n in self.commands)]
        for value in sets:
            arguments += ["--set", value]
        return json.loads(self.tessera(*arguments))["job_id"]

    def describe(self, job_id):
        return json.loads(self.tessera("describe", job_id, "--output", "json"))

    def wait(self, job_id, until, timeout=180, what="the condition"):
        """Polls until until(status); raises with the last status when the time is up."""
        deadline = time.monotonic() + timeout
        status = None
        while time.monotonic() < deadline:
            try:
                status = self.describe(job_id)
                if until(status):
                    return status
                if status["state"] == "Failed":
                    raise Failure(f"{job_id} failed: {status['reason']}: {status['message']}")
            except (Failure, subprocess.TimeoutExpired):
                if status is not None and status["state"] == "Failed":
                    raise
            time.sleep(0.1)
        raise Failure(f"{job_id}: {what} not reached in {timeout} s; last: {json.dumps(status)[:2000]}")

    def wait_for_step(self, job_id, step):
        return self.wait(job_id, lambda s: s["steps"] >= step or s["state"] == "Succeeded", what=f"step {step}")

    def wait_for_end(self, job_id, timeout=240):
        return self.wait(job_id, lambda s: s["state"] == "Succeeded", timeout, what="its end")


def digest(folder):
    done = subprocess.run([str(BIN / "tessera"), "checkpoint", "digest", str(folder)], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise Failure(f"digest of {folder}: {done.stderr.strip()}")
    return done.stdout.split()[0]


def generate_data(folder, samples):
    subprocess.run([str(BIN / "tessera"), "data", "generate", "--out", str(folder), "--samples", str(samples)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
