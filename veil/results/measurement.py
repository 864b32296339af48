"""What a measurement found. Numbers only; words, files and pictures are made from this."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import log_softmax, xlogy

from veil.settings import MeasureSettings
from veil.stats import Mean

LEVEL = 0.01  # of all tests together: how often data from the model itself are rejected

LAGS = 5  # of the Ljung-Box statistic

FEWEST = 20  # residuals; with fewer the tests say nothing


@dataclass(frozen=True)
class Axis:
    """The residuals of one shared axis.

    Attributes:
        name: of the axis.
        spread: their root mean square; 1 under the model.
        spread_p: p-value of that, by chi-squared.
        follow: correlation of neighbours, 0 ± 1/sqrt(count) under the model.
        white_p: p-value of no correlation at the first lags, by Ljung and Box.
        effective: how many independent residuals they are worth, if neighbours explain all correlation.
        counts: whether the axis takes part in the verdict.
    """

    name: str
    spread: float
    spread_p: float
    follow: float
    white_p: float
    effective: float
    counts: bool


@dataclass(frozen=True)
class RecordingFit:
    """How well the model explains a recording.

    Attributes:
        axes: the residuals of the best secret, by shared axis.
        count: residuals per axis.
        best: index of the secret of the prior that explains the recording best.
        free: the secret that does so if it may be any.
        free_gain: log-likelihood that this gains over the best of the prior, nats.
        free_p: p-value of such a gain if the best of the prior is the true one.
    """

    axes: tuple[Axis, ...]
    count: int
    best: int
    free: Float[np.ndarray, " P"]
    free_gain: float
    free_p: float

    @property
    def examined(self) -> bool:
        """Whether there is enough to test."""
        return self.count >= FEWEST

    @property
    def p_value(self) -> float:
        """Of all tests together (Bonferroni)."""
        values = [p for axis in self.axes if axis.counts for p in (axis.spread_p, axis.white_p)]
        return float(min(1.0, (len(values) + 1) * min([*values, self.free_p])))

    @property
    def ok(self) -> bool:
        """Whether the model is not contradicted."""
        return not self.examined or self.p_value >= LEVEL

    @property
    def tests(self) -> int:
        """How many tests there are."""
        return 2 * sum(axis.counts for axis in self.axes) + 1

    @property
    def worth(self) -> float:
        """How many independent residuals there are on the judged axis with the fewest."""
        return min((axis.effective for axis in self.axes if axis.counts), default=float(self.count))

    def weights(self) -> Float[np.ndarray, " Y"]:
        """Per axis, what its log-likelihood is worth: independent residuals per residual and variance.

        Never more than one: a model whose noise is too large is taken at its word.
        """
        worth = [axis.effective / max(self.count, 1) / max(axis.spread**2, 1e-12) for axis in self.axes]
        return np.minimum(1.0, np.array(worth))


ERRORS = 3.0  # standard errors in every interval that people are told


@dataclass(frozen=True)
class RecordingVerdict:
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
    options: MeasureSettings
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
    fit: RecordingFit
    checked: bool
    verdict: RecordingVerdict

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


SHARE = 0.1  # of H(q): what is told beyond this is called a leak

DISAGREE = 0.1  # of the posterior mass: filters that are further apart have not understood the releases

FEWEST_WORTH = 10.0  # independent residuals; with fewer the discount is itself not known well enough
