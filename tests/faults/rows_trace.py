"""Row 2 by an independent trace: who pushes writes down what was sent and what was acknowledged, and a ps that comes back must have
a prefix of it, without holes. No worker and no job of the master's: the calls are made here, from the pages of the protocol."""
import struct
import threading
import time

from cluster import Failure
from grpc_call import fields, float32, float64, number, text, unary
from harness import fault

RANKS = 4
SHARED = 7  # a key of every push
SERVICE = "/tessera.v1.ParameterService/"


def own_key(rank, sequence):
    """In this push alone."""
    return 1 << 62 | rank << 40 | sequence


def header(rank):
    return text(1, text(1, "trace-1") + number(2, 1) + number(3, rank) + number(4, 1) + number(5, 1))


def open_job(push_log, recover):
    """One table of one number a row, from 0, SGD with learning rate 1, async."""
    table = text(1, "counts") + number(2, 1) + text(3, text(1, b"")) + text(4, float32(1, 1.0) + text(3, b""))
    return (text(1, "trace-1") + number(2, 1) + number(3, 1) + number(4, RANKS) + text(5, text(1, table) + number(2, 2)) +
            number(6, 1) + text(7, bytes(range(4))) + number(8, 4) + number(12, push_log) + number(13, recover))


def push(rank, sequence):
    """Every key gets a gradient of -1, and so counts one up."""
    keys = struct.pack("<2Q", SHARED, own_key(rank, sequence))
    return header(rank) + number(2, sequence) + float64(3, 1.0) + text(4, text(2, keys) + text(3, struct.pack("<2f", -1, -1)))


def pull(address, keys):
    """{key: number}, creating nothing."""
    numbers = {}
    at_once = 1024  # a frame of HTTP/2 has at most 16 KiB
    for begin in range(0, len(keys), at_once):
        part = keys[begin:begin + at_once]
        request = header(0) + number(3, 1) + text(4, text(2, struct.pack(f"<{len(part)}Q", *part)))
        block = dict(fields(dict(fields(unary(address, SERVICE + "Pull", request)))[1]))
        numbers.update(zip(part, struct.unpack(f"<{len(part)}f", block[2])))
    return numbers


class Pusher(threading.Thread):
    """Pushes 0, 1, ... of one rank, each until it is acknowledged."""

    def __init__(self, address, rank):
        super().__init__(daemon=True)
        self.address, self.rank = address, rank
        self.sent = self.acknowledged = 0
        self.may_go, self.rests, self.ends = threading.Event(), threading.Event(), False

    def run(self):
        while not self.ends:
            if not self.may_go.is_set():
                self.rests.set()
                self.may_go.wait(0.1)
                continue
            self.sent = self.acknowledged + 1
            try:
                unary(self.address, SERVICE + "Push", push(self.rank, self.acknowledged), seconds=2)
                self.acknowledged += 1
            except OSError:
                time.sleep(0.01)

    def rest(self):
        self.may_go.clear()
        self.rests.clear()
        if not self.rests.wait(30):
            raise Failure(f"rank {self.rank} does not come to rest")

    def go(self):
        self.may_go.set()

    def await_more(self, than):
        """Until more than so many are acknowledged."""
        deadline = time.monotonic() + 30
        while self.acknowledged <= than:
            if time.monotonic() > deadline:
                raise Failure(f"rank {self.rank}: no push after {than} was acknowledged within 30 s")
            time.sleep(0.01)


def check_prefix(address, pushers):
    """How many pushes each rank has there: all that were acknowledged, at most all that were sent, none without those before."""
    counted = 0
    for p in pushers:
        rows = pull(address, [own_key(p.rank, s) for s in range(p.sent + 8)])
        there = [int(rows[own_key(p.rank, s)]) for s in range(p.sent + 8)]
        n = sum(there)
        if there != [1] * n + [0] * (len(there) - n):
            raise Failure(f"rank {p.rank}: of {p.sent} pushes there are {n}, with holes or twice: {there[-40:]}")
        if not p.acknowledged <= n <= p.sent:
            raise Failure(f"rank {p.rank}: {n} pushes are there, {p.acknowledged} were acknowledged and {p.sent} sent")
        counted += n
    shared = pull(address, [SHARED])[SHARED]
    if shared != counted:
        raise Failure(f"the key of every push counts {shared:.0f} of {counted} pushes")
    return counted


def traced(t, push_log):
    with t.cluster(ps=1, workers=0) as cluster:
        command = cluster.commands["ps-0"]
        address = command[command.index("--listen") + 1]

        def joined(times):
            deadline = time.monotonic() + 30
            while cluster.log("ps-0").count("joined the master") < times:
                if time.monotonic() > deadline:
                    raise Failure("ps-0 has not joined")
                time.sleep(0.02)
        joined(1)
        unary(address, SERVICE + "OpenJob", open_job(push_log, 0))
        pushers = [Pusher(address, rank) for rank in range(RANKS)]
        for p in pushers:
            p.start()
        kills = 6
        for kill in range(kills):
            before = [p.acknowledged for p in pushers]
            for p in pushers:
                p.go()
            time.sleep(t.draw.uniform(0.2, 1.5))
            for p, acknowledged in zip(pushers, before):
                p.await_more(acknowledged)
            cluster.kill("ps-0")
            for p in pushers:
                p.rest()
            cluster.start("ps-0")
            joined(kill + 2)
            unary(address, SERVICE + "OpenJob", open_job(push_log, 1), seconds=30)
            counted = check_prefix(address, pushers)
        for p in pushers:
            p.ends = True
            p.join()
        t.notes.append(f"{counted} pushes of {RANKS} ranks over {kills} kills; after each the ps had all that was acknowledged")


@fault(2, "what a ps has acknowledged is there after every kill, and of the rest a prefix, as a trace kept apart says")
def acknowledged_pushes(t):
    traced(t, push_log=2)


@fault(2, "what a ps has acknowledged with a synced push log is there after every kill, as a trace kept apart says")
def acknowledged_synced_pushes(t):
    traced(t, push_log=3)
