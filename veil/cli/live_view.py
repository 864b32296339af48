"""A live stream for people: what is true beside what goes out. A table that moves, or a line now and then."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rich.table import Table

    from veil.sharing.account import Release
    from veil.systems.base import Field


SHOWN = 12  # steps on the screen

EVERY = 10  # steps between two lines where there is no terminal

Tell = Callable[[np.ndarray, "Release"], None]


@contextmanager
def view(fields: "Sequence[Field]") -> Iterator[Tell]:
    """Where each step is told, with the true output and the release."""
    if not sys.stderr.isatty():
        yield lambda true, release: _line(fields, true, release)
        return
    from rich.console import Console
    from rich.live import Live

    rows: list[tuple[str, ...]] = []
    with Live(console=Console(stderr=True), refresh_per_second=10) as live:

        def tell(true: np.ndarray, release: "Release") -> None:
            rows.append(row(true, release))
            live.update(table(fields, rows))

        yield tell


def table(fields: "Sequence[Field]", rows: list[tuple[str, ...]]) -> "Table":
    """The last steps."""
    from rich.table import Table

    heads = [f"{kind} {field.name} [{field.unit}]" for field in fields for kind in ("true", "shared")]
    made = Table(title="Live: the vehicle keeps the left value of each pair and shares the right one")
    for head in ("step", *heads, "decision", "nats so far"):
        made.add_column(head.replace(" []", "").replace("[", "\\["), justify="right")
    for line in rows[-SHOWN:]:
        made.add_row(*line)
    return made


def row(true: np.ndarray, release: "Release") -> tuple[str, ...]:
    """One step."""
    receipt = release.receipt
    shared = [np.nan] * len(true) if release.shared is None else release.shared
    pairs = [f"{value:.2f}" for both in zip(true, shared, strict=True) for value in both]
    return (str(receipt.step), *pairs, receipt.decision, f"{receipt.total:.4f}")


def _line(fields: "Sequence[Field]", true: np.ndarray, release: "Release") -> None:
    if release.receipt.step % EVERY != 0:
        return
    step, *values, decision, total = row(true, release)
    pairs = zip(fields, values[::2], values[1::2], strict=True)
    told = ", ".join(
        f"{field.name} {kept} shared as {out} {field.unit}".strip() for field, kept, out in pairs
    )
    print(f"step {step}: {told}; {decision}, {total} nats so far", file=sys.stderr, flush=True)
