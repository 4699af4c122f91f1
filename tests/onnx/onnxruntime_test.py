#!/usr/bin/env python3
"""Exported models give the worker's own predictions in onnxruntime.

Usage: tests/onnx/onnxruntime_test.py CASES_PROGRAM
Exits with 77, which ctest calls skipped, where onnxruntime is not installed (deploy/install-dependencies --ci installs it).
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

# Logits are compared too, lest predictions near 0 and 1 hide a difference; AFN's exponentials enlarge what rounding does.
TOLERANCE = {"prediction": 1e-5, "logit": 1e-4}


def compare(session, numpy, folder):
    """The largest error of each output; relative where values are above 1."""
    case = json.loads((folder / "case.json").read_text())
    values = numpy.fromfile(folder / "inputs", dtype=numpy.float32)
    feeds, at = {}, 0
    for tensor in case["inputs"]:
        size = math.prod(tensor["dims"])
        feeds[tensor["name"]] = values[at : at + size].reshape(tensor["dims"])
        at += size
    assert at == len(values)
    names = [i.name for i in session.get_inputs()]
    assert set(names) == set(feeds), (names, sorted(feeds))
    errors = {}
    assert {o.name for o in session.get_outputs()} == {o["name"] for o in case["outputs"]}
    for output in case["outputs"]:
        (found,) = session.run([output["name"]], feeds)
        expected = numpy.fromfile(folder / output["file"], dtype=numpy.float32)
        assert found.shape == (case["batch"], 1) and expected.shape == (case["batch"],)
        difference = numpy.abs(found[:, 0] - expected) / numpy.maximum(1, numpy.abs(expected))
        kind = output["name"].split("/")[0]
        errors[kind] = max(errors.get(kind, 0.0), float(numpy.max(difference)))
    return errors


def main():
    try:
        import numpy
        import onnxruntime
    except ImportError as missing:
        print(f"skipped: {missing}; deploy/install-dependencies --ci installs it")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as root:
        subprocess.run([sys.argv[1], root], check=True)
        folders = sorted(pathlib.Path(root).iterdir())
        worst = {"prediction": 0.0, "logit": 0.0}
        for folder in folders:
            try:
                session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
                errors = compare(session, numpy, folder)
            except Exception as wrong:  # of any kind: the others are still to be seen
                print(f"{folder.name}: {wrong}")
                failed += 1
                continue
            for output, error in errors.items():
                worst[output] = max(worst[output], error)
                if not error <= TOLERANCE[output]:
                    print(f"{folder.name}: {output} differs by {error:.3g}, more than {TOLERANCE[output]}")
                    failed += 1
    print(f"onnxruntime {onnxruntime.__version__}: {len(folders)} models, {failed} failed; largest differences {worst}")
    return 1 if failed or not folders else 0


if __name__ == "__main__":
    sys.exit(main())
