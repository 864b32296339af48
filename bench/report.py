"""Tables for people, JSON for programs, and what the machine was."""

import json
import math
import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

console = Console(width=None if os.isatty(1) else 120, highlight=False)

PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "torch", "pykeops", "particles", "numba")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> None:
    """Print a table; the first column is text, the others are numbers."""
    shown = Table(title=title, title_justify="left", title_style="bold", caption=note or None)
    shown.caption_justify = "left"
    for place, column in enumerate(columns):
        shown.add_column(column, justify="left" if place == 0 else "right", no_wrap=place == 0)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)
    console.print()


def verdict(value: float, *, at_least: float = -math.inf, at_most: float = math.inf) -> str:
    """PASS, or on which side of what was asked. Never an error: speed depends on the day."""
    if value < at_least:
        return "[yellow]below[/]"
    return "[yellow]above[/]" if value > at_most else "[green]PASS[/]"


def duration(seconds: float) -> str:
    """Three digits with a unit that suits."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.2g} µs"


def machine() -> dict[str, Any]:
    """What a reader needs to judge the numbers."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "python": platform.python_version(),
        "packages": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of what takes part."""
    return {name: version for name in PACKAGES if (version := _version(name))}


def write(folder: Path, name: str, content: object) -> None:
    """One JSON file per comparison."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")


def missing(name: str) -> bool:
    """Whether a peer is not installed; says so in one line."""
    if _version(name):
        return False
    console.print(f"{name} is not installed here and sits out; `make bench` installs it.")
    return True


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
