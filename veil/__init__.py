"""Veil: share your data, keep your parameters.

The verbs and their settings are here: `veil.audit` and `veil.AuditSettings`, `veil.train` and
`veil.TrainSettings`, and so on. Classes are in the modules, as `veil.systems.Platoon`. A name is imported
when it is first used, so that `import veil` is quick. docs/stability.md lists every name.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from veil import attacks as attacks
    from veil import beliefs as beliefs
    from veil import checks as checks
    from veil import distortion as distortion
    from veil import evaluation as evaluation
    from veil import executors as executors
    from veil import fitting as fitting
    from veil import frontier as frontier
    from veil import laws as laws
    from veil import leakage as leakage
    from veil import learners as learners
    from veil import policies as policies
    from veil import problem as problem
    from veil import recordings as recordings
    from veil import reports as reports
    from veil import results as results
    from veil import rollout as rollout
    from veil import settings as settings
    from veil import sharing as sharing
    from veil import step as step
    from veil import systems as systems
    from veil.checks import check_attack, check_learner, check_measure, check_policy, check_system
    from veil.evaluation.audit import audit
    from veil.evaluation.episodes import simulate
    from veil.evaluation.evaluate import evaluate
    from veil.fitting.fit import fit
    from veil.leakage import mutual_information
    from veil.learners.training import train
    from veil.recordings.measure import measure
    from veil.recordings.reader import read_recording
    from veil.reports import report
    from veil.settings import (
        AuditSettings,
        FitSettings,
        MeasureSettings,
        PolicyDesign,
        ReadSettings,
        SimulateSettings,
        TrainSettings,
    )
    from veil.sharing import Sharer
    from veil.version import __version__

_HOMES = {
    "veil.checks": ("check_attack", "check_learner", "check_measure", "check_policy", "check_system"),
    "veil.evaluation.audit": ("audit",),
    "veil.evaluation.episodes": ("simulate",),
    "veil.evaluation.evaluate": ("evaluate",),
    "veil.fitting.fit": ("fit",),
    "veil.leakage": ("mutual_information",),
    "veil.learners.training": ("train",),
    "veil.recordings.measure": ("measure",),
    "veil.recordings.reader": ("read_recording",),
    "veil.reports": ("report",),
    "veil.settings": (
        "AuditSettings",
        "FitSettings",
        "MeasureSettings",
        "PolicyDesign",
        "ReadSettings",
        "SimulateSettings",
        "TrainSettings",
    ),
    "veil.sharing": ("Sharer",),
    "veil.version": ("__version__",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = (
    *(
        "attacks",
        "beliefs",
        "checks",
        "distortion",
        "evaluation",
        "executors",
        "fitting",
        "frontier",
        "laws",
        "leakage",
        "learners",
    ),
    *("policies", "problem", "recordings", "reports", "results", "rollout", "settings", "sharing", "step"),
    "systems",
)

__all__ = [
    "AuditSettings",
    "FitSettings",
    "MeasureSettings",
    "PolicyDesign",
    "ReadSettings",
    "Sharer",
    "SimulateSettings",
    "TrainSettings",
    "__version__",
    "audit",
    "check_attack",
    "check_learner",
    "check_measure",
    "check_policy",
    "check_system",
    "evaluate",
    "fit",
    "measure",
    "mutual_information",
    "read_recording",
    "report",
    "simulate",
    "train",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _import_module(f"veil.{name}")  # binds itself to the package
    if name not in _HOME:
        raise AttributeError(f"module 'veil' has no attribute {name!r}; it offers {', '.join(__dir__())}.")
    value = globals()[name] = getattr(_import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted((*__all__, *_MODULES))
