"""What the quality table says of given runs, and the script around it with a program that does not train."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from table import PUBLISHED, bar, deviation, row, text

JOBS = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy" / "jobs"
FIGURES = {"auc": 0.98, "logloss": 0.15}


def run(auc, logloss, seconds=10.0):
    return {"seed": 1, "auc": auc, "logloss": logloss, "seconds": seconds}


class Row(unittest.TestCase):
    def test_passes_at_the_bar_and_fails_just_beside_it(self):
        auc, logloss = bar(FIGURES)
        self.assertAlmostEqual(auc, 0.9795)
        self.assertAlmostEqual(logloss, 0.1545)
        self.assertTrue(row("m", [run(auc, logloss)], FIGURES)["passed"])
        low_auc = row("m", [run(auc - 1e-6, logloss)], FIGURES)
        self.assertEqual((low_auc["passed"], low_auc["auc"]["passed"], low_auc["logloss"]["passed"]), (False, False, True))
        high_loss = row("m", [run(auc, logloss + 1e-6)], FIGURES)
        self.assertEqual((high_loss["passed"], high_loss["auc"]["passed"], high_loss["logloss"]["passed"]), (False, True, False))

    def test_judges_the_mean_over_seeds(self):
        r = row("m", [run(0.97, 0.14, 10), run(0.99, 0.16, 30)], FIGURES)
        self.assertAlmostEqual(r["auc"]["mean"], 0.98)
        self.assertAlmostEqual(r["auc"]["deviation"], 0.0141421, places=6)
        self.assertAlmostEqual(r["logloss"]["mean"], 0.15)
        self.assertEqual(r["seconds"], 20)
        self.assertTrue(r["passed"])

    def test_takes_the_mean_of_five_published_runs_where_it_is_known(self):
        self.assertAlmostEqual(bar({**FIGURES, "five_runs": 0.979})[0], 0.9785)
        self.assertTrue(row("m", [run(0.979, 0.15)], {**FIGURES, "five_runs": 0.979})["passed"])

    def test_a_model_may_have_to_reach_the_figure_itself(self):
        strict = {**FIGURES, "slack": 0}
        self.assertEqual(bar(strict)[0], 0.98)
        self.assertTrue(row("m", [run(0.98, 0.15)], strict)["passed"])
        self.assertFalse(row("m", [run(0.97999, 0.15)], strict)["passed"])

    def test_a_failed_run_fails_the_model_whatever_the_others_reach(self):
        r = row("m", [run(0.99, 0.1), {"seed": 2, "seconds": 1, "error": "no ps"}], FIGURES)
        self.assertEqual((r["passed"], r["error"]), (False, "no ps"))
        self.assertAlmostEqual(r["auc"]["mean"], 0.99)
        self.assertFalse(row("m", [{"seed": 2, "seconds": 1, "error": "no ps"}], FIGURES)["passed"])

    def test_without_a_published_figure_there_is_no_verdict(self):
        self.assertIsNone(row("m", [run(0.5, 1)], None)["passed"])

    def test_one_run_has_no_deviation(self):
        self.assertIsNone(deviation([0.5]))


class Text(unittest.TestCase):
    def test_marks_what_misses_its_bar(self):
        rows = [row("good", [run(0.98, 0.15)], FIGURES), row("bad", [run(0.97, 0.15), run(0.97, 0.15)], FIGURES),
                row("new", [run(0.5, 1)], None), row("lost", [{"seed": 2, "seconds": 1, "error": "no ps"}], FIGURES)]
        header, good, bad, new, lost = text(rows).splitlines()
        self.assertEqual(header.split(), ["model", "AUC", "bar", "log", "loss", "bar", "runs", "s/run"])
        self.assertEqual(good.split(), "good 0.9800 >= 0.9795 0.1500 <= 0.1545 1 10 pass".split())
        self.assertEqual(bad.split(), "bad 0.9700 +-0.0000 < >= 0.9795 0.1500 +-0.0000 <= 0.1545 2 10 FAIL".split())
        self.assertIn("no published figure", new)
        self.assertEqual(lost.split(), "lost - - 0 no ps".split())


PROGRAM = """#!{python}
import json, pathlib, sys
with open({log!r}, "a") as log:
    print(*sys.argv[1:], file=log)
