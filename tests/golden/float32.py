"""What the generators share: rounding to float32 and reproducible numbers.

The reference numbers are computed with Python's floats, which are IEEE doubles; nothing beyond the
standard library is needed.
"""

import random
import struct


def f32(x):
    """The float32 nearest to x, as a double."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def numbers(seed, n, scale=1.0):
    """n normal numbers that are exact in float32."""
    r = random.Random(seed)
    return [f32(r.gauss(0.0, scale)) for _ in range(n)]
