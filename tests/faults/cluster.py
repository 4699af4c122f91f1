"""A Tessera cluster of separate processes, for tests that disturb them."""
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import ssl
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build" / "release" / "bin"))


class Failure(Exception):
    """What a test found wrong; the message is for a person."""


class Skip(Exception):
    """Why a test cannot run on this machine or with this build."""


_given = set()


def free_port():
    """One that nobody has, was given before, or gets for a connection of its own: those are above 32767 (ip_local_port_range)."""
    while True:
        port = random.randrange(15000, 32768)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port


class Cluster:
    """1 master, `ps` parameter servers, `workers` workers and `spares` that a job does not ask for; each can be killed and
    started again on its address and folder. By the name of a process, or of its kind ("ps"), may be given: `prefix`, the
    words before its command, `environment`, and `flags`. `network` gives each process a host of its own (network.py).
    `standbys`: the state is in an etcd, and there are so many masters more. `tls`: all speak TLS and have a token."""

    def __init__(self, folder, data, ps=2, workers=2, spares=0, prefix=None, environment=None, flags=None, checkpoints=None,
                 folders=None, network=None, standbys=None, tls=False):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.prefix, self.environment, self.flags = prefix or {}, environment or {}, flags or {}
        self.network = network
        self.certificates = self.folder / "certificates" if tls else None
        if tls:
            self.make_certificates()
        self.checkpoints = pathlib.Path(checkpoints or self.folder / "checkpoints")
        self.data, self.folders = data, folders or {}
        names = [f"ps-{i}" for i in range(ps)] + [f"worker-{i}" for i in range(workers)] + [f"spare-{i}" for i in range(spares)]
        if network is not None:
            network.add(["master", *names])
        if standbys is None:
            self.master = self.address("master")
            self.commands = {"master": [BIN / "tessera-master", "--listen", self.master, "--data-dir", self.folder_of("master"),
                                        "--checkpoint-root", self.checkpoints, *self.insecure(), *self.security()]}
        else:
            self.add_masters(["master", *(f"standby-{i}" for i in range(standbys))])
        for name in names:
            if name.startswith("ps-"):
                self.commands[name] = [BIN / "tessera-ps", "--listen", self.address(name), "--master", self.master, "--name",
                                       name, "--data-dir", self.folder_of(name), "--checkpoint-root", self.checkpoints,
                                       *self.insecure(), *self.security()]
            else:
                self.commands[name] = [BIN / "tessera-worker", "--master", self.master, "--name", name, "--data-root", data,
                                       "--scratch-dir", self.folder_of(name),
                                       *self.security(serves="--listen" in (self.of(self.flags, name) or []))]
        self.processes = {}
        self.faults = []  # (moment, what)
        self.seen = []    # (moment, steps) as describe() told them
        self.resident = {}  # by kind: the largest process, in bytes

    def add_masters(self, names):
        """Several over one etcd, which is a process of the cluster, too."""
        if shutil.which("etcd") is None:
            raise Skip("no etcd")
        here, peers = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.commands = {"etcd": ["etcd", "--data-dir", self.folder_of("etcd"), "--listen-client-urls", f"http://{here}",
                                  "--advertise-client-urls", f"http://{here}", "--listen-peer-urls", f"http://{peers}",
                                  "--initial-advertise-peer-urls", f"http://{peers}",
                                  "--initial-cluster", f"default=http://{peers}"]}
        addresses = {name: self.address(name) for name in names}
        self.master = ",".join(addresses.values())
        for name, address in addresses.items():
            self.commands[name] = [BIN / "tessera-master", "--listen", address, "--etcd", here, "--cluster", "faults",
                                   "--checkpoint-root", self.checkpoints, "--lease-seconds", 5]

    def leader(self):
        """The name of the master that serves."""
        serving = [name for name in self.commands if name.startswith(("master", "standby")) and
                   self.processes[name].poll() is None and "serving at" in self.log(name)]
        if len(serving) != 1:
            raise Failure(f"of the masters {serving} serve, expected one")
        return serving[0]

    def folder_of(self, name):
        return self.folders.get(name, self.folder / name)

    def address(self, name):
        return f"{self.network.ip(name) if self.network else '127.0.0.1'}:{free_port()}"

    def insecure(self):
        return ["--insecure"] if self.network else []

    def make_certificates(self, *arguments):
        done = subprocess.run([str(ROOT / "deploy" / "make-certificates"), str(self.certificates), *arguments],
                              capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise Failure(f"make-certificates: {done.stderr.strip()}")

    def security(self, serves=True):
        if self.certificates is None:
            return []
        own = ["--tls-certificate", self.certificates / "server.crt", "--tls-key", self.certificates / "server.key"]
        return ["--tls-ca", self.certificates / "ca.crt", "--token-file", self.certificates / "token", *(own if serves else ())]

    def shown_certificate(self, name):
        """What a server shows who connects to it now."""
        command = [str(word) for word in self.commands[name]]
        host, port = command[command.index("--listen") + 1].rsplit(":", 1)
        return ssl.get_server_certificate((host, int(port)), timeout=10)

    def __enter__(self):
        for name in self.commands:
            if not name.startswith("spare-"):
                self.start(name)
        return self

    def __exit__(self, *unused):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
        for process in self.processes.values():
            process.wait()

    def of(self, table, name):
        """What a table says of a process: by its name, else by its kind."""
        return table.get(name, table.get(name.rstrip("0123456789-")))

    def start(self, name):
        flags = [*(self.of(self.flags, name) or [])]
        if self.network is not None and "127.0.0.1:0" in flags:  # where others do not reach it
            flags = [f"{self.network.ip(name)}:0" if flag == "127.0.0.1:0" else flag for flag in flags] + self.insecure()
        command = [*(self.of(self.prefix, name) or []), *self.commands[name], *flags]
        if self.network is not None:
            command = self.network.command(name) + command
        environment = {**os.environ, **(self.of(self.environment, name) or {})}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen([str(a) for a in command], stdin=subprocess.DEVNULL, stdout=log,
                                                    stderr=log, env=environment)

    def start_spares(self, job_id):
        """Once the job has its workers, so that nobody else is its spare."""
        spares = [n for n in self.commands if n.startswith("spare-")]
        if spares:
            self.wait(job_id, lambda s: s["state"] == "Running", what="its start")
        for name in spares:
            self.start(name)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_for_log(self, text, *names, seconds=30):
        """Until one of them has it in its log."""
        deadline = time.monotonic() + seconds
        while not any(text in self.log(name) for name in names):
            if time.monotonic() > deadline:
                raise Failure(f"none of {names} has logged \"{text}\" within {seconds} s")
            time.sleep(0.1)

    # ---- faults -----------------------------------------------------------------------------------------------------------

    def fault(self, what):
        """Notes that one happens now; its recovery time is that of the longest standstill until the next one."""
        self.faults.append((time.monotonic(), what))

    def check_faults(self):
        """Of a schedule that the job may be too quick for."""
        if not self.faults:
            raise Failure("the job ended before anything happened to it")

    def send(self, name, number):
        self.processes[name].send_signal(number)

    def kill(self, name):
        self.fault(f"kill -9 {name}")
        self.send(name, signal.SIGKILL)
        self.processes[name].wait()

    def restart(self, *names):
        """kill -9 of all, then all are started again."""
        for name in names:
            self.kill(name)
        for name in names:
            self.start(name)

    def pause(self, name):
        """SIGSTOP: the process hangs, its connections stay."""
        self.fault(f"SIGSTOP {name}")
        self.send(name, signal.SIGSTOP)

    def go_on(self, name):
        self.send(name, signal.SIGCONT)

    def stop(self, name, timeout=30):
        """SIGTERM; returns the exit code."""
        self.fault(f"SIGTERM {name}")
        self.send(name, signal.SIGTERM)
        return self.processes[name].wait(timeout)

    def await_death(self, name, timeout=60):
        """Of a process that is to end by itself; returns its exit code."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.processes[name].poll() is not None:
                self.fault(f"{name} ended by itself")
                return self.processes[name].returncode
            time.sleep(0.02)
        return None

    def check_alive(self):
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise Failure(f"{name} ended, exit code {process.returncode}")

    # ---- the command ------------------------------------------------------------------------------------------------------

    def run(self, *arguments, timeout=60):
        """Runs the command, returns (exit code, stdout, stderr)."""
        command = [str(BIN / "tessera"), *map(str, arguments)]
        if self.network is not None:
            command = self.network.command(None) + command
        environment = dict(os.environ)
        if self.certificates is not None:
            environment.update(TESSERA_TLS_CA=str(self.certificates / "ca.crt"),
                               TESSERA_TOKEN_FILE=str(self.certificates / "token"))
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                              env=environment)
        return done.returncode, done.stdout, done.stderr

    def tessera(self, *arguments, timeout=60):
        """Runs the command against this master, returns what it printed."""
        code, out, error = self.run(*arguments, "--master", self.master, timeout=timeout)
        if code != 0:
            raise Failure(f"tessera {' '.join(map(str, arguments))}: exit {code}: {error.strip()}")
        return out

    def submit(self, job, *sets, ps=None):
        arguments = ["submit", job, "--output", "json", "--ps", ps or sum(n.startswith("ps-") for n in self.commands),
                     "--workers", sum(n.startswith("worker-") for n in self.commands)]
        for value in sets:
            arguments += ["--set", value]
        return json.loads(self.tessera(*arguments))["job_id"]

    def describe(self, job_id):
        status = json.loads(self.tessera("describe", job_id, "--output", "json", timeout=20))
        self.seen.append((time.monotonic(), status["steps"]))
        for node in status["nodes"]:
            self.resident[node["kind"]] = max(self.resident.get(node["kind"], 0), node["resident_bytes"])
        return status

    def wait(self, job_id, until, timeout=180, what="the condition", every=0.1):
        """Polls until until(status); raises with the last status when the time is up, or when the job has failed."""
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
            time.sleep(every)
        raise Failure(f"{job_id}: {what} not reached in {timeout} s; last: {json.dumps(status)[:3000]}")

    def wait_for_step(self, job_id, step):
        """The job is to be there before it ends."""
        status = self.wait(job_id, lambda s: s["steps"] >= step or s["state"] == "Succeeded", what=f"step {step}")
        if status["state"] == "Succeeded":
            raise Failure(f"the job ended before the fault of step {step}")
        return status

    def wait_for_end(self, job_id, timeout=300):
        return self.wait(job_id, lambda s: s["state"] == "Succeeded", timeout, what="its end")

    def wait_for_event(self, job_id, text, timeout=60):
        """An event whose message holds the text, whatever the case; returns the message."""
        def found(status):
            return any(text.lower() in e["message"].lower() for e in status["events"])
        status = self.wait(job_id, found, timeout, f"an event of \"{text}\"")
        return next(e["message"] for e in status["events"] if text.lower() in e["message"].lower())

    def watch(self, job_id, seconds):
        """Lets time pass; what is seen on the way counts for the recovery times. True: the job has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if self.describe(job_id)["state"] in ("Succeeded", "Failed"):
                    return True
            except (Failure, subprocess.TimeoutExpired):
                pass
            time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))
        return False

    def recoveries(self):
        """[(fault, seconds)]: the longest time after it, until the next one, without a step that was not done before."""
        result = []
        for i, (moment, what) in enumerate(self.faults):
            until = self.faults[i + 1][0] if i + 1 < len(self.faults) else float("inf")
            best = max([s for m, s in self.seen if m <= moment], default=0)
            last, longest = moment, 0.0
            for m, steps in self.seen:
                if m <= moment or m > until:
                    continue
                longest = max(longest, m - last)
                if steps > best:
                    best, last = steps, m
            result.append((what, round(longest, 2)))
        return result


def training_share(seen):
    """Of the time from the first step to the last as describe() told them: the share without gaps of more than a second in
    which no step was done that had not been done before."""
    moments, best = [], 0
    for moment, steps in seen:
        if steps > best:
            moments.append(moment)
            best = steps
    if len(moments) < 2:
        return None
    gaps = [b - a for a, b in zip(moments, moments[1:])]
    return sum(g for g in gaps if g <= 1) / sum(gaps)


def digest(folder):
    done = subprocess.run([str(BIN / "tessera"), "checkpoint", "digest", str(folder)], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise Failure(f"digest of {folder}: {done.stderr.strip()}")
    return done.stdout.split()[0]


def generate_data(folder, samples):
    subprocess.run([str(BIN / "tessera"), "data", "generate", "--out", str(folder), "--samples", str(samples)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
