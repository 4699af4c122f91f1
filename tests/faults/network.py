"""A network of its own for each process of a cluster: network namespaces on one bridge, whose links can be cut. Needs root."""
import itertools
import os
import shutil
import subprocess

from cluster import Failure, Skip

NUMBERS = itertools.count()


def ip(*arguments):
    done = subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise Skip(f"ip {' '.join(map(str, arguments))}: {done.stderr.strip()}")


class Network:
    def __init__(self):
        if os.geteuid() != 0:
            raise Skip("network namespaces need root")
        if shutil.which("ip") is None:
            raise Skip("no ip command (iproute2)")
        self.prefix = f"tessera-{os.getpid()}-{next(NUMBERS)}"
        self.hub = f"{self.prefix}-hub"
        self.hosts = {}

    def __enter__(self):
        ip("netns", "add", self.hub)
        ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.hub, "addr", "add", "10.77.0.254/24", "dev", "bridge")
        for device in ("bridge", "lo"):
            ip("-n", self.hub, "link", "set", device, "up")
        return self

    def __exit__(self, *unused):
        for name in [*self.hosts, "hub"]:
            subprocess.run(["ip", "netns", "del", f"{self.prefix}-{name}"], capture_output=True, timeout=30)

    def add(self, names):
        for name in names:
            number = len(self.hosts) + 1
            self.hosts[name] = number
            host = f"{self.prefix}-{name}"
            ip("netns", "add", host)
            ip("link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", f"to{number}", "netns", self.hub)
            ip("-n", self.hub, "link", "set", f"to{number}", "master", "bridge", "up")
            ip("-n", host, "addr", "add", f"{self.ip(name)}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", host, "link", "set", device, "up")

    def ip(self, name):
        return f"10.77.0.{self.hosts[name]}"

    def command(self, name):
        """Words before a command that runs on a host (None: beside all of them)."""
        return ["ip", "netns", "exec", self.hub if name is None else f"{self.prefix}-{name}"]

    @staticmethod
    def change(*arguments):
        """Of a network that a cluster has: what does not work now is no lack of the machine's."""
        try:
            ip(*arguments)
        except Skip as problem:
            raise Failure(str(problem)) from problem

    def check_cut(self, sender, receiver):
        """Nothing that sender (None: the bridge) sends gets to receiver, who would answer that nobody listens there."""
        probe = [*self.command(sender), "timeout", "0.5", "bash", "-c", f": </dev/tcp/{self.ip(receiver)}/9"]
        done = subprocess.run(probe, capture_output=True, text=True, timeout=30, env={**os.environ, "LC_ALL": "C"})
        if done.returncode == 0 or "refused" in done.stderr:
            raise Failure(f"what {sender or 'the bridge'} sends still gets to {receiver}: the cut had no effect")

    def cut(self, name):
        """Nothing reaches the host nor leaves it, and nobody is told."""
        self.change("-n", self.hub, "link", "set", f"to{self.hosts[name]}", "down")
        self.check_cut(None, name)

    def heal(self, name):
        self.change("-n", self.hub, "link", "set", f"to{self.hosts[name]}", "up")

    def mute(self, sender, receiver):
        """One way: what sender sends to receiver goes to a machine that is not there."""
        self.change("-n", f"{self.prefix}-{sender}", "neigh", "replace", self.ip(receiver), "lladdr", "02:00:00:00:00:99",
                    "dev", "eth0", "nud", "permanent")
        self.check_cut(sender, receiver)

    def unmute(self, sender, receiver):
        self.change("-n", f"{self.prefix}-{sender}", "neigh", "del", self.ip(receiver), "dev", "eth0")
