"""Runs the containers of the manifests as processes of this machine: the very command, arguments, environment and probes, with
names, ports and paths of this machine in place of the cluster's."""
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

from manifests import ROOT, container_of, of_kind, pod_of

sys.path.insert(0, str(ROOT / "tests" / "faults"))
from cluster import free_port  # noqa: E402


class Node:
    """A folder in place of the cluster's volumes, and all pods that run. What it starts it ends."""

    def __init__(self, folder, binaries, documents, server_name):
        self.folder, self.binaries, self.documents = pathlib.Path(folder), binaries, documents
        self.pods = {}
        self.certificates = self.folder / "certificates"
        subprocess.run([ROOT / "deploy" / "make-certificates", self.certificates, server_name], check=True, timeout=60,
                       stdout=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for pod in self.pods.values():
            pod.kill()

    def workload(self, kind, name):
        return of_kind(self.documents, kind)[name]

    def create(self, workload, suffix, **labels):
        pod = Pod(self, workload, f"{workload['metadata']['name']}-{suffix}", labels)
        assert pod.name not in self.pods, pod.name
        self.pods[pod.name] = pod
        return pod

    def create_sets(self):
        """Of every StatefulSet as many pods as it is to have; none is started yet."""
        sets = of_kind(self.documents, "StatefulSet").values()
        return [self.create(s, str(i)) for s in sets for i in range(s["spec"]["replicas"])]

    def lead(self, host, port, caller):
        """127.0.0.1:PORT of the pod that a name and port lead to, as DNS and Services say; None: nowhere."""
        services = of_kind(self.documents, "Service")
        if host in ("", "localhost", "127.0.0.1"):  # 127.0.0.1 is every pod's own address here
            own = caller.ports.get(port)
            return own and f"{host}:{own}"
        if host in services:
            spec = services[host]["spec"]
            (pod,) = [p for p in self.pods.values() if spec["selector"].items() <= p.labels.items()]
            (target,) = [p["targetPort"] for p in spec["ports"] if p["port"] == port]
            return f"127.0.0.1:{pod.ports[pod.port_names[target]]}"
        return None

    def host(self, name):
        """127.0.0.1 for POD.SERVICE where the service is the headless one of the pod's set; None: no such name."""
        first, _, rest = name.partition(".")
        pod, service = self.pods.get(first), of_kind(self.documents, "Service").get(rest)
        if pod is None or service is None or pod.workload["spec"].get("serviceName") != rest:
            return None
        return "127.0.0.1" if service["spec"].get("clusterIP") == "None" else None


class Pod:
    def __init__(self, node, workload, name, labels):
        self.node, self.workload, self.name = node, workload, name
        self.container = container_of(workload)
        self.labels = {**workload["spec"]["template"]["metadata"]["labels"], **labels}
        self.port_names = {p["name"]: p["containerPort"] for p in self.container.get("ports", [])}
        self.ports = {port: free_port() for port in self.port_names.values()}
        self.root = node.folder / "pods" / name  # the working folder: nothing may be written here
        self.root.mkdir(parents=True)
        self.mounts = {m["mountPath"]: self.volume(m["name"]) for m in self.container["volumeMounts"]}
        self.process = None

    def volume(self, name):
        if name in [t["metadata"]["name"] for t in self.workload["spec"].get("volumeClaimTemplates", [])]:
            folder = self.node.folder / "claims" / f"{name}-{self.name}"
        else:
            (volume,) = [v for v in pod_of(self.workload)["volumes"] if v["name"] == name]
            if "persistentVolumeClaim" in volume:
                folder = self.node.folder / "claims" / volume["persistentVolumeClaim"]["claimName"]
            else:
                folder = self.node.folder / "volumes" / f"{self.name}-{name}"
                folder.mkdir(parents=True)
            if "secret" in volume:
                files = [p.name for p in self.node.certificates.iterdir() if p.name != "ca.key"]
                for item in volume["secret"].get("items", [{"key": f, "path": f} for f in files]):
                    shutil.copy(self.node.certificates / item["key"], folder / item["path"])
            if "configMap" in volume:
                for file, text in self.node.workload("ConfigMap", volume["configMap"]["name"])["data"].items():
                    (folder / file).write_text(text)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def field(self, path):
        label = re.fullmatch(r"metadata\.labels\['(.*)'\]", path)
        return self.labels[label[1]] if label else {"metadata.name": self.name, "status.podIP": "127.0.0.1"}[path]

    def environment(self):
        given = {}
        for entry in self.container.get("env", []):
            value = entry["value"] if "value" in entry else self.field(entry["valueFrom"]["fieldRef"]["fieldPath"])
            given[entry["name"]] = self.local(value)
        # No temporary folder, as in an image that cannot be written.
        return {"PATH": f"{self.node.binaries}:/usr/bin:/bin", "TMPDIR": str(self.root / "none"), "HOME": str(self.root), **given}

    def expand(self, text):
        """$(NAME), as Kubernetes does in commands and arguments: what is no variable stays."""
        given = self.environment()
        return re.sub(r"\$\$|\$\(([^)]*)\)", lambda m: "$" if m[0] == "$$" else given.get(m[1], m[0]), text)

    def local(self, text):
        """What stands for names, ports and paths of the cluster on this machine."""
        for path, folder in self.mounts.items():
            text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?=/|\s|$|\")", str(folder), text)
        text = re.sub(r"\b[a-z0-9-]+\.[a-z0-9-]+\b(?![/\w.])", lambda m: self.node.host(m[0]) or m[0], text)

        def address(match):
            host, port = match[1], int(match[2])
            # The pod's own address by its variable: a shell puts it there.
            found = self.node.lead("" if host == "$POD_IP" else host, port, self)
            assert found is not None, f"{self.name}: {match[0]} leads nowhere"
            return host + found if host == "$POD_IP" else found

        return re.sub(r"((?:\$POD_IP|[\w.-]+)?):(\d+)\b", address, text)

    def command(self, *more):
        return [self.local(self.expand(w)) for w in self.container["command"] + self.container.get("args", [])] + list(more)

    def start(self, *more):
        with open(self.node.folder / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen(self.command(*more), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            cwd=self.root, env=self.environment())

    def end(self, seconds):
        """The exit code; raises when it runs on."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name}: no end after {seconds} s; its log: {self.log()}") from None

    def stop(self):
        self.process.terminate()
        return self.end(pod_of(self.workload).get("terminationGracePeriodSeconds", 30))

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def execute(self, *words, timeout=30):
        """As kubectl exec: the command in this pod's environment, its variables untouched."""
        return subprocess.run(list(words), cwd=self.root, env=self.environment(), stdin=subprocess.DEVNULL, timeout=timeout,
                              capture_output=True, text=True)

    def probe(self, kind):
        probe = self.container[kind]
        return self.execute(*map(self.local, probe["exec"]["command"]), timeout=probe["timeoutSeconds"])

    def connect(self, kind):
        """A probe by tcpSocket; raises when nobody listens."""
        probe = self.container[kind]
        port = self.ports[self.port_names[probe["tcpSocket"]["port"]]]
        socket.create_connection(("127.0.0.1", port), timeout=probe["timeoutSeconds"]).close()

    def await_ready(self, seconds):
        deadline = time.monotonic() + seconds
        while True:
            try:
                done = self.probe("readinessProbe")
                if done.returncode == 0:
                    return
                said = done.stderr
            except subprocess.TimeoutExpired as late:
                said = late
            assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}: {self.log()}"
            assert time.monotonic() < deadline, f"{self.name} is not ready: {said}; its log: {self.log()}"
            time.sleep(0.1)

    def log(self):
        return (self.node.folder / f"{self.name}.log").read_text(errors="replace")[-3000:]

    def written(self):
        """What it has left where the image is, which cannot be written on a cluster."""
        return [str(p.relative_to(self.root)) for p in self.root.rglob("*")]
