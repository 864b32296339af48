"""Finished points on disk, each in a folder of its own, so that an interrupted frontier goes on."""

import json
import math
from pathlib import Path

from veil.auditing.files import leakage, plain, replace_text
from veil.auditing.result import Leakage
from veil.auditing.statistics import Mean
from veil.frontier.options import Goal
from veil.frontier.point import Point

POINT, FLOOR = "point.json", "floor.json"


class Shelf:
    """Points by name. One that depends on anything else than the fingerprint says is not read."""

    def __init__(self, folder: Path):
        self.folder = folder / "points"
        self.folder.mkdir(parents=True, exist_ok=True)

    def place(self, goal: Goal) -> Path:
        """The folder of a point."""
        return self.folder / goal.name

    def point(self, goal: Goal, fingerprint: str) -> Point | None:
        """As measured before; None if it was not, or if its file is damaged."""
        try:
            return point_from(_read(self.place(goal) / POINT, fingerprint), goal)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, point: Point, fingerprint: str) -> None:
        """Write a point."""
        folder = self.place(point.goal)
        folder.mkdir(exist_ok=True)
        _write(folder / POINT, row(point) | {"fingerprint": fingerprint})

    def floor(self, fingerprint: str) -> Mean | None:
        """As found before."""
        try:
            return _mean(_read(self.folder / FLOOR, fingerprint), "distortion")
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep_floor(self, floor: Mean, fingerprint: str) -> None:
        """Write the floor."""
        found = {"distortion": floor.value, "distortion_error": floor.error, "fingerprint": fingerprint}
        _write(self.folder / FLOOR, found)


def row(point: Point) -> dict[str, object]:
    """All of a point, nats and per step; `change` is that of the cost against true data in per cent."""
    line: dict[str, object] = {"kind": point.goal.kind, "value": point.goal.value, "trusted": point.trusted}
    line |= {"verdict": point.verdict, "reasons": list(point.reasons), **leakage(point.leakage)}
    for name in ("distortion", "cost", "change"):
        mean: Mean = getattr(point, name)
        line |= {name: mean.value, f"{name}_error": mean.error}
    return line | {name: getattr(point, name) for name in ("particles", "episodes", "seconds")}


def point_from(line: dict, goal: Goal) -> Point:
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
