"""What the paper claims and what we claim, each held against the numbers of a reproduction."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from paper.reproduction.columns import BY_NAME, NOISE, TRUE
from paper.reproduction.printed import DISTORTION, PRINTED
from paper.reproduction.summary import Summary
from veil.stats import Leakage, Mean

Answer = Literal["yes", "no", "open", "not measured"]

Found = dict[str, Summary]

Test = Callable[[Found], tuple[Answer, str]]

CONTINUOUS = ("ddpg_printed", "ddpg")

DISCRETE, OURS = "discrete", "pathwise"

THEIRS = (DISCRETE, *CONTINUOUS, NOISE)

CLOSE = 0.015  # between a printed True Data entry and ours

SLACK = 0.02  # above a printed entry of the continuous policy

SECRECY = 0.35  # mean posterior on the true secret

EXPLAINED = 0.75  # fraction of the variance of the state

FUEL = 0.2  # per cent

ERRORS = 2.0  # standard errors by which a limit may be passed

_WORDS = {"fuel": "fuel", "squared": "E[a²]", "change": "E[(Δa)²]"}


@dataclass(frozen=True)
class Claim:
    """A statement, whose it is, whether it holds here, and the numbers that say so."""

    text: str
    whose: Literal["paper", "ours"]
    answer: Answer
    evidence: str


def claims(found: Found) -> list[Claim]:
    """Every claim in turn; one whose columns are missing is not measured."""
    listed = [_claim("True Data rows within 0.015 of the printed ones", "paper", found, (TRUE,), _true_rows)]
    for name in CONTINUOUS:
        listed += _continuous(found, name)
    return listed + _ours(found)


def _continuous(found: Found, name: str) -> list[Claim]:
    """What the paper says of its continuous policy, held against one of ours that follows it."""

    def add(text: str, test: Callable[[Summary], tuple[Answer, str]]) -> Claim:
        return _claim(f"`{name}`: {text}", "paper", found, (name,), lambda all_: test(all_[name]))

    listed = [
        add("mean posterior on θ* at the end at most 0.35 for every θ*", _secrecy),
        add("θ* misdetected at more than half of the steps, for every θ*", _missed),
        add("posterior mean follows the state (three quarters of its variance or more)", _usable),
        add("mean distortion per step at most 4", _within_limit),
        add("fuel and both accelerations at most the printed continuous ones + 0.02", _printed_continuous),
        _claim(
            f"`{name}`: less fuel, E[a²] and E[(Δa)²] than the discrete policy for every θ*",
            *("paper", found, (name, DISCRETE)),
            lambda all_: _less(all_[name], all_[DISCRETE]),
        ),
    ]
    if name == BY_NAME[NOISE].like:  # no other column has the distortion of the noise
        text = f"`{name}`: leakage at most half of that of noise with the same distortion"

        def half(all_: Found) -> tuple[Answer, str]:
            return at_most(all_[name].leakage, all_[NOISE].leakage, 0.5)

        listed.append(_claim(text, "paper", found, (name, NOISE), half))
    return listed


def _ours(found: Found) -> list[Claim]:
    """What we say of our learned policy, against those that follow the paper and noise."""
    listed = []
    for other in THEIRS:
        pair = (OURS, other)
        listed.append(
            _claim(
                f"`{OURS}` leaks no more than `{other}`",
                *("ours", found, pair),
                lambda all_, other=other: at_most(all_[OURS].leakage, all_[other].leakage),
            )
        )
        listed.append(
            _claim(
                f"`{OURS}` has a tenth of the distortion of `{other}` or less",
                *("ours", found, pair),
                lambda all_, other=other: _fraction(all_[OURS].distortion, all_[other].distortion, 0.1),
            )
        )
    text = f"`{OURS}`: fuel within 0.2 % of True Data"
    return [*listed, _claim(text, "ours", found, (OURS,), lambda all_: _same_fuel(all_[OURS]))]


def _claim(
    text: str, whose: Literal["paper", "ours"], found: Found, needs: tuple[str, ...], test: Test
) -> Claim:
    missing = [name for name in needs if name not in found]
    if missing:
        return Claim(text, whose, "not measured", f"no column {', '.join(missing)}")
    return Claim(text, whose, *test(found))


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


def _true_rows(found: Found) -> tuple[Answer, str]:
    worst = {
        what: max(
            abs(mean.value - printed)
            for mean, printed in zip(getattr(found[TRUE].drive, what), rows["true"], strict=True)
        )
        for what, rows in PRINTED.items()
    }
    text = ", ".join(f"{_WORDS[what]} {value:.4f}" for what, value in worst.items())
    return _answer(max(worst.values()) <= CLOSE), f"largest differences: {text}"


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


def _printed_continuous(found: Summary) -> tuple[Answer, str]:
    above = {
        what: max(
            mean.value - printed
            for mean, printed in zip(getattr(found.drive, what), rows["continuous"], strict=True)
        )
        for what, rows in PRINTED.items()
    }
    text = ", ".join(f"{_WORDS[what]} {value:+.3f}" for what, value in above.items())
    return _answer(max(above.values()) <= SLACK), f"largest excess: {text}"


def _less(ours: Summary, theirs: Summary) -> tuple[Answer, str]:
    counts = {
        what: sum(
            a.value < b.value
            for a, b in zip(getattr(ours.drive, what), getattr(theirs.drive, what), strict=True)
        )
        for what in PRINTED
    }
    total = len(ours.drive.fuel)
    text = ", ".join(f"{_WORDS[what]} for {count} of {total}" for what, count in counts.items())
    return _answer(min(counts.values()) == total), f"less {text}"


def _fraction(ours: Mean, theirs: Mean, limit: float) -> tuple[Answer, str]:
    ratio = ours.value / theirs.value if theirs.value > 0 else math.inf
    return _answer(ratio <= limit), f"{ours.value:.3f} against {theirs.value:.3f}: {ratio:.3f}"


def _same_fuel(found: Summary) -> tuple[Answer, str]:
    mean = found.drive.overall
    return _answer(abs(mean.value) <= FUEL), f"{mean.value:+.3f} % ± {mean.error:.3f}"


def _each(means: tuple[Mean, ...], digits: int) -> str:
    return ", ".join(f"{mean.value:.{digits}f} ± {mean.error:.{digits}f}" for mean in means)
