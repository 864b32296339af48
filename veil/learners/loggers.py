"""Whom a training tells its metrics."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable


@runtime_checkable
class Logger(Protocol):
    """Three methods, called in this order; a training that goes on starts its loggers anew."""

    def start(self, settings: Mapping[str, object]) -> None:
        """Once, before anything is logged.

        Args:
            settings: of the training. Where it goes on, `update` says after how many updates; what was logged
                of later ones is void.
        """

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """The metrics after an update; step 0 is the look at the policy that training starts from."""

    def close(self) -> None:
        """Once, also after an error or Ctrl-C."""


class JsonLines:
    """One JSON object per line and update. A training that goes on drops the lines after its checkpoint."""

    def __init__(self, path: Path):
        self.path = path

    def start(self, settings: Mapping[str, object]) -> None:
        """Keep the lines of the updates that were made before."""
        made = settings.get("update")
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        kept = [line for line in lines if isinstance(made, int) and _update(line) <= made]
        self.path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One line, on disk before the next update."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**values, "update": float(step)}) + "\n")

    def close(self) -> None:
        """Nothing is open."""


def _update(line: str) -> float:
    """Which update a line of metrics speaks of; infinity for one that was cut short."""
    try:
        return float(json.loads(line)["update"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
