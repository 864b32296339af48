"""Whom a training tells its metrics."""

import importlib.util
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from veil.io import StoreError


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
        """The metrics after an update; step 0 is the evaluation of the policy that training starts from."""

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
        """Do nothing: the file is closed after every line."""


def _update(line: str) -> float:
    """Which update a line of metrics speaks of; infinity for one that was cut short."""
    try:
        return float(json.loads(line)["update"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


class TensorBoard:
    """A `Logger`: one curve per metric, over updates."""

    def __init__(self, folder: Path):
        if importlib.util.find_spec("tensorboardX") is None:
            raise StoreError(
                "--log tensorboard needs the package tensorboardX; install it with "
                "`pip install 'veil[tensorboard]'`."
            )
        self.folder, self.writer = folder, None

    def start(self, settings: Mapping[str, object]) -> None:
        """Open a file; where a training goes on, curves after its checkpoint are hidden."""
        from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]

        made = settings.get("update")
        self.writer = SummaryWriter(str(self.folder), purge_step=made + 1 if isinstance(made, int) else None)
        self.writer.add_text("settings", f"```json\n{json.dumps(dict(settings), indent=2)}\n```", 0)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """All that is a finite number."""
        assert self.writer is not None, "start() comes first"
        for name, value in values.items():
            if name != "update" and math.isfinite(value):
                self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        if self.writer is not None:
            self.writer.close()