data = pathlib.Path(sys.argv[sys.argv.index("--data") + 1])
splits = sorted(p.name for p in data.iterdir())
if "seed=2025" in sys.argv:
    sys.exit("disk full")
metrics = {{"auc": None if "seed=2026" in sys.argv else 0.99, "logloss": 0.1}}
print("not the summary")
print(json.dumps({{"metrics": {{"test" if "test.csv" in splits else "validation": metrics}}, "epochs": 3,
                   "samples_per_second": 7, "splits": splits, "message": "ps-0 is gone"}}))
sys.exit(1 if "seed=2027" in sys.argv else 0)
"""


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log = self.folder / "log"
        self.program = self.folder / "tessera"
        self.program.write_text(PROGRAM.format(python=sys.executable, log=str(self.log)))
        self.program.chmod(0o755)
        for name in ("train.csv.zst", "valid.csv", "kept.csv"):
            (self.folder / name).write_text("")

    def run_script(self, *arguments):
        script = pathlib.Path(__file__).resolve().parent / "frappe"
        return subprocess.run([sys.executable, "-B", script, *map(str, arguments)], capture_output=True, text=True, check=False)

    def test_says_all_that_it_lacks(self):
        done = self.run_script("--data", self.folder / "none", "--models", "deepmf", "--tessera", "none", "--test", "none",
                               "--seeds", "0")
        self.assertEqual(done.returncode, 1)
        for part in ("no program at none", "has no train.csv", "has no valid.csv", "--test none: expected a file",
                     "unknown model 'deepmf'; known are lr, fm", "--seeds"):
            self.assertIn(part, done.stderr)

    def test_runs_each_model_and_passes_where_all_do(self):
        out = self.folder / "out.json"
        done = self.run_script("--data", self.folder, "--models", "deepfm,fwfm", "--tessera", self.program, "--epochs", "2",
                               "--json", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        line = next(line for line in done.stdout.splitlines() if line.startswith("deepfm "))
        self.assertEqual(line.split()[-1], "pass")
        self.assertIn("The published figures are of the test split.", done.stdout)
        first, second = self.log.read_text().splitlines()
        self.assertIn("frappe-deepfm.yaml", first)
        self.assertIn("frappe-fwfm.yaml", second)
        for part in ("--ps 2", "--workers 1", "--work-dir", "--set seed=2024", "--set train.epochs=2"):
            self.assertIn(part, first)
        rows = json.loads(out.read_text())["rows"]
        self.assertEqual([r["passed"] for r in rows], [True, None])

    def test_measures_on_the_test_file_where_one_is_given(self):
        done = self.run_script("--data", self.folder, "--models", "lr", "--tessera", self.program, "--test",
                               self.folder / "kept.csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("data.test.files=test.csv*", self.log.read_text())
        self.assertNotIn("The published figures are of the test split.", done.stdout)

    def test_a_failed_run_fails_the_table_and_is_told(self):
        done = self.run_script("--data", self.folder, "--models", "lr", "--tessera", self.program, "--seeds", "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("tessera local ended with status 1: disk full", done.stdout)

    def test_neither_a_figure_that_is_none_nor_a_failure_with_figures_counts(self):
        done = self.run_script("--data", self.folder, "--models", "lr,fm", "--tessera", self.program, "--seeds", "4", "--json",
                               self.folder / "out.json")
        self.assertEqual(done.returncode, 1, done.stderr)
        for row_of in json.loads((self.folder / "out.json").read_text())["rows"]:
            errors = [r.get("error") for r in row_of["runs"]]
            self.assertEqual([e is None for e in errors], [True, False, False, False])
            self.assertIn("ps-0 is gone", errors[3])
            self.assertEqual(row_of["auc"]["mean"], 0.99)


class Published(unittest.TestCase):
    def test_every_line_has_a_job(self):
        jobs = {p.name[len("frappe-"):-len(".yaml")] for p in JOBS.glob("frappe-*.yaml")}
        self.assertLessEqual(set(PUBLISHED), jobs)


if __name__ == "__main__":
    unittest.main()
