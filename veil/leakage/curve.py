"""Order points along a Hilbert curve, so that neighbours in the order are neighbours in space.

Only integer arithmetic that numpy and JAX arrays share is used, so the same code serves both.
"""

from collections.abc import Sequence
from typing import TypeVar

IntegerArray = TypeVar("IntegerArray")


def hilbert_key(cells: Sequence[IntegerArray], bits: int) -> IntegerArray:
    """Position along the Hilbert curve of each integer cell (Skilling's transform).

    Args:
        cells: one integer array per dimension, values in [0, 2**bits).
        bits: bits per dimension; `len(cells) * bits` must fit the integer type.
    """
    axes: list = list(cells)
    for level in range(bits - 1, 0, -1):  # undo the excess rotations and reflections
        low = (1 << level) - 1
        for i in range(len(axes)):
            bit = (axes[i] >> level) & 1
            swap = (axes[0] ^ axes[i]) & low & (bit - 1)  # bit − 1 is all ones where the bit is clear
            axes[0] = axes[0] ^ (low & -bit) ^ swap
            if i > 0:
                axes[i] = axes[i] ^ swap
    for i in range(1, len(axes)):  # Gray code
        axes[i] = axes[i] ^ axes[i - 1]
    flip = axes[0] & 0
    for level in range(bits - 1, 0, -1):
        flip = flip ^ (((1 << level) - 1) & -((axes[-1] >> level) & 1))
    axes = [axis ^ flip for axis in axes]
    key = axes[0] & 0
    for level in range(bits - 1, -1, -1):  # interleave
        for axis in axes:
            key = (key << 1) | ((axis >> level) & 1)
    return key


def curve_order(points, labels, library):
    """Indices that sort points by label first, then along the curve through their bounding box.

    Args:
        points: (N, d) coordinates.
        labels: (N,) integers; equal labels mean one curve through all points.
        library: the array module, `numpy` or `jax.numpy`.
    """
    dimensions = points.shape[1]
    wide = library.asarray(points).dtype.itemsize == 8
    bits = min(20, (62 if wide else 30) // dimensions)
    low, high = points.min(axis=0)[None, :], points.max(axis=0)[None, :]
    width = library.where(high > low, high - low, library.ones_like(high))
    cells = (((points - low) / width) * (2**bits - 1)).astype(library.int64 if wide else library.int32)
    key = hilbert_key([cells[:, i] for i in range(dimensions)], bits)
    # Coordinates break ties within a cell, so the order does not depend on how the points were listed.
    ties = [points[:, i] for i in range(dimensions)]
    return library.lexsort((*ties, key, labels))
