"""A frontier: points measured at several strengths, and what distortion each family needs for a leakage."""

import json
import math
import textwrap
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veil.io import csv_text, replace_text, write_json
from veil.results import text
from veil.results.parts import (
    SMALLEST,
    Line,
    Point,
    ResultError,
    mean_from_dict,
    mean_to_dict,
    same_result,
    text_of,
)
from veil.settings import FAMILIES, FAMILY_WORDS, FamilyName
from veil.stats import Mean
from veil.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE, TABLE, PICTURE = "frontier.json", "frontier.csv", "frontier.png"

NATS = 0.05  # the leakage that families are compared at

COLUMNS = (
    *("kind", "value", "trusted", "lower", "lower_error", "upper", "upper_error", "low", "high", "width"),
    *("entropy", "distortion", "distortion_error", "cost", "cost_error", "change", "change_error"),
    *("particles", "episodes", "seconds", "verdict"),
)


@dataclass(frozen=True)
class Needed:
    """The distortion per step that a family needs for a leakage, by its upper side.

    Attributes:
        distortion: the least; None if no point that can be believed gets there.
        bound: whether the weakest point measured is already below, so that less distortion may do.
        believed: whether any point may be believed.
    """

    distortion: float | None
    bound: bool = False
    believed: bool = True


def believed(points: list[Point]) -> list[Point]:
    """The points of a curve: those that may be believed, by distortion, with distortion at all."""
    some = [one for one in points if one.trusted and one.distortion.value > 0.0]
    return sorted(some, key=lambda one: one.distortion.value)


def needed(points: list[Point], nats: float) -> Needed:
    """Where the upper side of a family first falls to so many nats."""
    curve = believed(points)
    logs = [(math.log(one.distortion.value), _log_upper(one)) for one in curve]
    goal = math.log(max(nats, SMALLEST))
    if logs and logs[0][1] <= goal:
        return Needed(curve[0].distortion.value, bound=True)
    for (near, above), (far, below) in pairwise(logs):
        if below <= goal:  # the first one, so that the point before is above
            return Needed(math.exp(near + (far - near) * (above - goal) / (above - below)))
    return Needed(None, believed=bool(curve))


def upper_at(points: list[Point], distortion: float) -> float | None:
    """Upper side of a family at this distortion; None below its first point.

    Beyond the last point it stays there: whoever may distort more need not.
    """
    curve = believed(points)
    if not curve or distortion < curve[0].distortion.value:
        return None
    at = [math.log(one.distortion.value) for one in curve]
    return math.exp(np.interp(math.log(distortion), at, [_log_upper(one) for one in curve]))


def _log_upper(point: Point) -> float:
    return math.log(max(point.leakage.upper.value, SMALLEST))


