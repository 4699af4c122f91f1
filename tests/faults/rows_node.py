"""Rows 19 and 20: what a node may lose besides its life."""
import secrets
import subprocess
import time

from cluster import BIN, Failure, Skip
from harness import LOGGED, fault

LONG = ["train.epochs=18"]
LONGER = ["train.epochs=36"]
END = "-----END CERTIFICATE-----\n"


@fault(19, "the worker's card fails: it ends with a code that says start me again, and the job goes on as after its death",
       once=True)
def lost_gpu(t):
    """An error of the card, injected; without one on an emulated card (cuda/stream.h), whose errors take the same way."""
    listed = subprocess.run([str(BIN / "tessera"), "devices"], capture_output=True, text=True, timeout=60)
    device = "cuda" if listed.returncode == 0 else "emulated"
    t.notes.append(f"device {device}")

    def disturb(cluster, job_id):
        code = cluster.await_death("worker-0")
        if code != 128:
            raise Failure(f"the worker whose card fails ended with {code}, expected 128; its log: {cluster.log('worker-0')[-500:]}")
        if "the device is lost" not in cluster.log("worker-0"):
            raise Failure("its log does not say that the device is lost")
        del cluster.environment["worker-0"]
        cluster.start("worker-0")
    t.counted(disturb, most_restarts=0, takeovers=1, flags={"worker": ["--device", device]},
              environment={"worker-0": {"TESSERA_FAILPOINTS": "worker.device.work=error@250"}})


def servers(cluster):
    return [name for name in cluster.commands if name.startswith(("master", "ps-"))]


def exchange_certificates(cluster):
    """A new authority takes the old one's place, in the order that an operator is told."""
    before = {name: cluster.shown_certificate(name) for name in servers(cluster)}
    cluster.fault("a new authority, certificate and key")
    cluster.make_certificates("--new-ca")
    deadline = time.monotonic() + 20
    while any(cluster.shown_certificate(name) == old for name, old in before.items()):
        if time.monotonic() > deadline:
            raise Failure("servers show the old certificate 20 s after there is a new one")
        time.sleep(0.1)
    authorities = cluster.certificates / "ca.crt"
    newest, old = [part + END for part in authorities.read_text().split(END) if part.strip()]
    replace(authorities, newest)
    if old.strip() == newest.strip():
        raise Failure("--new-ca made no new authority")


def exchange_token(cluster, job_id):
    token = cluster.certificates / "token"
    old, new = token.read_text().strip(), secrets.token_hex(32)
    for lines in ((old, new), (new, old), (new,)):
        cluster.fault(f"{len(lines)} token(s)")
        replace(token, "\n".join(lines) + "\n")
        cluster.watch(job_id, 2.5)  # each process looks at it once a second
    return old


def replace(path, text):
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


@fault(20, "certificates, their authority and the token are exchanged while it trains, and no step is dropped", once=True,
       short=True)
def certificates(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 100)
        exchange_certificates(cluster)
        exchange_token(cluster, job_id)
    t.identical(disturb, sets=LONG, most_restarts=0, most_takeovers=0, tls=True)


@fault(20, "processes that die come back with the certificates and the token that have taken the others' place", once=True)
def certificates_and_kills(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 100)
        exchange_certificates(cluster)
        old = exchange_token(cluster, job_id)
        for name in ("worker-0", "ps-1", "master"):
            cluster.restart(name)
            cluster.watch(job_id, 2)
        replace(cluster.certificates / "old", old + "\n")
        code, _, error = cluster.run("list", "--master", cluster.master, "--token-file", cluster.certificates / "old")
        if code != 1 or "none of those that count here" not in error:
            raise Failure(f"the old token: exit {code}, {error.strip()}; expected to be refused")
    t.identical(disturb, sets=[*LONGER, *LOGGED], most_restarts=0, takeovers=1, tls=True)
