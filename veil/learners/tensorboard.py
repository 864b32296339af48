"""Metrics as event files of TensorBoard (`pip install 'veil[tensorboard]'`)."""

import importlib.util
import json
import math
from collections.abc import Mapping
from pathlib import Path

from veil.learners.store import StoreError


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
