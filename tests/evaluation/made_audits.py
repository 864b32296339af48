"""Audits made by hand: what words, files and pictures are tried on. No engine and no gate is involved."""

import math
from dataclasses import replace

import numpy as np

from veil.results.audit import Audit
from veil.results.parts import AtStep, AttackResult, Curves, Part, Quantity, ScenarioResult, Verdict
from veil.stats import Leakage, Mean, Rate
from veil.systems.base import Nouns

NAMES = ("Bayes", "Kalman bank", "least squares", "surrogate", "learned", "takes data for truth")


def attack(name, lower, accuracy, role="attack", error=0.004):
    rate = Rate(accuracy, max(0.0, accuracy - 0.03), min(1.0, accuracy + 0.03))
    return AttackResult(
        name, role, rate, Mean(lower, error), Mean(lower - 0.1, error), Mean(0.0, 0.01), 512, 1.5
    )


def forecasts(strength, prior, episodes, seed=0):
    """Exact posteriors of a toy: one Gaussian number with mean `strength` · k tells about the secret k."""
    random, places = np.random.default_rng(seed), strength * np.arange(len(prior))
    index = np.arange(episodes) % len(prior)
    seen = places[index] + random.standard_normal(episodes)
    log = np.log(prior) - 0.5 * (seen[:, None] - places) ** 2
    posteriors = np.exp(log - np.logaddexp.reduce(log, axis=1, keepdims=True))
    return posteriors, index, np.log(posteriors[np.arange(episodes), index] / prior[index])


def curves(strength, prior, steps, final):
    """Something that rises from the prior, with a spread."""
    share = 1 - np.exp(-strength * np.arange(1, steps + 1) / 20)
    pace = np.linspace(0.6, 1.0, len(prior))[:, None]
    return Curves(
        final * share / share[-1], prior[:, None] + (1 - prior[:, None]) * share * pace, 0.25 * share * pace
    )


def audit(
    name="certifiable", reasons=(), *, lower=0.012, upper=0.014, error=0.0022, prior=(0.25,) * 4, episodes=800
):
    """An audit with this verdict; the two sides and their errors are as given."""
    prior = np.asarray(prior, float)
    entropy = -float(prior @ np.log(prior)) + 0.0
    leakage = Leakage(Mean(lower, error), Mean(upper, error), entropy)
    accuracy = prior.max() + (1 - prior.max()) * min(1.0, max(lower, 0.0) / max(entropy, 1e-9))
    strength = 0.16 + 3 * max(lower, 0.0) / max(entropy, 1.0)
    posteriors, index, realised = forecasts(strength, prior, episodes)
    rows = [attack(who, lower - 0.001 * j, accuracy - 0.01 * j) for j, who in enumerate(NAMES)]
    rows += [attack("knows the first state", lower + 0.004, accuracy, "assisted")]
    rows += [attack("takes noise for none", lower - 0.02, accuracy - 0.02, "mismatched")]
    inputs = {"lower_best": max(0.0, lower - 3.5 * error), "best_attack": "Bayes", "method": "filter"}
    inputs |= {"calibration_limit": -math.inf, "width": upper - lower, "rank_p": 0.31}
    steps = (1, 5, 10, 20, 50)
    return Audit(
        system="platoon",
        policy="noise",
        horizon=50,
        episodes=episodes,
        particles=128,
        method="twisted particles",
        verdict=Verdict(name, tuple(reasons), inputs),
        leakage=leakage,
        chance=float(prior.max()),
        times=tuple(AtStep(t, scaled(leakage, (1 - math.exp(-t / 12)) / 0.985)) for t in steps),
        secrets=tuple(
            Part(f"speed gain {0.4 + 0.3 * k:.1f} 1/s, difference gain {0.5 + 0.3 * k:.1f} 1/s", leakage)
            for k in range(len(prior))
        ),
        components=(Part("speed_gain", leakage), Part("difference_gain", leakage)),
        curves=curves(strength, prior, 50, lower),
        attacks=tuple(rows),
        realised=realised,
        posteriors=posteriors,
        index=index,
        utility=utility(),
        seeds={"audit": 0},
        seconds={"two sides": 12.5, "attacks": 3.25},
        nouns=Nouns("the driver", "the driving style", "driver"),
    )


