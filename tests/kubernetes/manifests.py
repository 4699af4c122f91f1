"""Reads deploy/kubernetes: documents, and what kustomize would make of them, as far as these manifests ask."""
import copy
import pathlib
import re
import sys

try:
    import kubernetes_validate
    import yaml
except ImportError as missing:
    print(f"skipped: {missing}; deploy/install-dependencies --ci installs it")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy" / "kubernetes"
VERSIONS = ["1.31", kubernetes_validate.latest_version()]  # podFailurePolicy is stable from 1.31 on
UNITS = {"": 1, "m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
         "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


class Strict(yaml.SafeLoader):
    """A key that stands twice is an error, as it is for the API."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        twice = {str(key) for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"twice: {', '.join(twice)}", node.start_mark)
        return super().construct_mapping(node, deep)


def documents(path):
    return [d for d in yaml.load_all(path.read_text(), Loader=Strict) if d is not None]


def patched(document, operations):
    """JSON Patch (RFC 6902), add and replace."""
    document = copy.deepcopy(document)
    for operation in operations:
        *way, last = [w.replace("~1", "/").replace("~0", "~") for w in operation["path"].split("/")[1:]]
        at = document
        for word in way:
            at = at[int(word) if isinstance(at, list) else word]
        if operation["op"] == "replace":
            key = int(last) if isinstance(at, list) else last
            at[key]  # must be there
            at[key] = operation["value"]
        elif isinstance(at, list):
            at.insert(len(at) if last == "-" else int(last), operation["value"])
        else:
            at[last] = operation["value"]
    return document


def kustomized(folder):
    """The documents of a folder with a kustomization.yaml: resources, images without another name, JSON patches."""
    (kustomization,) = documents(folder / "kustomization.yaml")
    unknown = set(kustomization) - {"apiVersion", "kind", "resources", "images", "patches"}
    assert not unknown, f"{folder}: this test does not know {unknown}"
    made = []
    for name in kustomization["resources"]:
        path = (folder / name).resolve()
        made += kustomized(path) if path.is_dir() else documents(path)
    for patch in kustomization.get("patches", []):
        aim = {"kind": patch["target"]["kind"], "name": patch["target"]["name"]}
        (index,) = [i for i, d in enumerate(made) if {"kind": d["kind"], "name": d["metadata"]["name"]} == aim]
        (operations,) = documents(folder / patch["path"])
        made[index] = patched(made[index], operations)
    return made


def all_documents():
    return kustomized(FOLDER / "cluster") + [d for path in sorted((FOLDER / "jobs").glob("*.yaml")) for d in documents(path)]


def of_kind(some, kind):
    return {d["metadata"]["name"]: d for d in some if d["kind"] == kind}


def workloads(some):
    return [d for d in some if d["kind"] in ("StatefulSet", "Job")]


def pod_of(workload):
    return workload["spec"]["template"]["spec"]


def container_of(workload):
    (container,) = pod_of(workload)["containers"]
    return container


def flags(container):
    """{name: value} of the --name=value among the arguments, those inside a script as well."""
    words = [w for argument in container.get("command", []) + container.get("args", []) for w in argument.split()]
    found = [re.fullmatch(r"--([a-z-]+)=(.*)", w) for w in words]
    return {m[1]: m[2].strip('"') for m in found if m}


def amount(text):
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()
    return float(number) * UNITS[unit]
