#!/usr/bin/env python3
"""The manifests of deploy/kubernetes are valid for Kubernetes and agree with each other and with their README.

Usage: tests/kubernetes/manifests_test.py FOLDER_OF_BINARIES
Exits with 77, which ctest calls skipped, where kubernetes-validate is not installed (deploy/install-dependencies --ci installs
it).
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from manifests import (FOLDER, VERSIONS, all_documents, amount, container_of, documents, flags, kubernetes_validate, kustomized,
                       of_kind, pod_of, workloads, yaml)

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
DOCUMENTS = all_documents()
GPU = kustomized(FOLDER / "gpu")
WORKLOADS = workloads(DOCUMENTS)
README = (FOLDER / "README.md").read_text()


def title(document):
    return f"{document['kind']} {document['metadata']['name']}"


class Manifests(unittest.TestCase):
    def test_every_document_is_valid(self):
        for document in DOCUMENTS + GPU:
            with self.subTest(title(document)):
                for version in VERSIONS:
                    kubernetes_validate.validate(document, version, strict=True)

    def test_every_file_is_used(self):
        named = {FOLDER / "cluster" / name for name in documents(FOLDER / "cluster" / "kustomization.yaml")[0]["resources"]}
        self.assertEqual(named, set((FOLDER / "cluster").glob("*.yaml")) - {FOLDER / "cluster" / "kustomization.yaml"})
        for path in (FOLDER / "jobs").glob("*.yaml"):
            self.assertIn(f"deploy/kubernetes/jobs/{path.name}", README)

    def test_names_are_of_one_document(self):
        titles = [title(d) for d in DOCUMENTS]
        self.assertEqual(sorted(set(titles)), sorted(titles))

    def test_kustomize_makes_the_same(self):
        if shutil.which("kubectl") is None:
            self.skipTest("no kubectl")
        for folder in ("cluster", "gpu"):
            with tempfile.TemporaryDirectory() as home:
                done = subprocess.run(["kubectl", "kustomize", str(FOLDER / folder)], capture_output=True, text=True, timeout=60,
                                      env={**os.environ, "HOME": home})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual({title(d): d for d in yaml.safe_load_all(done.stdout)}, {title(d): d for d in kustomized(FOLDER / folder)})

    def test_selectors_find_their_pods(self):
        def selected(selector):
            return [title(w) for w in WORKLOADS if selector.items() <= w["spec"]["template"]["metadata"]["labels"].items()]

        sets = list(of_kind(DOCUMENTS, "StatefulSet").values())
        for workload in sets:
            with self.subTest(title(workload)):
                self.assertEqual(selected(workload["spec"]["selector"]["matchLabels"]), [title(workload)])
                service = of_kind(DOCUMENTS, "Service")[workload["spec"]["serviceName"]]
                self.assertEqual(selected(service["spec"]["selector"]), [title(workload)])
                ports = {p["name"]: p["containerPort"] for p in container_of(workload)["ports"]}
                for port in service["spec"]["ports"]:
                    # A name without a cluster's address in front leads to the pod's own port.
                    self.assertEqual(ports[port["targetPort"]], port["port"])
                self.assertTrue(flags(container_of(workload))["listen"].endswith(f":{ports['grpc']}"))
        ps = of_kind(DOCUMENTS, "StatefulSet")["tessera-ps"]
        self.assertEqual(flags(container_of(ps))["advertise"], f"$(POD_NAME).{ps['spec']['serviceName']}")
        self.assertEqual(of_kind(DOCUMENTS, "Service")[ps["spec"]["serviceName"]]["spec"]["clusterIP"], "None")
        (budget,) = of_kind(DOCUMENTS, "PodDisruptionBudget").values()
        self.assertEqual(selected(budget["spec"]["selector"]["matchLabels"]), ["StatefulSet tessera-ps"])
        for workload in sets:
            for spread in pod_of(workload).get("topologySpreadConstraints", []):
                self.assertEqual(selected(spread["labelSelector"]["matchLabels"]), [title(workload)])

    def test_the_master_is_called_by_its_service(self):
        service = of_kind(DOCUMENTS, "Service")["tessera-master"]
        address = f"tessera-master:{service['spec']['ports'][0]['port']}"
        callers = [w for w in WORKLOADS if "master" in flags(container_of(w))]
        self.assertEqual(sorted(map(title, callers)), ["Job clicks", "StatefulSet tessera-ps", "StatefulSet tessera-worker"])
        for workload in callers:
            with self.subTest(title(workload)):
                self.assertEqual(flags(container_of(workload))["master"], address)

    def test_volumes_are_there_for_every_path(self):
        claims, maps = of_kind(DOCUMENTS, "PersistentVolumeClaim"), of_kind(DOCUMENTS, "ConfigMap")
        for workload in WORKLOADS:
            with self.subTest(title(workload)):
                container = container_of(workload)
                volumes = {v["name"]: v for v in pod_of(workload).get("volumes", [])}
                own = {t["metadata"]["name"] for t in workload["spec"].get("volumeClaimTemplates", [])}
                self.assertFalse(own & set(volumes))
                mounts = {m["mountPath"]: m for m in container["volumeMounts"]}
                self.assertEqual(len(mounts), len(container["volumeMounts"]))
                self.assertEqual({m["name"] for m in mounts.values()}, own | set(volumes))
                for volume in volumes.values():
                    if "persistentVolumeClaim" in volume:
                        claim = claims[volume["persistentVolumeClaim"]["claimName"]]
                        self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteMany"])
                    if "configMap" in volume:
                        self.assertIn(volume["configMap"]["name"], maps)
                probe = container.get("readinessProbe", {"exec": {"command": []}})["exec"]["command"]
                words = container.get("args", []) + [e["value"] for e in container.get("env", []) if "value" in e] + probe
                for path in re.findall(r"(?:^|[=\s\"])(/[\w./-]+)", "\n".join(words)):
                    root = "/" + path.split("/")[1]
                    self.assertIn(root, mounts, path)
                for flag, path in flags(container).items():
                    if flag in ("data-dir", "spill-dir", "checkpoint-root", "scratch-dir", "output-root", "out"):
                        self.assertFalse(mounts["/" + path.split("/")[1]].get("readOnly"), path)

    def test_the_secret_has_every_file(self):
        (command,) = re.findall(r"kubectl create secret generic (tessera-tls(?:[^\n]|\\\n)*)", README)
        made = {pathlib.Path(p).name for p in re.findall(r"--from-file=(\S+)", command)}
        self.assertEqual(made, {"ca.crt", "server.crt", "server.key", "token"})
        for workload in WORKLOADS:
            with self.subTest(title(workload)):
                for volume in pod_of(workload).get("volumes", []):
                    if "secret" not in volume:
                        continue
                    self.assertEqual(volume["secret"]["secretName"], "tessera-tls")
                    here = {i["path"] for i in volume["secret"].get("items", [{"path": name} for name in made])}
                    self.assertLessEqual({i["key"] for i in volume["secret"].get("items", [])}, made)
                    container = container_of(workload)
                    used = [*flags(container).values(), *(e.get("value", "") for e in container["env"])]
                    self.assertLessEqual({p.removeprefix("/tls/") for p in used if p.startswith("/tls/")}, here)

    def test_one_name_is_on_the_certificate(self):
        names = {flags(container_of(w)).get("tls-server-name") for w in WORKLOADS} - {None}
        names |= {e["value"] for w in WORKLOADS for e in container_of(w).get("env", []) if e["name"] == "TESSERA_TLS_SERVER_NAME"}
        (name,) = names
        (made,) = re.findall(r"^deploy/make-certificates \S+ (.*)", README, re.M)
        self.assertEqual(made, name)

    def test_pods_are_restricted(self):
        for workload in WORKLOADS:
            with self.subTest(title(workload)):
                pod, container = pod_of(workload), container_of(workload)
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertGreater(pod["securityContext"]["runAsUser"], 0)
                self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertEqual(container["securityContext"], {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                                                "capabilities": {"drop": ["ALL"]}})
                self.assertFalse(pod["automountServiceAccountToken"])

    def test_what_a_ps_may_take_is_there(self):
        workload = of_kind(DOCUMENTS, "StatefulSet")["tessera-ps"]
        container, given = container_of(workload), flags(container_of(workload))
        limit = amount(container["resources"]["limits"]["memory"])
        # 128 MiB: what a ps with a small budget was seen to have besides its rows.
        self.assertLess(amount(given["memory"]) + amount(given["checkpoint-copies"]) + 128 * 2**20, limit)
        volumes = {t["metadata"]["name"]: amount(t["spec"]["resources"]["requests"]["storage"])
                   for t in workload["spec"]["volumeClaimTemplates"]}
        self.assertLess(amount(given["log-bytes"]), volumes["state"])
        self.assertLess(amount(given["spill-bytes"]), volumes["spill"])
        self.assertGreaterEqual(pod_of(workload)["terminationGracePeriodSeconds"], float(given["leave-within"]) + 10)

    def test_threads_are_what_is_asked_for(self):
        for workload in WORKLOADS:
            with self.subTest(title(workload)):
                if "threads" in flags(container_of(workload)):
                    cpu = amount(container_of(workload)["resources"]["requests"]["cpu"])
                    self.assertEqual(float(flags(container_of(workload))["threads"]), cpu)

    def test_probes_end_in_their_time(self):
        for workload in of_kind(DOCUMENTS, "StatefulSet").values():
            with self.subTest(title(workload)):
                probe = container_of(workload)["readinessProbe"]
                wait = re.search(r"--wait=(\d+)", " ".join(probe["exec"]["command"]))[1]
                self.assertLess(int(wait), probe["timeoutSeconds"])

    def test_a_certificate_that_expires_has_no_pod_started_again(self):
        for workload in of_kind(DOCUMENTS, "StatefulSet").values():
            with self.subTest(title(workload)):
                container = container_of(workload)
                names = {p["name"] for p in container["ports"]}
                self.assertIn(container["livenessProbe"]["tcpSocket"]["port"], names)

    def test_the_job_asks_for_what_the_cluster_has(self):
        given = flags(container_of(of_kind(DOCUMENTS, "Job")["clicks"]))
        sets = of_kind(DOCUMENTS, "StatefulSet")
        self.assertEqual(int(given["ps"]), sets["tessera-ps"]["spec"]["replicas"])
        self.assertEqual(int(given["workers"]), sets["tessera-worker"]["spec"]["replicas"])
        self.assertEqual(sets["tessera-master"]["spec"]["replicas"], 1)

    def test_exit_codes_are_those_of_the_command(self):
        rules = of_kind(DOCUMENTS, "Job")["clicks"]["spec"]["podFailurePolicy"]["rules"]
        (given_up,) = [set(r["onExitCodes"]["values"]) for r in rules if r["action"] == "FailJob"]
        text = subprocess.run([BIN / "tessera", "--help"], capture_output=True, text=True, timeout=30, check=True).stdout
        codes = {int(c) for c in re.findall(r"^  (\d+) ", text.split("Exit codes:")[1], re.M)}
        # 4 is of comparisons; 5: a second pod finds the job, or that it must be sent again; 128 and above: the same command may
        # succeed later.
        self.assertEqual(given_up, {c for c in codes if 0 < c < 128} - {4, 5})

    def test_the_card_is_given_to_workers(self):
        worker = container_of(of_kind(GPU, "StatefulSet")["tessera-worker"])
        self.assertEqual(worker["resources"]["limits"]["nvidia.com/gpu"], 1)
        self.assertEqual(flags(worker)["device"], "cuda")
        # The flag is known: a build without CUDA, or a machine without a card, says so; else it would wait for its master.
        done = subprocess.run(["timeout", "5", BIN / "tessera-worker", "--master=127.0.0.1:1", "--device=cuda"],
                              capture_output=True, text=True, timeout=30)
        self.assertIn(done.returncode, (1, 124), done.stderr)
        if done.returncode == 1:
            self.assertRegex(done.stdout + done.stderr, "(?i)cuda")


if __name__ == "__main__":
    unittest.main()
