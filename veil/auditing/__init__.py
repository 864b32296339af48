"""The audit: two-sided leakage of a whole run, the attacks, the gate and the verdict.

Names are imported when first used: the command line reads the options without loading the rest.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veil.auditing.engine import audit
    from veil.auditing.options import Options
    from veil.auditing.result import Audit
    from veil.auditing.simulation import simulate
    from veil.auditing.store import Store, fingerprint
    from veil.auditing.transcripts import TranscriptError, load, save
    from veil.auditing.worlds import World, other_worlds

__all__ = [
    "Audit",
    "Options",
    "Store",
    "TranscriptError",
    "World",
    "audit",
    "fingerprint",
    "load",
    "other_worlds",
    "save",
    "simulate",
]

_HOMES = {
    "engine": ("audit",),
    "options": ("Options",),
    "result": ("Audit",),
    "simulation": ("simulate",),
    "store": ("Store", "fingerprint"),
    "transcripts": ("TranscriptError", "load", "save"),
    "worlds": ("World", "other_worlds"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'veil.auditing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"veil.auditing.{_HOME[name]}"), name)
