"""What the benchmarks' programs report, as lines, and the table of them."""
import re

# As bench.cc writes them: "metric [unit]" is a value, "metric [unit] | limit name | bar" its limit.
VALUE = re.compile(r"^(?P<metric>[^|]*) \[(?P<unit>[^\]]*)\]$")


def results_of(report):
    """The lines of one program's report."""
    lines = []
    for benchmark in report["benchmarks"]:
        name = benchmark["name"].removesuffix("/iterations:1")
        if benchmark.get("error_occurred"):
            raise SystemExit(f"{name}: {benchmark['error_message']}")
        for key, limit in benchmark.items():
            parts = key.split(" | ")
            if len(parts) != 3:
                continue
            metric = VALUE.match(parts[0])
            value = benchmark[parts[0]]
            has_limit = parts[1] != ""
            lines.append({
                "name": f"{name}/{metric['metric']}", "value": value, "unit": metric["unit"],
                "limit_name": parts[1], "limit": limit if has_limit else None,
                "ratio": value / limit if has_limit and limit != 0 else None, "bar": parts[2],
            })
    return lines


def number(x):
    return "" if x is None else f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}"


def verdict(line):
    if not line["bar"] or line["ratio"] is None:
        return ""
    sign, bound = line["bar"].split()
    held = line["ratio"] >= float(bound) if sign == ">=" else line["ratio"] <= float(bound)
    return f"{line['bar']}: {'held' if held else 'MISSED'}"


def print_table(lines):
    rows = [["name", "value", "unit", "limit", "limit's name", "ratio", "bar"]]
    for line in lines:
        rows.append([line["name"], number(line["value"]), line["unit"], number(line["limit"]),
                     line["limit_name"], number(line["ratio"]), verdict(line)])
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    rows.insert(1, ["-" * w for w in widths])
    for row in rows:
        print("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths)) + " |")
