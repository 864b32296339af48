"""The demo's numbers as a table for people, as CSV and as JSON. Files speak nats."""

import csv
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veil.demos import Measurement

Row = dict[str, str | float | int | None]


def row(measured: "Measurement") -> Row:
    """One line of the files."""
    accuracy, low, high = measured.accuracy
    adversary = measured.way.adversary
    return {
        "sharing": measured.way.name,
        "family": measured.way.family,
        "leakage": measured.leakage[0],
        "standard_error": measured.leakage[1],
        "entropy": measured.entropy,
        "accuracy": accuracy,
        "accuracy_low": low,
        "accuracy_high": high,
        "chance": measured.chance,
        "distortion": measured.distortion,
        "method": adversary.method,
        "meaning": "unbiased" if adversary.exact else "lower bound",
        "caution": adversary.caution,
        "episodes": len(measured.index),
        "calibration": measured.calibration[0],
        "calibration_error": measured.calibration[1],
        "effective_share": measured.effective,
        "lost": measured.lost,
        "difference": measured.difference and measured.difference[0],
        "difference_error": measured.difference and measured.difference[1],
        "compared": measured.compared,
    }


def health(line: Row) -> str:
    """How far the number can be trusted, in a few words."""
    words = [f"calibration {line['calibration']:+.3f} ± {line['calibration_error']:.3f}"]
    if line["difference"] is not None:
        words.append(f"particles {line['difference']:+.3f} ± {line['difference_error']:.3f}")
    if line["effective_share"] is not None:
        words.append(f"ESS {line['effective_share']:.1%}, lost {line['lost']}")
    return "; ".join(words)


def cells(line: Row) -> tuple[str, ...]:
    """One line of the table for people."""
    nats, entropy = float(line["leakage"] or 0.0), float(line["entropy"] or math.nan)
    return (
        str(line["sharing"]),
        f"{nats:.3f} ± {line['standard_error']:.3f}",
        f"{nats / math.log(2):.3f}",
        f"{nats / entropy:.0%}",
        f"{line['accuracy']:.3f} [{line['accuracy_low']:.3f}, {line['accuracy_high']:.3f}]",
        f"{line['distortion']:.3f}",
        f"{line['method']}: {line['meaning']}",
        health(line),
    )


HEADS = (
    "sharing (m/s, m)",
    "nats ± s.e.",
    "bits",
    "of H(q)",
    "accuracy [95 %]",
    "distortion",
    "method",
    "health",
)

NOTES = """\
nats: mean of log(posterior / prior) of the true secret; "lower bound" where the posterior is approximate.
accuracy: how often the adversary's best guess is right; guessing blindly gives {chance:.2f}.
calibration: the mean minus what the posterior itself claims; near 0 is good, below 0 is too sure.
particles: mean change if a particle filter reads the same episodes instead of the Kalman bank.
ESS: smallest effective share of the true secret's particles (worst twentieth of episodes);
lost: episodes in which none of them was left.
Particle filters keep {caution:.1%} of their forecast on the prior."""


def show(rows: list[Row], steps: int) -> None:
    """Print the table: ruled on a terminal, plain elsewhere."""
    title = f"Leakage over {steps} steps about one of four drivers, H(q) = {rows[0]['entropy']:.3f} nats"
    lines = [cells(line) for line in rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        ruled = Table(*HEADS, title=title)
        for line in lines:
            ruled.add_row(*line)
        Console().print(ruled)
    else:
        widths = [max(map(len, column)) for column in zip(HEADS, *lines, strict=True)]
        print(title)
        for line in (HEADS, *lines):
            print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
    caution = max(float(line["caution"] or 0.0) for line in rows)
    print(NOTES.format(chance=rows[0]["chance"], caution=caution))


def in_words(rows: list[Row], steps: int) -> str:
    """The result for someone who reads nothing else."""
    first = rows[0]
    lines = [
        "",
        f"After {steps} steps an adversary who knows the model names the driver from the true data in",
        f"{first['accuracy']:.1%} of cases ({first['chance']:.0%} by chance).",
    ]
    for family in ("noise", "grid"):
        for last in [line for line in rows if line["family"] == family][-1:]:
            share = f"{last['accuracy']:.1%}"
            lines.append(
                f"With {last['sharing']} it is {share}, at a mean distortion of {last['distortion']:.2f}."
            )
    lines.append("These are averages over drivers and noise: a single run may tell more. Written to")
    return "\n".join(lines)


def write_csv(rows: list[Row], path: Path) -> None:
    """One line per way of sharing."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_json(rows: list[Row], path: Path, *, steps: int, seed: int) -> None:
    """The same, with what is needed to run it again."""
    from veil import __version__

    content = {"unit": "nats", "horizon": steps, "seed": seed, "version": __version__, "sharing": rows}
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
