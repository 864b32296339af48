"""What a recorded trajectory tells about the secret behind it, if it were shared in a given way.

Names are imported when first used: the command line reads the options without loading the rest.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veil.measuring.engine import measure
    from veil.measuring.log import Log, LogError
    from veil.measuring.options import Options
    from veil.measuring.reading import read
    from veil.measuring.result import Measurement

__all__ = ["Log", "LogError", "Measurement", "Options", "measure", "read"]

_HOMES = {
    "engine": ("measure",),
    "log": ("Log", "LogError"),
    "options": ("Options",),
    "reading": ("read",),
    "result": ("Measurement",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'veil.measuring' has no attribute {name!r}")
    return getattr(importlib.import_module(f"veil.measuring.{_HOME[name]}"), name)
