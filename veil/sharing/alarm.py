"""A watch on the owner's own residuals: does the plant still behave as the model says? Private.

Its state and its verdict depend on the secret and on the states, so they are for the owner alone: they reach
neither the ledger nor the receipts.
"""

from statistics import NormalDist

import numpy as np

WINDOW = 64  # steps between two verdicts

LEVEL = 1e-7  # of each test, on either side

FAR = -NormalDist().inv_cdf(LEVEL)


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
        count = len(known)
        if abs(_normal_score(float(np.sum(known**2)), count)) > FAR:
            return "its noise does not have the size that the model says"
        if abs(known.mean()) * np.sqrt(count) > FAR:
            return "it drifts away from what the model says"
        pairs = column[1:] * column[:-1]
        pairs = pairs[np.isfinite(pairs)]
        if len(pairs) and abs(pairs.mean()) * np.sqrt(len(pairs)) > FAR:
            return "its noise goes on from step to step, which the model says it does not"
    return ""


def _normal_score(square: float, count: int) -> float:
    """The normal number as unlikely as this chi-square one, by Wilson and Hilferty's cube root.

    From 32 numbers on its level is right to a factor of two; scipy takes longer to import than a restart
    may.
    """
    width = 2.0 / (9.0 * count)
    return float(((square / count) ** (1.0 / 3.0) - (1.0 - width)) / np.sqrt(width))
