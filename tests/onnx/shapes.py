"""What networks are read with: "dense" [batch, 3], "vectors" [batch, 4, 8], and the sequence "history" [batch, 5, 8] with its "lengths"."""
DENSE, FIELDS, DIM = 3, 4, 8
PLACES = 5  # of "history"; "lengths" says how many of them a sample has, and behind them are zeros


def without_history(dense, vectors):
    """The bytes of a case's `inputs` (read.cc), of arrays of float32, where the network reads no sequence."""
    return dense.tobytes() + vectors.tobytes() + bytes(4 * len(dense) * (PLACES * DIM + 1))
