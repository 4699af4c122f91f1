"""What deploy/alerts.yaml watches is what the processes export: names in the sources, and nothing else."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def exported():
    names = set()
    for room in ("common", "master", "ps", "worker"):
        for source in (ROOT / room).rglob("*.[ch]*"):
            names |= set(re.findall(r'"((?:tessera|process)_[a-z_]+)"', source.read_text()))
    return names


def watched():
    rules = (ROOT / "deploy/alerts.yaml").read_text()
    expressions = re.findall(r"^ *expr: (.*)$", rules, re.M)
    assert expressions, "deploy/alerts.yaml: no expr"
    return {name for e in expressions for name in re.findall(r"\b(?:tessera|process)_[a-z_]+", e)}


unknown = watched() - exported()
if unknown:
    sys.exit(f"deploy/alerts.yaml: no process exports {', '.join(sorted(unknown))}")
print(f"{len(watched())} metrics watched")
