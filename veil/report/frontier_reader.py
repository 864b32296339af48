"""What `frontier.json` says, as the points that it was written from."""

import json
from pathlib import Path

from veil.report.blocks import ReportError
from veil.results.frontier import Frontier
from veil.results.frontier_file import point_from
from veil.settings import FAMILIES, FrontierGoal
from veil.stats import Mean

FRONTIER = "frontier.json"


def read_frontier(folder: Path) -> tuple[Frontier, str]:
    """The frontier in this folder and its own words about it; `ReportError` if it cannot be used."""
    path = folder / FRONTIER
    if not path.exists():
        raise ReportError(f"{folder} has no {FRONTIER}. `veil frontier SYSTEM --out {folder}` makes it.")
    try:
        line = json.loads(path.read_text(encoding="utf-8"))
        if not line["points"] or not all(row["kind"] in FAMILIES for row in line["points"]):
            raise ValueError("points of known families are expected")
        points = tuple(
            point_from(row, FrontierGoal(row["kind"], float(row["value"]))) for row in line["points"]
        )
        floor = Mean(float(line["floor"]), float(line["floor_error"]))
        training = line["training"]
        found = Frontier(
            str(line["system"]),
            int(line["horizon"]),
            floor,
            points,
            int(line["seed"]),
            float(training["price"]),
            int(training["updates"]),
        )
        return found, str(line["sentence"])
    except OSError as error:
        raise ReportError(f"{path} cannot be read ({error.strerror}).") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReportError(
            f"{path} is cut short or was changed. `veil frontier` writes it anew from its points."
        ) from error
