"""A frontier as files: everything as strict JSON, the points as CSV. Both speak nats."""

import csv
import io
import json
from pathlib import Path

from veil.auditing.files import plain, replace_text
from veil.frontier import words
from veil.frontier.curve import above_displacement, needed
from veil.frontier.point import Frontier
from veil.frontier.store import row

COLUMNS = (
    *("kind", "value", "trusted", "lower", "lower_error", "upper", "upper_error", "low", "high", "width"),
    *("entropy", "distortion", "distortion_error", "cost", "cost_error", "change", "change_error"),
    *("particles", "episodes", "seconds", "verdict"),
)


def write(found: Frontier, folder: Path) -> list[Path]:
    """Write frontier.json and frontier.csv; a reader finds the old file or the new one, never half of one."""
    text = json.dumps(plain(content(found)), indent=2, allow_nan=False, ensure_ascii=False)
    return [
        replace_text(folder / "frontier.json", text + "\n"),
        replace_text(folder / "frontier.csv", table(found)),
    ]


def content(found: Frontier) -> dict[str, object]:
    """All fields of frontier.json."""
    from veil import __version__

    wanted = {kind: needed(found.family(kind), words.NATS) for kind in found.kinds}
    return {
        "unit": "nats",
        "system": found.system,
        "horizon": found.horizon,
        "entropy": found.entropy,
        "floor": found.floor.value,
        "floor_error": found.floor.error,
        "sentence": words.summary(found),
        "needed": {
            kind: {"nats": words.NATS, "distortion": one.distortion, "bound": one.bound}
            for kind, one in wanted.items()
        },
        "above_displacement": [point.goal.value for point, _ in above_displacement(found)],
        "points": [row(point) for point in found.points],
        "training": {"price": found.price, "updates": found.updates},
        "seed": found.seed,
        "version": __version__,
    }


def table(found: Frontier) -> str:
    """One row per point."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain(value) for name, value in row(point).items()} for point in found.points)
    return text.getvalue()
