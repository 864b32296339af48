"""What a measurement found. Numbers only; words, files and pictures are made from this."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import log_softmax, xlogy

from veil.auditing.statistics import Mean
from veil.measuring.fit import Fit
from veil.measuring.options import Options

ERRORS = 3.0  # standard errors in every interval that people are told


@dataclass(frozen=True)
class Verdict:
    """What may be said about the way of sharing.

    Attributes:
        name: "leak", "no leak", "not enough data" or "model does not fit".
        reasons: why, in a few words each.
        survives: whether there is a leak even if the likelihood is discounted for the misfit.
    """

    name: str
    reasons: tuple[str, ...]
    survives: bool


@dataclass(frozen=True)
class Measurement:
    """What one recording, shared in one way, tells about the secret. All information is in nats.

    Attributes:
        name: of the recording.
        system: name of its model.
        policy: name of the way of sharing.
        method: how the posterior was found.
        filtered: whether particle filters were needed.
        steps: releases.
        options: what was asked for; `draws` is 1 where nothing is drawn.
        secrets: of the prior.
        log_prior: log-masses before reading.
        masses: posterior masses, the mean over the draws.
        told: KL(posterior ‖ prior), the mean over the draws and its standard error, filters included.
        drop: H(prior) − H(posterior), likewise.
        filter_error: the part of the standard error of `told` that comes from the filters.
        disagreement: share of the posterior mass on which the filters of a draw disagree.
        as_it_is: what sharing the recording as it is would tell, for comparison.
        honest: posterior masses if the likelihood is discounted for what the model does not explain.
        honest_told: what that posterior tells, the mean over the draws and its standard error.
        trail: posterior masses after each release, the mean over the draws.
        scores: residuals of the best secret, whitened, for the picture.
        believed: index of what the owner takes its secret for.
        fit: whether the model explains the recording.
        checked: whether the times of the rows were compared with the system's step.
        verdict: what may be said.
    """

    name: str
    system: str
    policy: str
    method: str
    filtered: bool
    steps: int
    options: Options
    secrets: Float[np.ndarray, "K P"]
    log_prior: Float[np.ndarray, " K"]
    masses: Float[np.ndarray, " K"]
    told: Mean
    drop: Mean
    filter_error: float
    disagreement: float
    as_it_is: float
    honest: Float[np.ndarray, " K"]
    honest_told: Mean
    trail: Float[np.ndarray, "T K"]
    scores: Float[np.ndarray, "n Y"]
    believed: int
    fit: Fit
    checked: bool
    verdict: Verdict

    @property
    def entropy(self) -> float:
        """H(q): what there is to know on average."""
        return entropy(np.exp(self.log_prior))

    @property
    def low(self) -> float:
        """Lower end of the interval of `told`."""
        return max(0.0, self.told.low(ERRORS))

    @property
    def high(self) -> float:
        """Upper end of the interval of `told`; no posterior can tell more than log 1/min q."""
        return min(float(-self.log_prior.min()), self.told.high(ERRORS))

    @property
    def likeliest(self) -> int:
        """Index of the secret with the largest posterior mass."""
        return int(np.argmax(self.masses))

    @property
    def odds(self) -> float:
        """Posterior odds of the likeliest secret against all others; infinite where they have no mass."""
        mass = float(self.masses[self.likeliest])
        rest = float(np.delete(self.masses, self.likeliest).sum())
        return mass / rest if rest > 0.0 else np.inf


def entropy(masses: Float[np.ndarray, " K"]) -> float:
    """−Σ p log p."""
    return float(-np.sum(xlogy(masses, masses)))


def told(log_masses: Float[np.ndarray, " K"], log_prior: Float[np.ndarray, " K"]) -> float:
    """KL(posterior ‖ prior)."""
    masses = np.exp(log_masses)
    return float(np.sum(np.where(masses > 0.0, masses * (log_masses - log_prior), 0.0)))


def posterior(
    log_prior: Float[np.ndarray, " K"], log_likelihood: Float[np.ndarray, "*B K"]
) -> Float[np.ndarray, "*B K"]:
    """Log posterior masses; a likelihood that is not a number counts as very unlikely."""
    known = np.nan_to_num(log_likelihood, nan=-1e9, neginf=-1e9, posinf=1e9)
    return log_softmax(log_prior + known, axis=-1)
