"""What the paper claims in its own words, and what we claim, each held against the numbers of a reproduction.

The paper states no thresholds. Those that decide here are ours, and every claim names its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from paper.reproduction.columns import BY_NAME, NOISE, PRINTED_LEARNER, TRUE
from paper.reproduction.printed import DISTORTION, PRINTED, Who
from paper.reproduction.summary import Summary
from veil.stats import Leakage, Mean

Answer = Literal["yes", "no", "open", "calibrated", "untestable", "not measured"]

Found = dict[str, Summary]

Test = Callable[[Found], tuple[Answer, str]]

CONTINUOUS = (PRINTED_LEARNER, "ddpg_printed_best", "ddpg")

DISCRETE, OURS = "discrete_printed", "pathwise"

DISCRETES = (DISCRETE, "discrete")

BLIND = ("constant", "uniform")

THEIRS = (*DISCRETES, PRINTED_LEARNER, "ddpg", NOISE)

CLOSE = 0.015  # between a printed True Data entry and ours

SLACK = 0.02  # between another printed entry and ours

SECRECY = 0.35  # mean posterior on the true secret

EXPLAINED = 0.75  # fraction of the variance of the state

FUEL = 0.2  # per cent

ERRORS = 2.0  # standard errors by which a limit may be passed

_WORDS = {"fuel": "fuel", "squared": "E[a²]", "change": "E[(Δa)²]"}


@dataclass(frozen=True)
class Claim:
    """A statement, whose it is, what decides it, and the numbers that do.

    Attributes:
        text: in the words of whoever claims it.
        whose: the paper's; ours; or the paper's, held against a release that looks at nothing ("blind").
        threshold: that we chose.
        policy: column that it is held against; empty where there is none.
        answer: "calibrated" where numbers of ours were chosen so that it holds.
        evidence: numbers.
    """

    text: str
    whose: Literal["paper", "ours", "blind"]
    threshold: str
    policy: str
    answer: Answer
    evidence: str


_LOW = "“the posterior mass on θ* remains low across all cases, indicating limited privacy leakage”"
_MISSED = "“consistent with the frequent misdetections observed in the estimator output”"
_MATCHES = "“the posterior mean closely matches the true velocity and spacing”"
_LIMIT = "“an upper bound on expected total distortion D̂ = 200”"
_BASELINE = "“stays very close to the ‘true data’ baseline”"
_CONTINUOUS = "Tables 1 and 2, column Continuous Policy"
_DISCRETE = "Tables 1 and 2, column Discrete Policy"

OPEN = (
    ("Figures 1 and 2 as curves", "the source of the paper that we have holds no images"),
    ("the spread over trainings", "the paper names no number of trainings, seeds or runs behind its tables"),
    ("the grid of the Discrete Policy", "not printed; here 5 by 5 points within ± 2.5 m/s and ± 5 m"),
)
"""What is said and cannot be held against numbers, and why."""


def claims(found: Found) -> list[Claim]:
    """Every claim in turn; one whose columns are missing is not measured."""
    text, limit = "Tables 1 and 2, column True Data", f"every entry within {CLOSE}"
    listed = [_claim(text, "paper", limit, TRUE, found, (), _true_rows)]
    for name in CONTINUOUS:
        listed += _alone(found, name, "paper") + _against_discrete(found, name)
    listed += [_entries(found, name, "paper", "discrete") for name in DISCRETES]
    listed += [Claim(text, "paper", "none", "", "untestable", why) for text, why in OPEN]
    for name in BLIND:
        listed += [*_alone(found, name, "blind"), _entries(found, name, "blind", "discrete")]
    return listed + _ours(found)


def _alone(found: Found, name: str, whose: Literal["paper", "blind"]) -> list[Claim]:
    """What the paper says of its continuous policy, held against one policy."""

    def add(text: str, threshold: str, test: Callable[[Summary], tuple[Answer, str]]) -> Claim:
        return _claim(text, whose, threshold, name, found, (), lambda all_: test(all_[name]))

    near = f"fuel within {SLACK} mL/s of True Data for every θ*"
    return [
        add(_LOW, f"mean posterior on θ* at the end at most {SECRECY} for every θ*", _secrecy),
        add(_MISSED, "θ* misdetected at more than half of the steps, for every θ*", _missed),
        add(_MATCHES, f"at least {EXPLAINED:.0%} of the variance of speed and spacing explained", _usable),
        add(_LIMIT, f"mean distortion per step at most {DISTORTION:g}, the 200 over 50 steps", _within_limit),
        _claim(_BASELINE, whose, near, name, found, (TRUE,), lambda all_: _same_as(all_[name], all_[TRUE])),
        _entries(found, name, whose, "continuous"),
    ]


def _entries(found: Found, name: str, whose: Literal["paper", "blind"], who: Who) -> Claim:
    """Whether a policy drives as a printed column says."""
    text = _CONTINUOUS if who == "continuous" else _DISCRETE
    limit = f"every entry within {SLACK}"
    return _claim(text, whose, limit, name, found, (), lambda all_: _printed(all_[name], who))


def _against_discrete(found: Found, name: str) -> list[Claim]:
    """What the paper says of its continuous policy beside its discrete one."""

    def add(text: str, threshold: str, test: Callable[[Summary, Summary], tuple[Answer, str]]) -> Claim:
        return _claim(
            text, "paper", threshold, name, found, (DISCRETE,), lambda all_: test(all_[name], all_[DISCRETE])
        )

    listed = [
        add(
            "“consistently yields lower expected fuel consumption than the discrete policy”",
            "less fuel for every θ*",
            lambda a, b: _less(a, b, "fuel"),
        ),
        add(
            "“E[a²] under the continuous policy is about 1.15×–1.55× smaller than under the discrete policy”",
            "smaller for every θ* (the printed entries give 1.10 to 1.58)",
            lambda a, b: _less(a, b, "squared"),
        ),
        add(
            "“E[(Δa)²] is lower than that of the discrete policy for all θ*”",
            "lower for every θ*",
            lambda a, b: _less(a, b, "change"),
        ),
    ]
    if name == BY_NAME[NOISE].like:  # no other column has the distortion of the noise
        text = "“the learned policy substantially impedes inference”"
        threshold = "leakage at most half of that of noise with the same distortion"

        def half(all_: Found) -> tuple[Answer, str]:
            return at_most(all_[name].leakage, all_[NOISE].leakage, 0.5)

        listed.append(_claim(text, "paper", threshold, name, found, (NOISE,), half))
    return listed


def _ours(found: Found) -> list[Claim]:
    """What we say of our learned policy, against those that follow the paper and noise."""
    listed = []
    for other in THEIRS:
        listed.append(
            _claim(
                f"`{OURS}` leaks no more than `{other}`",
                *("ours", "two standard errors", OURS, found, (other,)),
                lambda all_, other=other: at_most(all_[OURS].leakage, all_[other].leakage),
            )
        )
        listed.append(
            _claim(
                f"`{OURS}` has a tenth of the distortion of `{other}` or less",
                *("ours", "0.1", OURS, found, (other,)),
                lambda all_, other=other: _fraction(all_[OURS].distortion, all_[other].distortion, 0.1),
            )
        )
    text = f"`{OURS}`: fuel within {FUEL} % of True Data"
    return [*listed, _claim(text, "ours", f"{FUEL} %", OURS, found, (), lambda all_: _same_fuel(all_[OURS]))]


def _claim(
    text: str,
    whose: Literal["paper", "ours", "blind"],
    threshold: str,
    policy: str,
    found: Found,
    others: tuple[str, ...],
    test: Test,
) -> Claim:
    missing = [name for name in (policy, *others) if name not in found]
    if missing:
        return Claim(text, whose, threshold, policy, "not measured", f"no column {', '.join(missing)}")
    return Claim(text, whose, threshold, policy, *test(found))


def at_most(ours: Leakage, theirs: Leakage, factor: float = 1.0) -> tuple[Answer, str]:
    """Whether one leakage is at most a factor of another, as far as both intervals tell.

    A side that no method bounds is all of H(q), so that nothing follows from it.
    """
    limit = f"{factor:g} × ({_nats(theirs)})" if factor != 1.0 else _nats(theirs)
    evidence = f"{_nats(ours)} against {limit}"
    above = ours.upper.value - factor * theirs.lower.value
    surely = ours.lower.value - factor * theirs.upper.value
    # An error that is not known is infinite, and decides nothing.
    if above <= ERRORS * math.hypot(ours.upper.error, factor * theirs.lower.error) < math.inf:
        return "yes", evidence
    if surely > ERRORS * math.hypot(ours.lower.error, factor * theirs.upper.error):
        return "no", evidence
    return "open", evidence


def _nats(found: Leakage) -> str:
    return f"{max(found.lower.value, 0.0):.3f} to {found.upper.value:.3f} nats"


def _answer(holds: bool) -> Answer:
    return "yes" if holds else "no"


def _differences(found: Summary, who: Who) -> dict[str, list[float]]:
    """Of all entries from the printed ones."""
    return {
        what: [mean.value - entry for mean, entry in zip(getattr(found.drive, what), rows[who], strict=True)]
        for what, rows in PRINTED.items()
    }


def _largest(differences: dict[str, list[float]]) -> tuple[float, str]:
    worst = {what: max(values, key=abs) for what, values in differences.items()}
    text = ", ".join(f"{_WORDS[what]} {value:+.4f}" for what, value in worst.items())
    return max(map(abs, worst.values())), f"largest differences: {text}"


def _true_rows(found: Found) -> tuple[Answer, str]:
    """Noise and leader were chosen for these rows: that they fit says nothing about the paper."""
    largest, text = _largest(_differences(found[TRUE], "true"))
    return "calibrated" if largest <= CLOSE else "no", text


def _printed(found: Summary, who: Who) -> tuple[Answer, str]:
    largest, text = _largest(_differences(found, who))
    return _answer(largest <= SLACK), text


def _secrecy(found: Summary) -> tuple[Answer, str]:
    if found.reader is None:
        return "not measured", "no reader"
    masses = found.reader.posterior
    return _answer(max(mean.value for mean in masses) <= SECRECY), _each(masses, 2)


def _missed(found: Summary) -> tuple[Answer, str]:
    if found.reader is None:
        return "not measured", "no reader"
    return _answer(min(mean.value for mean in found.reader.missed) > 0.5), _each(found.reader.missed, 2)


def _usable(found: Summary) -> tuple[Answer, str]:
    if found.reader is None:
        return "not measured", "no reader"
    speed, spacing = found.reader.tracking
    text = f"{found.reader.explained:.0%} explained; errors {speed:.3f} m/s and {spacing:.3f} m"
    return _answer(found.reader.explained >= EXPLAINED), text


def _within_limit(found: Summary) -> tuple[Answer, str]:
    mean = found.distortion
    return _answer(mean.value <= DISTORTION + ERRORS * mean.error), f"{mean.value:.3f} ± {mean.error:.3f}"


def _same_as(ours: Summary, true: Summary) -> tuple[Answer, str]:
    apart = [a.value - b.value for a, b in zip(ours.drive.fuel, true.drive.fuel, strict=True)]
    text = ", ".join(f"{value:+.3f}" for value in apart)
    return _answer(max(map(abs, apart)) <= SLACK), f"{text} mL/s"


def _less(ours: Summary, theirs: Summary, what: str) -> tuple[Answer, str]:
    pairs = list(zip(getattr(ours.drive, what), getattr(theirs.drive, what), strict=True))
    ratios = [b.value / a.value for a, b in pairs]
    text = ", ".join(f"{ratio:.3f}" for ratio in ratios)
    return _answer(min(ratios) > 1.0), f"discrete over continuous: {text}"


def _fraction(ours: Mean, theirs: Mean, limit: float) -> tuple[Answer, str]:
    ratio = ours.value / theirs.value if theirs.value > 0 else math.inf
    return _answer(ratio <= limit), f"{ours.value:.3f} against {theirs.value:.3f}: {ratio:.3f}"


def _same_fuel(found: Summary) -> tuple[Answer, str]:
    mean = found.drive.overall
    return _answer(abs(mean.value) <= FUEL), f"{mean.value:+.3f} % ± {mean.error:.3f}"


def _each(means: tuple[Mean, ...], digits: int) -> str:
    return ", ".join(f"{mean.value:.{digits}f} ± {mean.error:.{digits}f}" for mean in means)
