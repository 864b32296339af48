"""The picture of a ledger: nats charged so far against the budget, and what was decided when."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from veil.plots import BLUE, GREEN, INK, ORANGE, PALE, RED
from veil.sharing.account import DECISIONS, Account

COLOURS = dict(zip(DECISIONS, (GREEN, BLUE, ORANGE, RED, INK, PALE), strict=True))

SMALL = 12  # points of text

COLUMNS = 1500  # marks per row, so that a long stream stays a small picture


def draw(account: Account, path: Path, again: Sequence[float] = ()) -> Path:
    """Draw into a file.

    Args:
        account: the ledger.
        path: the file.
        again: nats of each step by a stronger method, if they were computed.
    """
    picture(account, again).savefig(path, dpi=130)
    return path


def picture(account: Account, again: Sequence[float] = ()) -> Figure:
    """Charges above, decisions below, over the same steps."""
    present = [name for name in DECISIONS if name in account.counts()]
    figure = Figure(figsize=(9, 5.0 + 0.28 * len(present)), layout="constrained")
    ratios = (4.0, 0.3 + 0.26 * len(present))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
    _charges(upper, account, again)
    _decisions(lower, account, present)
    lower.set_xlabel("step", fontsize=SMALL)
    lower.set_xlim(0, max(1, len(account)) + 0.5)
    for panel in (upper, lower):
        panel.tick_params(labelsize=SMALL)
    return figure


def _charges(panel: Axes, account: Account, again: Sequence[float]) -> None:
    """Sums, as a stair that rises at each step; the budget as a line that it stays under."""
    steps = np.arange(len(account) + 1)
    charged = [account.start, *account.totals]
    panel.step(steps, charged, where="post", color=BLUE, linewidth=2.0, label="charged")
    if len(again):
        sums = account.start + np.concatenate([[0.0], np.cumsum(again)])
        look = {"color": ORANGE, "linewidth": 1.6, "linestyle": "--"}
        panel.step(steps, sums, where="post", label="computed again", **look)
    if math.isfinite(account.budget):
        panel.axhline(account.budget, color=INK, linestyle=":", linewidth=1.8, label="budget")
    panel.set_ylim(bottom=0.0, top=None if account.total or math.isfinite(account.budget) else 1.0)
    panel.set_ylabel("nats about the secret", fontsize=SMALL)
    panel.grid(alpha=0.25)
    panel.legend(loc="best", frameon=False, fontsize=SMALL)


def _decisions(panel: Axes, account: Account, present: list[str]) -> None:
    """One row per decision, a mark where it was taken."""
    for row, name in enumerate(present):
        steps = 1 + np.flatnonzero(account.decisions == DECISIONS.index(name))
        width = max(1, -(-len(account) // COLUMNS))
        marks = 0.5 * (1 + width) + width * np.unique((steps - 1) // width)
        panel.vlines(marks, row - 0.38, row + 0.38, color=COLOURS[name], linewidth=_thickness(len(account)))
    names = [f"{name} ({account.counts()[name][0]})" for name in present]
    panel.set_yticks(range(len(present)), names)
    panel.set_ylim(len(present) - 0.4, -0.6)


def _thickness(steps: int) -> float:
    """Points, so that marks of neighbouring steps touch and single ones can be seen."""
    return float(np.clip(420.0 / max(1, steps), 0.9, 8.0))
