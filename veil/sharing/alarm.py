"""A watch on the owner's own residuals: does the plant still behave as the model says? Private.

Its state and its verdict depend on the secret and on the states, so they are for the owner alone: they reach
neither the ledger nor the receipts.
"""

import numpy as np
from scipy import special

WINDOW = 64  # steps between two verdicts
LEVEL = 1e-7  # of each test


class Alarm:
    """Takes recovered noise, which is standard normal and white if the model is right."""

    def __init__(self):
        self._rows: list[np.ndarray] = []
        self.reason = ""

    def watch(self, noise: np.ndarray) -> bool:
        """One step more; True when the window that it completes contradicts the model."""
        self._rows.append(noise)
        if len(self._rows) < WINDOW:
            return False
        rows = np.stack(self._rows)
        self._rows = []
        self.reason = _contradiction(rows)
        return bool(self.reason)


def _contradiction(rows: np.ndarray) -> str:
    """The first test that fails, in words; numbers would tell about the noise."""
    for column in rows.T:
        known = column[np.isfinite(column)]
        if len(known) < WINDOW // 2:
            continue
        count, square = len(known), float(np.sum(known**2))
        tail = min(special.chdtrc(count, square), special.chdtr(count, square))
        if tail < LEVEL:
            return "its noise does not have the size that the model says"
        if special.ndtr(-abs(known.mean()) * np.sqrt(count)) < LEVEL:
            return "it drifts away from what the model says"
        pairs = column[1:] * column[:-1]
        pairs = pairs[np.isfinite(pairs)]
        if len(pairs) and special.ndtr(-abs(pairs.mean()) * np.sqrt(len(pairs))) < LEVEL:
            return "its noise goes on from step to step, which the model says it does not"
    return ""
