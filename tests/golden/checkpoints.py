#!/usr/bin/env python3
"""Writes checkpoints/: what a build must read, or refuse, that never wrote it. Needs the release build and libxxhash.

  train.csv   512 records of the counting job (tests/faults/jobs.py)
  format-1    a checkpoint of its first epoch, in format 1 of row files and manifests: by their page (common/checkpoint/FORMAT.md)
              these are the bytes of today's without layers, under their own version
  format-99   the same with a manifest of a version that nobody has written yet
  few.csv     128 records of few keys
  format-3    a checkpoint of a sync job over them, in manifest format 3: keys that have been seen wait for their rows
  format-4    one of an async job, in manifest format 4: of a window that is open two parts are left, which by the page is
              what today's says of it as one

With names of folders it writes those alone: what a build before wrote should stay.
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


def format_1_and_99():
    shutil.rmtree(FOLDER / "format-1", ignore_errors=True)
    shutil.rmtree(FOLDER / "format-99", ignore_errors=True)
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


class FewKeys(CountingJob):
    batch, shard, window, epochs = 16, 16, 64, 4


def within_an_epoch(version, workers, fits, *sets):
    """The first checkpoint of a job over few.csv that is cut within its second epoch, and `fits`. Returns its folder."""
    target = FOLDER / f"format-{version}"
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        data = pathlib.Path(scratch) / "data"
        FewKeys.generate(data, seed=3, records=128, rate=1)
        (data / "train.csv").rename(data / "few.csv")
        shutil.copy(data / "few.csv", FOLDER / "few.csv")
        spec = pathlib.Path(scratch) / "counting.yaml"
        FewKeys.write_spec(spec)
        with Cluster(f"{scratch}/cluster", data, ps=1, workers=workers) as cluster:
            status = cluster.wait_for_end(cluster.submit(spec, "data.train.files=few.csv", "checkpoint.every_steps=3",
                                                         "checkpoint.keep=100", *sets))
            for folder in sorted((cluster.checkpoints / status["checkpoint"]).parent.iterdir()):
                manifest = json.loads((folder / "MANIFEST.json").read_text())
                if manifest["position"].get("epoch") == 1 and fits(manifest):
                    return shutil.copytree(folder, target)
    sys.exit(f"no checkpoint for format-{version}")


def format_3():
    within_an_epoch(3, 2, lambda manifest: manifest["format_version"] == 3, "tables.counts.admission.after_sightings=6",
                    "consistency.sparse=sync", "consistency.dense=sync")


def format_4():
    manifest = within_an_epoch(4, 1, lambda m: m["position"].get("open") == [{"next_batch": "1"}]) / "MANIFEST.json"
    one = b"""   {
    "next_batch": "1"
   }"""
    two = b"""   {
    "next_batch": "1",
    "end_batch": "3"
   },
   {
    "next_batch": "3"
   }"""
    body = body_of(manifest)
    assert body.count(one) == 1
    write_manifest(manifest, set_version(body.replace(one, two), 4))


def main():
    made = {"format-1": format_1_and_99, "format-3": format_3, "format-4": format_4}
    for name in sys.argv[1:] or made:
        made[name]()


if __name__ == "__main__":
    main()
