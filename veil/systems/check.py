"""Examine a system before trusting it: is the contract kept, and which methods apply?"""

from veil.systems import check_values
from veil.systems.base import System
from veil.systems.check_shapes import check_fields, check_prior, check_shapes
from veil.systems.probes import run_probes
from veil.systems.report import Finding, Support, SystemReport, guarded, raised

_GRADIENTS = ("gradient-transition", "gradient-react", "gradient-distortion", "gradient-cost")

# What each method needs, and the rules whose findings rule it out.
METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "particle belief": ("Needs draws of the transition only.", ()),
    "guided proposals": ("The transition is Gaussian with a density.", ("degenerate-transition",)),
    "kalman belief": ("", ("gradient-transition",)),
    "observed likelihood": (
        "The output is the state and the transition has a density.",
        ("partial-output", "degenerate-transition"),
    ),
    "transport": (
        "The output is linear in the state, so its moments per secret are known.",
        ("bent-output",),
    ),
    "counterfactual": (
        "All secrets start alike and the transition's noise can be recovered.",
        ("initial-secret", "degenerate-transition"),
    ),
    "pathwise learning": ("Every function has usable gradients.", _GRADIENTS),
}

_KALMAN = {
    False: "Exact under linear Gaussian kernels: the transition is linear with constant noise.",
    True: "By linearisation only: the transition is not linear with constant noise.",
}

CHECKS = {
    "finite": check_values.check_finite,
    "range": check_values.check_ranges,
    "secret": check_values.check_secret,
    "gradient": check_values.check_gradients,
    "density": check_values.check_density,
    "structure": check_values.check_structure,
}


def check_system(system: System | object) -> SystemReport:
    """Examine a system at a few points of its own closed loop. Never raises: faults become findings.

    Shapes and types come first; values, gradients and densities are looked at only once those are right.
    """
    name = type(system).__name__
    if not isinstance(system, System):
        message = f"{name} is not a System; subclass veil.systems.System and implement its methods."
        return _early(name, [Finding("error", "system", message)])
    findings = guarded("prior", lambda: check_prior(system))
    findings += guarded("shape", lambda: check_shapes(system))
    findings += guarded("fields", lambda: check_fields(system))
    if any(finding.level == "error" for finding in findings):
        return _early(name, findings)
    try:
        points = run_probes(system)
    except Exception as error:
        return _early(name, [*findings, raised("run", error)])
    for rule, check in CHECKS.items():
        findings += guarded(rule, lambda check=check: check(system, points))
        if any(finding.rule == "finite" for finding in findings):
            return _early(name, findings)
    return SystemReport(name, tuple(findings), _supports(findings))


def _early(name: str, findings: list[Finding]) -> SystemReport:
    """A report that ends at faults which hide everything else."""
    return SystemReport(name, tuple(findings), _none())


def _supports(findings: list[Finding]) -> dict[str, Support]:
    """Verdicts from the rules that spoke."""
    if any(finding.level == "error" for finding in findings):
        return _none()
    spoken = {finding.rule: finding.message for finding in findings}
    bent = "nonlinear" in spoken or "noise-varies" in spoken
    verdicts = {}
    for method, (reason, hindrances) in METHODS.items():
        against = " ".join(spoken[rule] for rule in hindrances if rule in spoken)
        verdicts[method] = Support(not against, against or reason or _KALMAN[bent])
    return verdicts


def _none() -> dict[str, Support]:
    return {method: Support(False, "Mend the errors first.") for method in METHODS}
