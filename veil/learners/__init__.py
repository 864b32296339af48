"""Learning to share: one train loop, learners that plug into it, and the policies they begin with.

Names are imported when first used: the command line reads the options without loading the rest.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veil.learners.a2c import A2c
    from veil.learners.base import Family, Learner, Metrics, Progress
    from veil.learners.design import designed
    from veil.learners.loggers import JsonLines, Logger
    from veil.learners.looks import Look, examine
    from veil.learners.loop import Trained, train
    from veil.learners.options import Design, Training
    from veil.learners.pathwise import Pathwise
    from veil.learners.store import StoreError, load_arrays, save_arrays
    from veil.learners.units import usual

__all__ = [
    "A2c",
    "Design",
    "Family",
    "JsonLines",
    "Learner",
    "Logger",
    "Look",
    "Metrics",
    "Pathwise",
    "Progress",
    "StoreError",
    "Trained",
    "Training",
    "designed",
    "examine",
    "load_arrays",
    "save_arrays",
    "train",
    "usual",
]

_HOMES = {
    "a2c": ("A2c",),
    "base": ("Family", "Learner", "Metrics", "Progress"),
    "design": ("designed",),
    "loop": ("Trained", "train"),
    "loggers": ("JsonLines", "Logger"),
    "looks": ("Look", "examine"),
    "options": ("Design", "Training"),
    "pathwise": ("Pathwise",),
    "store": ("StoreError", "load_arrays", "save_arrays"),
    "units": ("usual",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'veil.learners' has no attribute {name!r}")
    return getattr(importlib.import_module(f"veil.learners.{_HOME[name]}"), name)
