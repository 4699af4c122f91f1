"""What a model must be, found without the service."""
from checkpoint_files import read_table
from cluster import Failure


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