@dataclass(frozen=True, eq=False, repr=False)
class Frontier:
    """All points that were measured, and what they allow to say.

    `print(frontier)` shows what each family needs, a notebook also the picture. `save` and `load` keep
    everything, `plot` draws.

    Attributes:
        system: its name.
        horizon: releases per episode.
        floor: distortion per step of transport without noise, averaged along its runs.
        points: measured ones, family by family.
        seed: of all randomness.
        price: of distortion in training.
        updates: gradient steps per learned point at most.
        resolution: step of the sensor and of the releases by the name of the field; empty where states are
            taken to be real numbers.
        version: of the library that made it.
    """

    system: str
    horizon: int
    floor: Mean
    points: tuple[Point, ...]
    seed: int
    price: float
    updates: int
    resolution: dict[str, float] = field(default_factory=dict)
    version: str = __version__

    def __eq__(self, other: object) -> bool:
        """Whether all numbers and words are the same; what is not finite is unknown, hence the same."""
        return isinstance(other, Frontier) and same_result(self, other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def entropy(self) -> float:
        """H(q) in nats."""
        return self.points[0].leakage.entropy

    @property
    def kinds(self) -> list[FamilyName]:
        """The families that have points, in the order of all tables."""
        return [kind for kind in FAMILIES if self.family(kind)]

    def family(self, kind: FamilyName) -> list[Point]:
        """The points of one family by distortion; those that were measured on nothing finite are left out."""
        found = [one for one in self.points if one.goal.kind == kind and np.isfinite(one.distortion.value)]
        return sorted(found, key=lambda one: one.distortion.value)

    def needed(self, nats: float = NATS) -> dict[FamilyName, Needed]:
        """The distortion per step that each family needs for so many nats."""
        return {kind: needed(self.family(kind), nats) for kind in self.kinds}

    def above_displacement(self) -> list[tuple[Point, float]]:
        """Learned points on transport that leak more than displacement at equal distortion, and that leakage.

        A point counts if its lower side, three standard errors less, is above the upper side of displacement.
        """
        curve, above = self.family("displacement"), []
        for point in self.family("transport"):
            other = upper_at(curve, point.distortion.value)
            if other is not None and point.leakage.low > other:
                above.append((point, other))
        return above

    # Words

    @property
    def sentence(self) -> str:
        """What each family needs, what no leakage at all costs, and whether learning beats displacement."""
        floor = f"Without any leakage and any noise, transport costs {self.floor.value:.3g} per step."
        lines = [self.needs(), floor, self.compared_with_displacement(), self.doubts(), self.sensor()]
        return " ".join(line for line in lines if line)

    def sensor(self) -> str:
        """In which steps states are read and releases go out; nothing where states are real numbers."""
        steps = ", ".join(f"{name} {step:g}" for name, step in self.resolution.items())
        return f"States are read and releases emitted in steps of: {steps}." if steps else ""

    def needs(self, nats: float = NATS) -> str:
        """The distortion per family for this leakage, as a sentence."""
        wanted = self.needed(nats)
        noise = wanted.get("noise", Needed(None))
        base = {kind: None if kind == "noise" else noise for kind in wanted}
        parts = [f"{FAMILY_WORDS[kind]} {_needed_text(wanted[kind], base[kind])}" for kind in wanted]
        return (
            f"For a leakage of {nats:g} nats of {self.entropy:.3f}, by the upper side and interpolated "
            f"between the points measured, the mean distortion per step is: {'; '.join(parts)}."
        )

    def compared_with_displacement(self) -> str:
        """Whether any learned point on transport is worse than displacement; nothing where there are none."""
        learned, curve = self.family("transport"), self.family("displacement")
        if not learned or not curve:
            return ""
        seen = [one for one in learned if upper_at(curve, one.distortion.value) is not None]
        if not seen:
            return (
                "No learned point can be compared with displacement interpolation: it was not measured there."
            )
        above = self.above_displacement()
        if not above:
            rest = f", {len(learned) - len(seen)} could not be compared" if len(seen) < len(learned) else ""
            return f"Of {len(seen)} learned on transport none lies above displacement interpolation{rest}."
        every = ", ".join(
            f"weight {point.goal.value:g} (at least {point.leakage.low:.3f} nats, displacement {other:.3f})"
            for point, other in above
        )
        return (
            f"Some learned points on transport lie above displacement interpolation: {every}. They are worse "
            "than what needs no learning; train them longer (--updates)."
        )

    def doubts(self) -> str:
        """Points that may not be believed; nothing where all may."""
        names = []
        for kind in self.kinds:
            values = [f"{one.goal.value:g}" for one in self.family(kind) if not one.trusted]
            names += [f"{FAMILY_WORDS[kind]} {', '.join(values)}"] if values else []
        if not names:
            return ""
        return (
            f"Everything may leak where no bound is to be believed: {'; '.join(names)}. These points are "
            "hollow in the picture and in no curve; frontier.json says why."
        )

    def _title(self) -> str:
        return f"Frontier of {self.system}: {len(self.points)} points, {self.horizon} releases each"

    def _rows(self) -> list[tuple[str, ...]]:
        """Per family the points, the range of distortion and of leakage, and what the goal needs."""
        rows = []
        for kind, wanted in self.needed().items():
            points = self.family(kind)
            uppers = [one.leakage.upper.value for one in points]
            rows.append(
                (
                    FAMILY_WORDS[kind],
                    str(len(points)),
                    f"{points[0].distortion.value:.3g} to {points[-1].distortion.value:.3g}",
                    f"{max(uppers):.3f} to {max(min(uppers), 0.0):.3f}",
                    _needed_text(wanted, None),
                )
            )
        return rows

    def points_table(self) -> text.Table:
        """One row per point, as `veil frontier` prints them."""
        episodes = max(point.episodes for point in self.points)
        title = f"Frontier of {self.system}: {episodes} episodes of {self.horizon} releases per point"
        return text.Table(title, POINT_HEADS, [_point_row(point) for point in self.points])

    def __str__(self) -> str:
        said = textwrap.fill(self.sentence, 100)
        return "\n".join([self._title(), text.text_table(HEADS, self._rows()), said])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return text.notebook_page(self._title(), self.sentence, HEADS, self._rows(), self.plot())

    # Files

    def to_dict(self) -> Line:
        """All fields of frontier.json."""
        return {
            "unit": "nats",
            "system": self.system,
            "horizon": self.horizon,
            "resolution": self.resolution,
            "entropy": self.entropy,
            **mean_to_dict("floor", self.floor),
            "sentence": self.sentence,
            "needed": {
                kind: {"nats": NATS, "distortion": one.distortion, "bound": one.bound}
                for kind, one in self.needed().items()
            },
            "above_displacement": [point.goal.value for point, _ in self.above_displacement()],
            "points": [point.to_dict() for point in self.points],
            "training": {"price": self.price, "updates": self.updates},
            "seed": self.seed,
            "version": self.version,
        }

    def table(self) -> str:
        """The content of frontier.csv: one row per point."""
        return csv_text(COLUMNS, (point.to_dict() for point in self.points))

    def save(self, folder: Path | str) -> list[Path]:
        """Write frontier.json and frontier.csv into a folder, each in one move."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return [write_json(folder / FILE, self.to_dict()), replace_text(folder / TABLE, self.table())]

    @classmethod
    def load(cls, folder: Path | str) -> "Frontier":
        """The frontier that was saved in a folder; a `ResultError` says what is wrong with its file."""
        path = Path(folder) / FILE
        if not path.exists():
            raise ResultError(f"{folder} has no {FILE}. `veil frontier SYSTEM --out {folder}` makes it.")
        try:
            line = json.loads(path.read_text(encoding="utf-8"))
            if not line["points"] or not all(row["kind"] in FAMILIES for row in line["points"]):
                raise ValueError("points of known families are expected")
            return cls(
                system=text_of(line["system"]),
                horizon=int(line["horizon"]),
                floor=mean_from_dict(line, "floor"),
                points=tuple(map(Point.from_dict, line["points"])),
                seed=int(line["seed"]),
                price=float(line["training"]["price"]),
                updates=int(line["training"]["updates"]),
                resolution={name: float(step) for name, step in line["resolution"].items()},
                version=text_of(line["version"]),
            )
        except OSError as error:
            raise ResultError(f"{path} cannot be read ({error.strerror}).") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            again = "`veil frontier` writes it anew from its points."
            raise ResultError(f"{path} is cut short or was changed. {again}") from error

    # Pictures

    def plot(self) -> "Figure":
        """Leakage against distortion, and against the change of the cost."""
        from veil.results.frontier_plots import draw_frontier

        return draw_frontier({kind: self.family(kind) for kind in self.kinds}, self.floor, self.entropy)

    def save_picture(self, folder: Path | str) -> Path:
        """Draw frontier.png into a folder."""
        path = Path(folder) / PICTURE
        self.plot().savefig(path, dpi=130)
        return path


HEADS = ("family", "points", "distortion per step", "upper side, nats", f"needs for {NATS:g} nats")

POINT_HEADS = (
    *("family", "strength", "lower ± s.e.", "upper ± s.e.", "interval, nats"),
    *("distortion", "cost, %", "note"),
)


def _point_row(point: Point) -> tuple[str, ...]:
    goal, leakage = point.goal, point.leakage
    return (
        FAMILY_WORDS[goal.kind],
        strength(goal.kind, goal.value),
        text.mean_text(leakage.lower),
        text.mean_text(leakage.upper),
        f"[{leakage.low:.3f}, {leakage.high:.3f}]",
        text.mean_text(point.distortion),
        text.mean_text(point.change, 2),
        "" if point.trusted else point.verdict.replace("_", " "),
    )


def strength(kind: FamilyName, value: float) -> str:
    """What the number of a point means."""
    texts = {"noise": f"sd {value:g} × spread", "quantised": f"step {value:g} × spread"}
    return texts.get(kind, f"displacement {value:g}" if kind == "displacement" else f"weight {value:g}")


def _needed_text(wanted: Needed, noise: Needed | None) -> str:
    if wanted.distortion is None:
        return "not reached" if wanted.believed else "not known, no point of it is to be believed"
    said = f"{'at most ' if wanted.bound else ''}{wanted.distortion:.3g}"
    if noise is None or noise.distortion is None or noise.bound:
        return said
    ratio = noise.distortion / wanted.distortion
    times = f"{ratio:.3g} times less" if ratio >= 1.0 else f"{1 / ratio:.3g} times more"
    return f"{said} ({times} than noise)"
