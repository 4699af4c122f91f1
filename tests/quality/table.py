"""The published figures of Frappe_x1 and the table that sets a run's beside them. Pure."""

import math

# BARS-CTR leaderboard (recipes of FuxiCTR): AUC and log loss on the test split, single runs; `five_runs` is the mean AUC of
# five runs where the benchmark's logs have them, and then what a mean is judged against; it may lie on either side of the single run.
# `slack`: how far below a mean may lie (AUC_SLACK).
# Models that have no line here have no figure there.
PUBLISHED = {
    "lr": {"auc": 0.9356, "logloss": 0.3076},
    "fm": {"auc": 0.9671, "logloss": 0.2065},
    "ffm": {"auc": 0.9786, "logloss": 0.1860},
    "nfm": {"auc": 0.9804, "logloss": 0.2058},
    "afm": {"auc": 0.9697, "logloss": 0.2264},
    "dnn": {"auc": 0.9833, "logloss": 0.1622, "five_runs": 0.98405},
    "wide-deep": {"auc": 0.9841, "logloss": 0.1490, "five_runs": 0.98307},
    "deepfm": {"auc": 0.9842, "logloss": 0.1482},
    "dcn": {"auc": 0.9839, "logloss": 0.1527, "five_runs": 0.98342},
    "dcn-v2": {"auc": 0.9845, "logloss": 0.1491},
    "xdeepfm": {"auc": 0.9845, "logloss": 0.1466, "five_runs": 0.98414},
    "autoint": {"auc": 0.9848, "logloss": 0.1490},
    "afn": {"auc": 0.9826, "logloss": 0.2139},
    "dlrm": {"auc": 0.9840, "logloss": 0.1444},
    "masknet": {"auc": 0.9837, "logloss": 0.1696},
    "edcn": {"auc": 0.9850, "logloss": 0.1547},
    "finalmlp": {"auc": 0.9861, "logloss": 0.1484},
    "finalnet": {"auc": 0.9857, "logloss": 0.1311},
    # Not of the benchmark: it is to beat the best of its table.
    "finalmlp-wide": {"auc": 0.9861, "logloss": 0.1484, "slack": 0},
}
AUC_SLACK = 0.0005
LOGLOSS_FACTOR = 1.03


def mean(values):
    return sum(values) / len(values)


def deviation(values):
    """Of the sample; None for a single value."""
    if len(values) < 2:
        return None
    m = mean(values)
    return math.sqrt(sum((v - m) ** 2 for v in values) / (len(values) - 1))


def bar(published):
    """(least AUC, greatest log loss) that pass."""
    least_auc = published.get("five_runs", published["auc"]) - published.get("slack", AUC_SLACK)
    return least_auc, published["logloss"] * LOGLOSS_FACTOR


def row(model, runs, published):
    """One line of the table. `runs`: {"seed", "auc", "logloss", "seconds"} each, or with "error" in place of figures."""
    done = [run for run in runs if "error" not in run]
    result = {"model": model, "published": published, "runs": runs, "passed": None}
    errors = [run["error"] for run in runs if "error" in run]
    if errors:
        result.update(passed=False, error=errors[0])
    if not done:
        return result
    for metric in ("auc", "logloss"):
        values = [run[metric] for run in done]
        result[metric] = {"mean": mean(values), "deviation": deviation(values)}
    result["seconds"] = mean([run["seconds"] for run in done])
    if published is None:
        return result
    least_auc, greatest_logloss = bar(published)
    result["bar"] = {"auc": least_auc, "logloss": greatest_logloss}
    result["auc"]["passed"] = result["auc"]["mean"] >= least_auc
    result["logloss"]["passed"] = result["logloss"]["mean"] <= greatest_logloss
    result["passed"] = not errors and result["auc"]["passed"] and result["logloss"]["passed"]
    return result


def figure(value, places):
    spread = "" if value["deviation"] is None else f" +-{value['deviation']:.{places}f}"
    mark = "" if value.get("passed", True) else " <"
    return f"{value['mean']:.{places}f}{spread}{mark}"


def text(rows):
    """The table for a terminal; `<` stands after a figure that misses its bar."""
    lines = [["model", "AUC", "bar", "log loss", "bar", "runs", "s/run", ""]]
    for r in rows:
        if "auc" not in r:
            lines.append([r["model"], "-", "", "-", "", "0", "", r["error"]])
            continue
        limits = r.get("bar")
        verdict = {True: "pass", False: "FAIL", None: "no published figure"}[r["passed"]]
        lines.append([
            r["model"],
            figure(r["auc"], 4),
            f">= {limits['auc']:.4f}" if limits else "",
            figure(r["logloss"], 4),
            f"<= {limits['logloss']:.4f}" if limits else "",
            str(sum("error" not in run for run in r["runs"])),
            f"{r['seconds']:.0f}",
            verdict + (": " + r["error"] if "error" in r else ""),
        ])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines) + "\n"
