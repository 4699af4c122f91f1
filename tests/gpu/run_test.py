#!/usr/bin/env python3
"""tests/gpu/run with programs that stand in for ours: what it says where there is no device, and where
something does not end.
"""
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parent / "run"
DEVICE = """echo '[{"name": "stand-in", "memory_bytes": 1073741824}]'"""
NO_DEVICE = "echo 'no CUDA device: the driver lists none'; exit 1"


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()
        (self.folder / "lib").mkdir()
        (self.folder / "commit").write_text("0123abcd\n")

    def program(self, name, script):
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run_bundle(self, *options):
        """The exit code, the report, and what was printed."""
        bundle, report = self.folder / "bundle.tar", self.folder / "report.json"
        with tarfile.open(bundle, "w") as archive:
            for name in ("bin", "lib", "commit"):
                archive.add(self.folder / name, name)
        done = subprocess.run([sys.executable, RUN, "--bundle", bundle, "--json", report, *options], text=True,
                              env={**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, json.loads(report.read_text()), done.stdout

    def test_without_a_device_the_report_says_so(self):
        self.program("tessera", NO_DEVICE)
        code, report, output = self.run_bundle()
        self.assertEqual(code, 3)
        self.assertEqual(report["devices"], [])
        self.assertEqual(report["commit"], "0123abcd")
        self.assertIn("0123abcd", output)
        self.assertIn("the driver lists none", report["error"])

    def sanitize(self, script):
        """The exit code, and the states of the tools, where compute-sanitizer is that script."""
        self.program("tessera", DEVICE)
        self.program("compute-sanitizer", script)
        code, report, _ = self.run_bundle("--steps", "sanitizer", "--sanitizer-limit", "2")
        tools = {row["name"].split()[-1]: row["state"] for row in report["steps"] if "sanitizer" in row["name"]}
        return code, tools

    def test_what_does_not_end_has_not_failed_and_is_gone(self):
        pid = self.folder / "pid"
        code, tools = self.sanitize(f'[ "$2" != racecheck ] || {{ sleep 60 & echo $! >{pid}; wait; }}')
        stat = pathlib.Path(f"/proc/{pid.read_text().strip()}/stat")
        self.assertTrue(not stat.exists() or stat.read_text().split()[2] == "Z")
        self.assertEqual(tools, {"memcheck": "passed", "racecheck": "did not end", "initcheck": "passed"})
        self.assertEqual(code, 4)

    def test_what_has_failed_says_more_than_what_does_not_end(self):
        code, tools = self.sanitize('case $2 in racecheck) exec sleep 60;; initcheck) exit 9;; esac')
        self.assertEqual(tools, {"memcheck": "passed", "racecheck": "did not end", "initcheck": "failed"})
        self.assertEqual(code, 1)

    def test_all_that_passes_is_a_success(self):
        self.assertEqual(self.sanitize("exit 0"), (0, dict.fromkeys(("memcheck", "racecheck", "initcheck"), "passed")))

    def test_tools_that_watch_every_access_are_given_few_tests(self):
        _, tools = self.sanitize('case "$2 $*" in memcheck*"=*OnCuda*"*|racecheck*OfOneShape*|initcheck*OfOneShape*) ;; *) exit 9;; esac')
        self.assertEqual(set(tools.values()), {"passed"})

    def test_every_pattern_of_those_tests_is_of_one(self):
        names = []
        for file in (RUN.parent.parent / "worker").glob("*.cc"):
            names += [".".join(found) for found in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", file.read_text(), re.MULTILINE)]
        patterns = re.search(r"^SHARED_MEMORY = \((.*?)\)$", RUN.read_text(), re.MULTILINE | re.DOTALL)[1]
        for pattern in "".join(re.findall(r'"(.*?)"', patterns)).split(":"):
            self.assertTrue(fnmatch.filter(names, pattern), pattern)

    def test_a_benchmark_that_fails_does_not_end_the_others(self):
        self.program("tessera", DEVICE)
        for name, found in (("cuda", '"error_occurred": true, "error_message": "out of memory"'),
                            ("train", '"rate [1/s]": 1, "rate [1/s] | peer | ": 2')):
            report = f'{{"benchmarks": [{{"name": "{name}", {found}}}]}}'
            self.program(name, f"for a; do case $a in --benchmark_out=*) echo '{report}' >${{a#*=}};; esac; done")
        code, report, _ = self.run_bundle("--steps", "benchmarks,training")
        states = {row["name"]: row["state"] for row in report["steps"]}
        self.assertEqual((states["benchmarks: cuda"], states["train/rate"]), ("failed", "measured"))
        self.assertEqual(report["benchmarks"][0]["ratio"], 0.5)
        self.assertEqual(code, 1)

    def test_programs_that_cannot_be_had_are_in_the_report(self):
        code, report, _ = self.run_bundle()
        self.assertEqual(code, 1)
        self.assertEqual(report["devices"], [])
        self.assertIn("tessera", report["error"])


if __name__ == "__main__":
    unittest.main()