def scaled(leakage, share):
    lower, upper = leakage.lower, leakage.upper
    return Leakage(
        Mean(share * lower.value, lower.error), Mean(share * upper.value, upper.error), leakage.entropy
    )


def utility():
    return (
        Quantity("distortion", "per step", Mean(0.61, 0.002)),
        Quantity("cost", "per step", Mean(1.52, 0.01), Mean(1.5, 0.01), Mean(1.3, 0.2)),
        Quantity("tracking error, speed", "m/s", Mean(0.21, 0.001)),
        Quantity("tracking error, spacing", "m", Mean(0.34, 0.001)),
        Quantity("releases out of range", "fraction", Mean(math.nan, math.inf)),
    )


def with_scenarios(made):
    rows = (attack("Bayes", 0.08, 0.31, "mismatched"), attack("learned", 0.23, 0.41))
    entropy = made.leakage.entropy
    scenario = ScenarioResult("secrets between", Mean(0.7, 0.01), rows, entropy, made.chance)
    return replace(made, scenarios=(scenario, replace(scenario, name="idm drivers", attacks=rows[:1])))


WIDE = "the two sides are 0.210 nats apart (limit 0.050)"
UNSURE = "the filter claims 0.400 nats more than it scores"
TOOL = "error of the tool: learned gains 0.900 nats, more than the upper bound of 0.400 allows"
REPLAY = "the features of 3 episodes could not be replayed bit for bit from their public seed"
LEAK = "an adversary gains at least 1.344 of 1.386 nats"


def every_kind():
    """One audit per verdict, and the corners."""
    return {
        "certifiable": audit(),
        "certified_leak": audit("certified_leak", [LEAK], lower=1.37, upper=1.385),
        "not_enough_particles": audit("not_enough_particles", [WIDE], lower=0.6, upper=0.81, error=0.02),
        "filter_inconsistent": audit("filter_inconsistent", [UNSURE], lower=0.2, upper=0.22),
        "tool_error": audit("filter_inconsistent", [UNSURE, TOOL], lower=0.38, upper=0.4),
        "replay_mismatch": audit("replay_mismatch", [REPLAY], lower=0.2, upper=0.22),
        "model_does_not_fit": audit("model_does_not_fit", ["residuals are coloured"], lower=0.2, upper=0.22),
        "one_secret": audit(lower=0.0, upper=0.0, error=0.0, prior=(1.0,)),
        "uneven_prior": with_scenarios(audit(lower=0.3, upper=0.31, prior=(0.7, 0.2, 0.1))),
        "many_secrets": audit(lower=0.3, upper=0.31, prior=(1 / 16,) * 16, episodes=640),
        "nothing_known": unknown(),
    }


def unknown():
    """Few episodes, no curves, no attackers, numbers that are not finite."""
    made = audit("no_upper_bound", ["no method bounds the leakage of this kernel from above"], episodes=8)
    lost = Leakage(Mean(math.nan, math.inf), Mean(made.leakage.entropy, 0.0), made.leakage.entropy)
    realised, posteriors = made.realised.copy(), made.posteriors.copy()
    realised[:3], posteriors[:3] = (-math.inf, math.nan, -1e9), math.nan
    verdict = replace(made.verdict, inputs=made.verdict.inputs | {"method": "none"})
    row = replace(made.attacks[0], lower=Mean(math.nan, math.inf), raw=Mean(-math.inf, math.nan))
    return replace(
        made,
        verdict=verdict,
        leakage=lost,
        curves=None,
        attacks=(row,),
        times=(),
        realised=realised,
        posteriors=posteriors,
    )
