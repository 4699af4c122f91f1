"""Reads one key again and again, as a client that is no worker sees it: how long it is without an answer. Made from the pages of the
protocol (grpc_call.py); it creates nothing."""
import struct
import threading
import time

from grpc_call import fields, number, text, unary

# Between two reads: each is a connection of its own, and costs more than what it measures.
REST = 0.04
# Who only sleeps, and is woken later than this, was on a machine that stood still.
LATE = 0.02
# No worker's, so that no incarnation of it is looked for.
NO_RANK = 1 << 20


def read_request(job_id, generation, key):
    """The map's version is the generation's number."""
    header = text(1, job_id) + number(2, generation) + number(3, NO_RANK) + number(5, generation)
    return text(1, header) + number(3, 1) + text(4, text(2, struct.pack("<Q", key)))


class MachineWatch(threading.Thread):
    """When the whole machine stood still, as while it frees gigabytes of a disk: nobody can answer then."""
    REST = 0.005

    def __init__(self):
        super().__init__(daemon=True)
        self.woken = time.monotonic()
        self.gaps = []  # (begin, end)
        self.ends = False

    def run(self):
        while not self.ends:
            time.sleep(self.REST)
            now = time.monotonic()
            if now - self.woken - self.REST > LATE:
                self.gaps.append((self.woken + self.REST, now))
            self.woken = now

    def stood(self, begin, end):
        """Seconds between two moments."""
        gaps = [*self.gaps]
        if end - self.woken - self.REST > LATE:  # it has not been woken yet
            gaps.append((self.woken + self.REST, end))
        return sum(max(0.0, min(end, b) - max(begin, a)) for a, b in gaps)

    def take_longest(self):
        """Of the gaps since the last call, in seconds."""
        longest = max((b - a for a, b in self.gaps), default=0.0)
        self.gaps = []
        return longest


class KeyReader(threading.Thread):
    """Reads `key` from whichever ps has it, also when another one has it with the next generation."""

    def __init__(self, addresses, job_id, generation, key, watch):
        super().__init__(daemon=True)
        self.watch = watch
        self.addresses, self.job_id, self.generation, self.key = list(addresses), job_id, generation, key
        self.owners = []     # addresses, in the order in which they had it
        self.answered = None  # when the last answer came
        self.longest, self.ends = 0.0, False

    def run(self):
        while not self.ends:
            if self.read():
                time.sleep(REST)

    def read(self):
        """Whoever had it last is asked first."""
        for generation in (self.generation, self.generation + 1):
            for address in sorted(self.addresses, key=lambda a: a not in self.owners[-1:]):
                try:
                    answer = unary(address, "/tessera.v1.ParameterService/Pull",
                                   read_request(self.job_id, generation, self.key), seconds=2)
                except OSError:
                    continue
                if not fields(answer):
                    continue
                self.note(address, generation)
                return True
        return False

    def note(self, address, generation):
        now = time.monotonic()
        if self.answered is not None:
            self.longest = max(self.longest, self.waited(now))
        self.answered, self.generation = now, generation
        if self.owners[-1:] != [address]:
            self.owners.append(address)

    def waited(self, now):
        """Since the last answer, without the time in which the machine stood still."""
        return now - self.answered - self.watch.stood(self.answered, now)

    def take_longest(self):
        """The longest time between two answers since the last call, in seconds, that without one now included."""
        since = 0.0 if self.answered is None else self.waited(time.monotonic())
        longest, self.longest = max(self.longest, since), 0.0
        return longest
