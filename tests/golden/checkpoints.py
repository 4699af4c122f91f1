#!/usr/bin/env python3
"""Writes checkpoints/: what a build must read, or refuse, that never wrote it. Needs the release build and libxxhash.

  train.csv   512 records of the counting job (tests/faults/jobs.py)
  format-1    a checkpoint of its first epoch, in format 1 of row files and manifests: by their page (common/checkpoint/FORMAT.md)
              these are the bytes of today's without layers, under their own version
  format-99   the same with a manifest of a version that nobody has written yet
"""
import ctypes
import ctypes.util
import json
import pathlib
import re
import shutil
import struct
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "faults"))
from cluster import Cluster  # noqa: E402
from jobs import CountingJob  # noqa: E402

FOLDER = HERE / "checkpoints"


def xxh3(data):
    library = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    library.XXH3_64bits.restype = ctypes.c_uint64
    return library.XXH3_64bits(data, ctypes.c_size_t(len(data)))


def row_file_of_version(path, version):
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 8, version)
    struct.pack_into("<Q", data, 24, xxh3(bytes(data[:24])))
    path.write_bytes(data)
    return f"{xxh3(bytes(data)):016x}"


def write_manifest(path, text):
    """Sealed: `text` without its seal."""
    path.write_bytes(text + b",\n \"checksum\": \"" + f"{xxh3(text):016x}".encode() + b"\"\n}\n")


def body_of(path):
    data = path.read_bytes()
    return data[:data.rindex(b",\n \"checksum\"")]


def set_version(text, version):
    changed, times = re.subn(rb'"format_version": \d+', b'"format_version": %d' % version, text)
    assert times == 1
    return changed


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        data = pathlib.Path(scratch) / "data"
        CountingJob.generate(data, seed=3, records=512, rate=0.1)
        spec = pathlib.Path(scratch) / "counting.yaml"
        CountingJob.write_spec(spec)
        with Cluster(f"{scratch}/cluster", data, ps=1, workers=1) as cluster:
            status = cluster.wait_for_end(cluster.submit(spec, "train.epochs=1"))
            shutil.copytree(cluster.checkpoints / status["checkpoint"], FOLDER / "format-1")
        shutil.copy(data / "train.csv", FOLDER / "train.csv")
    manifest = FOLDER / "format-1" / "MANIFEST.json"
    body = body_of(manifest)
    write_manifest(manifest, body)
    files = json.loads(manifest.read_text())["files"]
    assert all(f.get("layer", 0) == 0 for f in files)
    shutil.copytree(FOLDER / "format-1", FOLDER / "format-99")
    write_manifest(FOLDER / "format-99" / "MANIFEST.json", set_version(body, 99))
    for file in files:
        body = body.replace(file["checksum"].encode(), row_file_of_version(FOLDER / "format-1" / file["name"], 1).encode())
    write_manifest(manifest, set_version(body, 1))


if __name__ == "__main__":
    main()
