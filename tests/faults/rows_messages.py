"""Row 16: bytes on the wire that no client of ours would send, to every method of every service."""
import re

import grpc_call
from cluster import ROOT, Failure
from harness import SERVING, fault

# Of each service, the processes that serve it.
SERVERS = {"JobService": ["master"], "ClusterService": ["master"], "WorkService": ["master"], "ParameterService": ["ps-0"],
           "RingService": ["worker-0"], "MetricsService": ["master", "ps-0", "worker-0"]}
# A stream whose first message is none is to it as one that says nothing, which is legal: of a unit without good records.
MAY_SAY_NOTHING = {"WorkService/ReportScores"}


def methods():
    """["JobService/Submit", ...] of all services, from their pages."""
    found = []
    for page in sorted((ROOT / "proto").rglob("*.proto")):
        for service, body in re.findall(r"^service (\w+) \{$(.*?)^\}$", page.read_text(), re.DOTALL | re.MULTILINE):
            found += [f"{service}/{name}" for name in re.findall(r"^  rpc (\w+)\(", body, re.MULTILINE)]
    return found


def nonsense(draw):
    return draw.randbytes(draw.choice((0, 1, 7, 100, 5000)))


def broken_messages(draw, job_id):
    """[(what, payload, raw)], none of which any message's parser may take."""
    no_wire_type = bytes([draw.randrange(1, 16) << 3 | draw.choice((6, 7))])
    header = grpc_call.text(1, grpc_call.text(1, job_id) + grpc_call.number(2, 1))
    field = grpc_call.varint(draw.randrange(1, 16) << 3 | 2)
    return [("a field of no type", no_wire_type + nonsense(draw), False),
            ("a header that names the job, and a field of no type", header + no_wire_type + nonsense(draw), False),
            ("a length that lies", field + grpc_call.varint(1 << draw.randrange(13, 63)) + nonsense(draw), False),
            ("a number without an end", bytes([draw.randrange(1, 16) << 3]) + b"\xff" * 11, False),
            ("a frame that is cut off", b"\x00" + (1 << draw.randrange(13, 32)).to_bytes(4, "big") + nonsense(draw), True)]


def legal_nonsense(draw, job_id):
    """What a parser may take, and nobody may act on."""
    header = grpc_call.text(1, grpc_call.text(1, job_id) + grpc_call.number(2, 1))
    return [nonsense(draw), header + nonsense(draw)]


@fault(16, "bytes that are no messages are refused by every method, and change nothing")
def garbage_messages(t):
    """Sent to all processes while a job trains, whose model must be the undisturbed run's."""
    def disturb(cluster, job_id):
        status = cluster.wait_for_step(job_id, 150)
        addresses = {node["name"]: node["address"] for node in status["nodes"]}
        addresses["master"] = cluster.master
        calls = [(method, addresses[name]) for method in methods() for name in SERVERS[method.split("/")[0]]]
        sent = 0
        for method, address in calls:
            for what, payload, raw in broken_messages(t.draw, job_id):
                answer = grpc_call.status(address, f"/tessera.v1.{method}", payload, raw=raw)
                if answer == 0 and method not in MAY_SAY_NOTHING:
                    raise Failure(f"{method} has taken {what}: {payload[:100]!r}")
                sent += 1
            for payload in legal_nonsense(t.draw, job_id):
                # Answers that do not come are those of streams; they need no waiting.
                grpc_call.call(address, f"/tessera.v1.{method}", payload, seconds=0.3)
                sent += 1
        cluster.check_alive()
        t.notes.append(f"{sent} messages to {len(calls)} methods")
    t.identical(disturb, sets=["train.epochs=8"], flags=SERVING, most_restarts=0, most_takeovers=0)
