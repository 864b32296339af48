"""The frontier: what privacy costs, for several ways of sharing at several strengths.

Names are imported when first used: the command line reads the options without loading the rest.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veil.frontier.engine import trace
    from veil.frontier.floor import zero_leakage_floor
    from veil.frontier.options import Extent, Goal
    from veil.frontier.point import Frontier, Point

__all__ = ["Extent", "Frontier", "Goal", "Point", "trace", "zero_leakage_floor"]

_HOMES = {
    "engine": ("trace",),
    "floor": ("zero_leakage_floor",),
    "options": ("Extent", "Goal"),
    "point": ("Frontier", "Point"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'veil.frontier' has no attribute {name!r}")
    return getattr(importlib.import_module(f"veil.frontier.{_HOME[name]}"), name)
