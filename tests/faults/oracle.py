"""What a model must be, found without the service."""
from checkpoint_files import read_table
from cluster import Failure


def missing_counts(checkpoint, counts, epochs):
    """How many times samples' keys were not counted, where some may be lost; none may be counted twice."""
    rows = read_table(checkpoint, "counts")
    extra = [key for key, row in rows.items() if row[0] > epochs * counts.get(key, 0)]
    if extra:
        raise Failure(f"{len(extra)} keys were counted too often: {extra[:5]}")
    return sum(epochs * count - rows.get(key, (0,))[0] for key, count in counts.items())


def check_counts(checkpoint, counts, epochs, dim):
    """Every row holds, in each of its numbers, how many samples its key was trained with; there are no other rows."""
    rows = read_table(checkpoint, "counts")
    missing = [key for key in counts if key not in rows]
    extra = [key for key in rows if key not in counts]
    wrong = [f"key {key} has {rows[key]}, expected {epochs * count}" for key, count in counts.items()
             if key in rows and rows[key] != (float(epochs * count),) * dim]
    if missing or extra or wrong:
        found = sum(row[0] for row in rows.values())
        raise Failure(f"{len(wrong)} of {len(counts)} counts are wrong, {len(missing)} rows missing, {len(extra)} too many "
                      f"(sum {found:.0f}, expected {epochs * sum(counts.values())}): " + "; ".join(wrong[:5]))
