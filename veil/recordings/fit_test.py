"""Whether a recording can come from the model: the residuals of the best secret against the model's law.

Under the model they are independent and standard normal. Noise of another size, or noise that lasts longer
than a step, makes a likelihood too sure of itself; how much too sure is turned into a weight for it.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from veil.results.measurement import FEWEST, LAGS, Axis


def examine_recording(
    scores: Float[np.ndarray, "n Y"], names: tuple[str, ...], counts: tuple[bool, ...]
) -> tuple[Axis, ...]:
    """Test the residuals of each axis.

    Args:
        scores: whitened residuals of the best secret.
        names: of the axes.
        counts: which axes take part in the verdict.
    """
    return tuple(_axis(*given) for given in zip(scores.T, names, counts, strict=True))


def free_fit(
    log_likelihood: Callable[[np.ndarray], float],
    secrets: Float[np.ndarray, "K P"],
    best: int,
    bounds: list[tuple[float, float]],
) -> tuple[Float[np.ndarray, " P"], float, float]:
    """The best secret if it may be any, what it gains over the best of the prior, and how likely that is.

    Args:
        log_likelihood: of one secret.
        secrets: of the prior.
        best: the best of them.
        bounds: of the secret's numbers.
    """
    start = secrets[best]
    unit = np.maximum(np.ptp(secrets, axis=0), 0.1 * np.abs(start) + 1e-3)
    limits = [((low - x) / u, (high - x) / u) for (low, high), x, u in zip(bounds, start, unit, strict=True)]

    def loss(step: np.ndarray) -> float:
        value = -float(log_likelihood(start + unit * step))
        return value if np.isfinite(value) else 1e300

    # Steps inwards, so that a start on a bound leaves the simplex some room.
    inwards = np.array([-0.3 if high < 0.3 else 0.3 for _, high in limits])
    simplex = np.concatenate([np.zeros((1, len(start))), np.diag(inwards)])
    options = {"initial_simplex": simplex, "xatol": 1e-4, "fatol": 1e-4, "maxfev": 200 * len(start)}
    found = optimize.minimize(
        loss, np.zeros(len(start)), method="Nelder-Mead", bounds=limits, options=options
    )
    gain = max(0.0, loss(np.zeros(len(start))) - float(found.fun))
    return start + unit * found.x, gain, float(stats.chi2.sf(2.0 * gain, len(start)))


def _axis(scores: np.ndarray, name: str, counts: bool) -> Axis:
    count, square = len(scores), float(scores @ scores)
    if count < FEWEST or square == 0.0:  # too few, or an axis without noise
        spread = float(np.sqrt(square / max(count, 1)))
        return Axis(name, spread if square else 1.0, 1.0, 0.0, 1.0, float(count), counts)
    lags = np.arange(1, LAGS + 1)
    follow = np.array([float(scores[lag:] @ scores[:-lag]) / square for lag in lags])
    ljung_box = count * (count + 2) * float(np.sum(follow**2 / (count - lags)))
    tails = stats.chi2.cdf(square, count), stats.chi2.sf(square, count)
    one = float(np.clip(follow[0], 0.0, 1.0 - 1.0 / count))
    return Axis(
        name,
        float(np.sqrt(square / count)),
        float(min(1.0, 2.0 * min(tails))),
        float(follow[0]),
        float(stats.chi2.sf(ljung_box, LAGS)),
        count * (1.0 - one) / (1.0 + one),
        counts,
    )
