"""Verdicts: whether a leakage may be believed, of a policy in simulation or of one recording.

The rules are asked in a fixed order, and every number that they look at is an input of the verdict. The
first rule that applies names it (`veil.results.parts.VERDICTS`). A filter that is broken refuses to certify,
whether it claims a small leakage or a large one.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from veil.evaluation.scoring import Method
from veil.results.measurement import DISAGREE, FEWEST_SAMPLES, LEAK_FRACTION
from veil.results.parts import LEVEL, AttackResult, Examination, Verdict
from veil.results.recording_fit import FEWEST, RecordingFit
from veil.stats import ERRORS, Leakage, Mean, accuracy_from_information, information_from_accuracy, several

NEAR = 0.05  # a lower bound this near to H(q) is a proven leak

TOO_BAD = 0.02  # fraction of episodes that may be charged the most possible

CALIBRATION_ERRORS, CALIBRATION_SLACK = 4.0, 0.01

RANK_LEVEL = 1e-4

TWO_SIDED = 1.96  # standard errors of a 95 % interval


def width_limit(entropy: float) -> float:
    """How far apart the two sides may be."""
    return max(0.05, 0.03 * entropy)


@dataclass(frozen=True)
class VerdictInputs:
    """All that the rules for a policy look at.

    Attributes:
        leakage: from both sides.
        bad: fraction of episodes that the pilots did not agree on.
        calibration: of the auditor's forecast.
        vulnerability: Bayes vulnerability by the auditor's forecast.
        ranks: (E, N) of the true last state among the particles; None without particles.
        attacks: all adversaries.
        mismatch: number of episodes whose replayed features differ in any bit.
        failed: fraction of episodes with a number that is not finite.
        method: how the upper side was found; None where no method applies.
        told: what a reader is told who stands for the filter from above, and on which share of the episodes;
            None where nobody does.
    """

    leakage: Leakage
    bad: float
    calibration: Mean
    vulnerability: Mean
    ranks: np.ndarray | None
    attacks: tuple[AttackResult, ...]
    mismatch: int
    failed: float
    method: Method | None
    told: tuple[str, float] | None = None

    @property
    def loose(self) -> bool:
        """Whether the filter is too poor to be judged, which a reader who is told more makes up for."""
        return self.told is not None and (
            self.told[1] > TOO_BAD or not self.leakage.width <= width_limit(self.leakage.entropy)
        )


def reach_verdict(measured: VerdictInputs, chance: float) -> Verdict:
    """Ask the rules in order; the first that applies names the verdict."""
    leakage, inputs = measured.leakage, _inputs(measured, chance)
    rules = {
        "replay_mismatch": _replay(measured),
        "certified_leak": _leak(inputs, leakage),
        "no_upper_bound": _method(measured),
        "not_enough_particles": _particles(measured, inputs),
        "filter_inconsistent": _consistency(inputs, measured.loose),
    }
    for name, reasons in rules.items():
        if reasons:
            return Verdict(name, tuple(reasons), inputs)
    return Verdict("certifiable", (), inputs)


def _inputs(measured: VerdictInputs, chance: float) -> dict[str, float | str | bool]:
    """Every number that the rules look at, by name."""
    leakage, fair = measured.leakage, [row for row in measured.attacks if row.role == "attack"]
    errors = several(len(fair) + 1)
    best = max([leakage.lower.low(errors), *(row.lower.low(errors) for row in fair)], default=0.0)
    # The 95 % interval of each accuracy, widened to the level at which the best of several is judged.
    accuracies = {
        row.name: row.accuracy.value - errors / TWO_SIDED * (row.accuracy.value - row.accuracy.low)
        for row in fair
    }
    fastest = max(accuracies, key=lambda name: accuracies[name], default="")
    return {
        "lower": leakage.lower.value,
        "lower_error": leakage.lower.error,
        "upper": leakage.upper.value,
        "upper_error": leakage.upper.error,
        "upper_limit": leakage.high,
        "entropy": leakage.entropy,
        "width": leakage.width,
        "width_limit": width_limit(leakage.entropy),
        "bad_fraction": measured.bad,
        "bad_limit": TOO_BAD,
        "failed_fraction": measured.failed,
        "method": measured.method or "none",
        "told": "" if measured.told is None else measured.told[0],
        "told_fraction": 0.0 if measured.told is None else measured.told[1],
        "calibration": measured.calibration.value,
        "calibration_limit": -(CALIBRATION_ERRORS * measured.calibration.error + CALIBRATION_SLACK),
        "rank_p": _rank_test(measured.ranks),
        "rank_limit": RANK_LEVEL,
        "replay_mismatches": float(measured.mismatch),
        "lower_best": max(0.0, float(np.nan_to_num(best))),
        "lower_best_errors": errors,
        "best_attack": max(fair, key=lambda row: row.lower.value).name if fair else "",
        "accuracy_low": accuracies[fastest] if fastest else chance,
        "accuracy_allowed": accuracy_from_information(leakage.high, chance),
        "lower_from_accuracy": information_from_accuracy(accuracies[fastest] if fastest else chance, chance),
        "bayes_vulnerability": measured.vulnerability.value,
        "accuracy_attack": fastest,
    }


def _replay(measured: VerdictInputs) -> list[str]:
    if not measured.mismatch:
        return []
    return [
        f"the features of {measured.mismatch} episodes could not be replayed bit for bit from their "
        "public seed: another seed, another number of particles, or another build made them"
    ]


def _leak(inputs: dict, leakage: Leakage) -> list[str]:
    if inputs["lower_best"] < leakage.entropy - NEAR or leakage.entropy <= NEAR:
        return []
    return [f"an adversary gains at least {inputs['lower_best']:.3f} of {leakage.entropy:.3f} nats"]


def _method(measured: VerdictInputs) -> list[str]:
    if measured.method in (None, "attack"):
        return ["no method bounds the leakage of this kernel from above"]
    if measured.method == "coupling" and measured.leakage.high >= measured.leakage.entropy > 0.0:
        share = f"{measured.bad:.1%} of the episodes"
        return [f"with the same noise, the releases of different secrets differ in {share}"]
    return []


def _particles(measured: VerdictInputs, inputs: dict) -> list[str]:
    # No filter: the rate of disagreement has an exact limit, large or small. And where a filter fails, what a
    # reader gains who is told more bounds the leakage, large or small.
    if measured.method == "coupling" or measured.told is not None:
        return []
    reasons = []
    if measured.failed > 0:
        reasons.append(f"{measured.failed:.1%} of the episodes gave numbers that are not finite")
    if measured.bad > TOO_BAD:
        reasons.append(
            f"independent runs disagree on {measured.bad:.1%} of the episodes (limit {TOO_BAD:.0%})"
        )
    # A divergence bounds the leakage as it is, large or small; there is no filter that could be better.
    if measured.method != "excess" and not inputs["width"] <= inputs["width_limit"]:
        reasons.append(
            f"the two sides are {inputs['width']:.3f} nats apart (limit {inputs['width_limit']:.3f})"
        )
    return reasons


def _consistency(inputs: dict, loose: bool) -> list[str]:
    reasons = []
    if loose:  # a filter that is known to be poor says nothing about the model
        inputs = {**inputs, "calibration": 0.0, "calibration_limit": 0.0, "rank_p": 1.0}
    if inputs["calibration"] < inputs["calibration_limit"]:
        reasons.append(f"the filter claims {-inputs['calibration']:.3f} nats more than it scores")
    if inputs["rank_p"] < RANK_LEVEL:
        reasons.append(f"the true states do not look drawn from the filter (p = {inputs['rank_p']:.1e})")
    if inputs["lower_best"] > inputs["upper_limit"] + 1e-9:
        reasons.append(
            f"error of the tool: {inputs['best_attack']} gains {inputs['lower_best']:.3f} nats, more than "
            f"the upper bound of {inputs['upper_limit']:.3f} allows"
        )
    if inputs["accuracy_low"] > inputs["accuracy_allowed"] + 1e-9:
        reasons.append(
            f"error of the tool: {inputs['accuracy_attack']} is right at least {inputs['accuracy_low']:.1%} "
            f"of the time, the upper bound allows {inputs['accuracy_allowed']:.1%}"
        )
    return reasons


def _rank_test(ranks: np.ndarray | None) -> float:
    """Smallest p-value over the coordinates, Bonferroni included; 1 where there is nothing to test."""
    if ranks is None or len(ranks) < 20:
        return 1.0
    moving = [column for column in ranks.T if np.ptp(column) > 1e-6]  # what a release tells has no rank
    values = [float(stats.kstest(np.clip(column, 0.0, 1.0), "uniform").pvalue) for column in moving]
    return min(1.0, len(values) * min(values)) if values else 1.0


def with_fit(verdict: Verdict, found: Examination) -> Verdict:
    """The verdict on recorded transcripts: where they contradict the model, nothing else counts."""
    inputs = {**verdict.inputs, "fit_p": found.p_value, "fit_limit": LEVEL}
    if found.ok:
        return Verdict(verdict.name, verdict.reasons, inputs, found)
    return Verdict("model_does_not_fit", found.reasons, inputs, found)


def recording_verdict(
    information: Mean,
    as_it_is: float,
    discounted: Mean,
    fit: RecordingFit,
    entropy: float,
    disagreement: float = 0.0,
) -> Verdict:
    """The verdict on one recording that is shared in one way.

    "leak" and "no_leak" speak of a limit, a tenth of H(q). The model comes first: under one that does not
    explain the recording a posterior has no meaning. A small number under protection means something only if
    the recording without protection would tell the secrets apart.

    Args:
        information: gained by this way of sharing, nats.
        as_it_is: gained from the recording as it is.
        discounted: gained by this way of sharing, discounted for what the model does not explain.
        fit: of the model.
        entropy: H(q).
        disagreement: of the filters, a fraction of the posterior mass.
    """
    limit, low, high = LEAK_FRACTION * entropy, information.low(ERRORS), information.high(ERRORS)
    survives = discounted.low(ERRORS) >= limit > 0.0 and fit.effective_samples >= FEWEST_SAMPLES
    inputs: dict[str, float | str | bool] = {
        "information_low": low,
        "information_high": high,
        "limit": limit,
        "as_it_is": as_it_is,
        "disagreement": disagreement,
        "disagreement_limit": DISAGREE,
        "fit_p": fit.p_value,
        "fit_limit": LEVEL,
        "samples": float(fit.count),
        "effective_samples": fit.effective_samples,
    }

    def verdict(name: str, *reasons: str, survives: bool = False) -> Verdict:
        return Verdict(name, reasons, {**inputs, "survives": survives}, fit.examination)

    if entropy <= 0.0:
        return verdict("no_leak", "there is only one secret")
    if not fit.examined:
        return verdict("not_enough_data", f"{fit.count} steps; the model can be examined from {FEWEST}")
    if not fit.ok:
        return verdict("model_does_not_fit", *fit.examination.reasons, survives=survives)
    if disagreement > DISAGREE:
        return verdict(
            "not_enough_data", f"the filters disagree about {disagreement:.0%} of the posterior mass"
        )
    if low >= limit:
        return verdict("leak", survives=survives)
    if high >= limit:
        return verdict(
            "not_enough_data", f"the limit {limit:.3f} lies in the interval {low:.3f} to {high:.3f} nats"
        )
    if as_it_is < limit:
        return verdict(
            "not_enough_data",
            f"even as it is, the recording tells {as_it_is:.3f} nats, less than the limit {limit:.3f}",
        )
    return verdict("no_leak")
