"""What the quality table says of given runs."""

import pathlib
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


class Published(unittest.TestCase):
    def test_every_job_for_frappe_is_in_the_table_and_every_line_has_a_job(self):
        jobs = {p.name[len("frappe-"):-len(".yaml")] for p in JOBS.glob("frappe-*.yaml")}
        self.assertEqual(jobs, set(PUBLISHED))


if __name__ == "__main__":
    unittest.main()
