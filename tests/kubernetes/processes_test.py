#!/usr/bin/env python3
"""What the manifests of deploy/kubernetes start, as processes of this machine: the data is made, probes succeed, the Job submits
once and its job succeeds, all stop in their time.

Usage: tests/kubernetes/processes_test.py FOLDER_OF_BINARIES
Exits with 77, which ctest calls skipped, where kubernetes-validate is not installed (deploy/install-dependencies --ci installs
it).
"""
import copy
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

import manifests
from manifests import yaml
from pods import Node

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
UID = {"batch.kubernetes.io/job-name": "clicks", "batch.kubernetes.io/controller-uid": "0c1d2e3f-1111-2222-3333-444444444444"}
READY_SECONDS = 60
TRAINED_SECONDS = 120


def shrunken():
    """The documents, with a job of one epoch."""
    documents = copy.deepcopy(manifests.all_documents())
    files = manifests.of_kind(documents, "ConfigMap")["clicks"]["data"]
    job = yaml.safe_load(files["job.yaml"])
    job["train"]["epochs"] = 1
    files["job.yaml"] = yaml.safe_dump(job)
    return documents


class Processes(unittest.TestCase):
    def node(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-kubernetes-"))
        self.addCleanup(shutil.rmtree, folder)
        node = Node(folder, BIN, shrunken(), "tessera")
        self.addCleanup(node.__exit__)
        return node

    def tessera(self, pod, *arguments, code=0):
        """The command as the README calls it, by kubectl exec in the master's pod."""
        master = f"127.0.0.1:{pod.ports[7070]}"
        done = pod.execute("tessera", *arguments, *([] if arguments[0] == "checkpoint" else ["--master", master]))
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def test_the_cluster_trains_the_job_of_the_manifest(self):
        node = self.node()
        data = node.create(node.workload("Job", "click-data"), "x1")
        data.start("--samples", "4000")
        self.assertEqual(data.end(60), 0, data.log())

        # All at once, as kubectl apply does: everybody waits for whom he needs.
        pods = node.create_sets()
        submit = node.create(node.workload("Job", "clicks"), "x1", **UID)
        for pod in [submit, *reversed(pods)]:
            pod.start()
        for pod in pods:
            pod.await_ready(READY_SECONDS)
        self.assertEqual(submit.end(TRAINED_SECONDS), 0, submit.log())
        for pod in pods:
            pod.connect("livenessProbe")

        master = node.pods["tessera-master-0"]
        nodes = json.loads(self.tessera(master, "list", "--nodes", "--output=json"))["nodes"]
        self.assertEqual({n["name"] for n in nodes}, {p.name for p in pods} - {master.name})
        called = {f"127.0.0.1:{port}" for p in pods if p is not master for port in p.ports.values()}
        self.assertEqual({n["address"] for n in nodes}, called)
        checkpoints = node.folder / "claims" / "tessera-shared" / "checkpoints"
        self.assertIn("clicks-0c1d2e3f-1", self.tessera(master, "checkpoint", "list", str(checkpoints)))
        for folder in (checkpoints / "clicks-0c1d2e3f-1").glob("step-*"):
            self.tessera(master, "checkpoint", "verify", str(folder))

        # A second pod of the same Job finds what the first has submitted, and its end.
        again = node.create(node.workload("Job", "clicks"), "x2", **UID)
        again.start()
        self.assertEqual(again.end(30), 0, again.log())
        jobs = self.tessera(master, "list", "--output=json")
        self.assertEqual(json_values(json.loads(jobs), "job_id"), ["clicks-0c1d2e3f-1"])
        self.assertEqual(json_values(json.loads(jobs), "state"), ["Succeeded"])

        # A job that is wrong is not tried again.
        (again.mounts["/job"] / "job.yaml").write_text("name: clicks\nepochs: many\n")
        again.labels["batch.kubernetes.io/controller-uid"] = "99999999-1111"
        again.start()
        rules = again.workload["spec"]["podFailurePolicy"]["rules"]
        self.assertIn(again.end(30), [r["onExitCodes"]["values"] for r in rules if r["action"] == "FailJob"][0], again.log())

        for pod in reversed(pods):
            self.assertEqual(pod.stop(), 0, pod.log())
            self.assertNotEqual(pod.probe("readinessProbe").returncode, 0)
            with self.assertRaises(OSError):
                pod.connect("livenessProbe")
        for pod in node.pods.values():
            self.assertEqual(pod.written(), [], pod.name)


def json_values(value, key):
    """Of every object within that has the key, in order."""
    if isinstance(value, list):
        return [v for item in value for v in json_values(item, key)]
    if isinstance(value, dict):
        return ([value[key]] if key in value else []) + [v for item in value.values() for v in json_values(item, key)]
    return []


if __name__ == "__main__":
    unittest.main()
