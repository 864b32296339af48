"""Veil: share your data, keep your parameters.

Names are imported when first used, so that `import veil` costs nothing. Episodes are played by the functions
of the module `veil.rollout` (`from veil.rollout import rollout, follow`).
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veil.beliefs import KalmanBelief, ObservedBelief, ParticleBelief
    from veil.checks.attack import check_attack
    from veil.checks.learner import check_learner
    from veil.checks.measure import check_measure
    from veil.checks.policy import check_policy
    from veil.checks.system import check_system
    from veil.distortion import expected_distance
    from veil.evaluation.audit import audit
    from veil.laws import Gaussian
    from veil.leakage import mutual_information
    from veil.learners.training import learn
    from veil.policies import (
        Blind,
        Counterfactual,
        GaussianNoise,
        Policy,
        Quantised,
        Subsampled,
        Transport,
        Truth,
    )
    from veil.sharing import Accountant, BudgetError, Sharer, budgeted
    from veil.systems import (
        ColouredPlatoon,
        Field,
        Gain,
        Platoon,
        Prior,
        System,
        finite_prior,
        quasi_random_prior,
    )

    __version__: str

__all__ = [
    "Accountant",
    "Blind",
    "BudgetError",
    "ColouredPlatoon",
    "Counterfactual",
    "Field",
    "Gain",
    "Gaussian",
    "GaussianNoise",
    "KalmanBelief",
    "ObservedBelief",
    "ParticleBelief",
    "Platoon",
    "Policy",
    "Prior",
    "Quantised",
    "Sharer",
    "Subsampled",
    "System",
    "Transport",
    "Truth",
    "__version__",
    "audit",
    "budgeted",
    "check_attack",
    "check_learner",
    "check_measure",
    "check_policy",
    "check_system",
    "expected_distance",
    "finite_prior",
    "learn",
    "mutual_information",
    "quasi_random_prior",
]

_HOMES = {
    "veil.beliefs": ("KalmanBelief", "ObservedBelief", "ParticleBelief"),
    "veil.checks": ("check_attack", "check_learner", "check_measure", "check_policy", "check_system"),
    "veil.distortion": ("expected_distance",),
    "veil.evaluation.audit": ("audit",),
    "veil.laws": ("Gaussian",),
    "veil.leakage": ("mutual_information",),
    "veil.learners": ("learn",),
    "veil.policies": (
        *("Blind", "Counterfactual", "GaussianNoise", "Policy", "Quantised"),
        *("Subsampled", "Transport", "Truth"),
    ),
    "veil.sharing": ("Accountant", "BudgetError", "Sharer", "budgeted"),
    "veil.systems": (
        *("ColouredPlatoon", "Field", "Gain", "Platoon", "Prior", "System"),
        *("finite_prior", "quasi_random_prior"),
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = (
    *(
        "attacks",
        "beliefs",
        "checks",
        "distortion",
        "evaluation",
        "frontier",
        "laws",
        "leakage",
    ),
    *("learners", "policies", "problem", "recordings", "report", "results", "rollout", "scenarios"),
    *("settings", "sharing", "step", "systems"),
)


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _MODULES:
        return importlib.import_module(f"veil.{name}")  # binds itself to the package
    elif name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value = version("veil")
        except PackageNotFoundError:  # run from the sources
            value = "0+unknown"
    else:
        raise AttributeError(f"module 'veil' has no attribute {name!r}; it offers {', '.join(__all__)}.")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
