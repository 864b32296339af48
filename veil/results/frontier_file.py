"""A frontier as files: everything as strict JSON, one line per point as CSV. Both speak nats."""

import csv
import io
import json
import math
from pathlib import Path

from veil.io import plain, replace_text
from veil.results import frontier_text as words
from veil.results.audit_file import leakage
from veil.results.frontier import Frontier, Point, above_displacement, needed
from veil.settings import FrontierGoal
from veil.stats import Leakage, Mean


def row(point: Point) -> dict[str, object]:
    """All of a point, nats and per step; `change` is that of the cost against true data in per cent."""
    line: dict[str, object] = {"kind": point.goal.kind, "value": point.goal.value, "trusted": point.trusted}
    line |= {"verdict": point.verdict, "reasons": list(point.reasons), **leakage(point.leakage)}
    for name in ("distortion", "cost", "change"):
        mean: Mean = getattr(point, name)
        line |= {name: mean.value, f"{name}_error": mean.error}
    return line | {name: getattr(point, name) for name in ("particles", "episodes", "seconds")}


def point_from(line: dict, goal: FrontierGoal) -> Point:
    """The point that a row speaks of."""
    sides = Leakage(_mean(line, "lower"), _mean(line, "upper"), float(line["entropy"]))
    return Point(
        goal,
        sides,
        str(line["verdict"]),
        tuple(map(str, line["reasons"])),
        _mean(line, "distortion"),
        _mean(line, "cost"),
        _mean(line, "change"),
        int(line["particles"]),
        int(line["episodes"]),
        float(line["seconds"]),
    )


def _mean(line: dict, name: str) -> Mean:
    """A number that was not finite is null in the file."""
    value, error = line[name], line[f"{name}_error"]
    return Mean(math.nan if value is None else float(value), math.inf if error is None else float(error))


def _read(path: Path, fingerprint: str) -> dict:
    line = json.loads(path.read_text(encoding="utf-8"))
    if line["fingerprint"] != fingerprint:
        raise ValueError("another point")
    return line


def _write(path: Path, line: dict[str, object]) -> None:
    replace_text(path, json.dumps(plain(line), indent=2, allow_nan=False, ensure_ascii=False) + "\n")


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
    from veil.version import __version__

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
