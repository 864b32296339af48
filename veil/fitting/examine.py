"""Tests of a fitted model on steps that it was not fitted to, and rivals that try to predict what it leaves.

The innovations of a right model are independent and standard normal once they are mapped by their own
distribution function. The parameters were estimated from n other steps, which adds an error of its own: a
statistic of m held-out steps then has up to 1 + m/n times its usual variance, and is divided by the root of
it. That is exact for means and conservative for the rest.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from scipy import stats

from veil.beliefs.self_model import SHORTEST_TAIL
from veil.results.fit import Individual, Rival
from veil.results.parts import Examination, FitTest

LAGS = 5  # of the test for short memory

DAY = 86400.0  # seconds

FEWEST = 20  # held-out steps that an examination needs

HIDDEN = 48  # units of the small network

MEMORY = 12  # lags of the rival with a longer memory

PAST = 8  # lags of the rival that looks at past states and inputs


def gaussianised(
    noise: Float[np.ndarray, "T Y"],
    half: Float[np.ndarray, "T Y"],
    tail: Float[np.ndarray, " Y"],
    seed: int,
) -> Float[np.ndarray, "T Y"]:
    """Innovations mapped to standard normal numbers by the distribution that the model gives them.

    A rounded reading is anywhere in its cell: a number is drawn there from the model's law (randomised
    quantile residuals). Under the model the result is standard normal, however coarse the sensor is.

    Args:
        noise: innovations.
        half: half the width of the cell of each, 0 for an exact reading.
        tail: 1/ν of each axis; 0 for a Gaussian.
        seed: of the draws.
    """
    found = np.array(noise, float)
    draws = np.random.default_rng(seed).uniform(size=found.shape)
    for axis, heavy in enumerate(tail):
        law = stats.t(1.0 / heavy) if heavy >= SHORTEST_TAIL else stats.norm()
        column, width = found[:, axis], half[:, axis]
        if heavy < SHORTEST_TAIL and not np.any(width > 0):
            continue
        sign = np.where(column > 0, -1.0, 1.0)  # the lower tail has the better resolution
        low, high = law.cdf(sign * column - width), law.cdf(sign * column + width)
        place = np.maximum(low + draws[:, axis] * (high - low), 1e-300)
        found[:, axis] = sign * stats.norm.ppf(place)
    return found


def examine(
    noise: Float[np.ndarray, "T Y"],
    fitted_steps: int,
    names: Sequence[str],
    step_seconds: float | None,
    rivals: Sequence[Rival],
) -> tuple[FitTest, ...]:
    """Test the innovations of held-out steps.

    Args:
        noise: of one row per held-out step, standard normal under the model.
        fitted_steps: how many steps the parameters were estimated from.
        names: of the axes.
        step_seconds: length of a step; None where it has none, and then no season is looked at.
        rivals: how other models did on the same steps.
    """
    count = len(noise)
    if count < FEWEST:
        return ()
    inflation = np.sqrt(1.0 + count / fitted_steps)
    tests = []
    for axis, name in enumerate(names):
        column = noise[:, axis]
        found = stats.kstest(stats.norm.cdf(column), "uniform")
        p = float(stats.kstwobign.sf(np.sqrt(count) * found.statistic / inflation))
        said = f"predictions of {name} are not calibrated (distance {found.statistic:.3f}, p = {p:.1e})"
        tests.append(FitTest(f"calibration of {name}", float(found.statistic), p, said))
        square = column**2
        ratio = float(np.mean(square))
        error = float(np.std(square) / np.sqrt(count)) * inflation
        p = float(2.0 * stats.norm.sf(abs(ratio - 1.0) / max(error, 1e-12)))
        said = f"errors of {name} are {np.sqrt(ratio):.3g} times as large as the model says (p = {p:.1e})"
        tests.append(FitTest(f"size of {name}", float(np.sqrt(ratio)), p, said))
        correlations = np.array([_correlation(column, lag) for lag in range(1, LAGS + 1)])
        statistic = float(count * np.sum(correlations**2)) / inflation**2
        p, worst = float(stats.chi2.sf(statistic, LAGS)), int(np.argmax(np.abs(correlations)))
        said = (
            f"errors of {name} are correlated (by {correlations[worst]:.2f} after {worst + 1} "
            f"step{'s' * (worst > 0)}, p = {p:.1e})"
        )
        tests.append(FitTest(f"short memory of {name}", float(correlations[worst]), p, said))
        for lag, season in seasons(step_seconds, count):
            correlation = _correlation(column, lag)
            p = float(2.0 * stats.norm.sf(abs(correlation) * np.sqrt(count - lag) / inflation))
            said = f"errors of {name} repeat after a {season} (correlation {correlation:.2f}, p = {p:.1e})"
            tests.append(FitTest(f"{season} of {name}", correlation, p, said))
    for first in range(len(names)):
        for second in range(first):
            correlation = float(np.mean(noise[:, first] * noise[:, second]))
            p = float(2.0 * stats.norm.sf(abs(correlation) * np.sqrt(count) / inflation))
            both = f"{names[second]} and {names[first]}"
            said = f"errors of {both} are correlated (by {correlation:.2f}, p = {p:.1e})"
            tests.append(FitTest(f"correlation of {both}", correlation, p, said))
    return (*tests, *(_rival_test(rival) for rival in rivals))


def _rival_test(rival: Rival) -> FitTest:
    said = f"a rival ({rival.name}) predicts {rival.gain:.3g} nats per step better (p = {rival.p:.1e})"
    if rival.score is not None and rival.gain * rival.steps < rival.score:
        said = f"errors go where another law ({rival.name}) expects them (p = {rival.p:.1e})"
    return FitTest(f"rival: {rival.name}", rival.gain, rival.p, said)


def with_rival(individual: Individual, rival: Rival) -> Individual:
    """An individual that was examined by one more rival.

    Args:
        individual: as it was.
        rival: scored on the same held-out steps.
    """
    tests = individual.examination.tests
    if tests:
        tests = (*tests, _rival_test(rival))
    return replace(individual, rivals=(*individual.rivals, rival), examination=Examination(tests))


def seasons(step_seconds: float | None, count: int) -> list[tuple[int, str]]:
    """Steps of a day and of a week, where the steps are long enough and there are at least three of them."""
    if step_seconds is None:
        return []
    found = [(round(DAY / step_seconds), "day"), (round(7 * DAY / step_seconds), "week")]
    return [(lag, name) for lag, name in found if LAGS < lag <= count // 3]


def _correlation(column: np.ndarray, lag: int) -> float:
    return float(column[lag:] @ column[:-lag] / max(column @ column, 1e-12))


def rivals_of(
    noise: Float[np.ndarray, "T Y"],
    inputs: Float[np.ndarray, "T F"],
    held_out: np.ndarray,
    step_seconds: float | None,
    seed: int = 0,
) -> tuple[Rival, ...]:
    """Fit rivals to what the model leaves on the fitted steps, and score them on the held-out ones.

    A rival predicts the mean of the innovations, or their variance, from everything that was known before:
    past innovations, states and inputs. Its Gaussian log score is compared with that of the model.

    Args:
        noise: standard normal under the model, one row per step in the order of time.
        inputs: the state and the external input that each step started from.
        held_out: which steps the rivals are scored on.
        step_seconds: length of a step; None where it has none.
        seed: of the small network.
    """
    rows = standardised(np.concatenate([inputs, _lagged(inputs, 1), _lagged(noise, 1)], axis=1), held_out)
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((rows.shape[1] + 1, HIDDEN)) / np.sqrt(rows.shape[1])
    hidden = np.tanh(rows @ weights[:-1] + weights[-1])
    candidates: list[tuple[str, np.ndarray]] = [
        ("a longer memory", np.concatenate([_lagged(noise, lag) for lag in range(1, MEMORY + 1)], axis=1)),
        ("a quadratic regression", _quadratic(rows)),
        ("a small network", np.concatenate([rows, hidden], axis=1)),
    ]
    known = seasons(step_seconds, len(noise))
    if known:
        day = np.arange(len(noise)) * 2.0 * np.pi / known[0][0]
        waves = [wave(k * day)[:, None] for k in (1, 2, 3) for wave in (np.sin, np.cos)]
        past = [_lagged(noise, lag + shift) for lag, _ in known for shift in (-1, 0, 1)]
        candidates.append(("a season", np.concatenate([*waves, *past], axis=1)))
    candidates.append(("past states and inputs", _history(standardised(inputs, held_out), noise)))
    found = [
        rival_of(name, _mean_score(features, noise, held_out)[held_out]) for name, features in candidates
    ]
    changing = np.concatenate([rows, _lagged(noise**2, 1), _lagged(noise**2, 2)], axis=1)
    found.append(rival_of("noise of changing size", _size_score(changing, noise, held_out)[held_out]))
    return tuple(found)


def rival_of(name: str, gains: Float[np.ndarray, " T"], score: float | None = None) -> Rival:
    """A rival from the log scores that it gains over the model, per held-out step.

    Args:
        name: what it does.
        gains: nats.
        score: of another law of motion, see `towards`.
    """
    return Rival(name, *mean_and_error(gains), len(gains), score)


LEAST = 0.25  # squared errors of the model by which another law must differ from it in all steps


def towards(
    noise: Float[np.ndarray, "T Y"],
    apart: Float[np.ndarray, "T Y"],
    slopes: Float[np.ndarray, "T Y R"],
    curvature: Float[np.ndarray, "R R"],
) -> float:
    """How far errors of a model go where another law expects them, in standard errors.

    With errors z_t, and the prediction of the other law minus that of the model d_t, the statistic is
    Σ z_t d_t (Davidson and MacKinnon's test of one regression by another). Where the model is right and d_t
    comes from the past, it is a sum of martingale differences with variance Σ d_t². The parameters of the
    model were estimated from the same errors, which takes away what of d_t they can imitate: with the
    derivatives J_t of the predictions, the curvature H and c = Σ J_t d_t the variance is Σ d_t² − cᵀ H⁻¹ c.
    Of all tests it has the greatest power against this law where d_t is small.

    Args:
        noise: z, standard normal under the model, which was fitted to all steps.
        apart: d, in standard deviations; zero where the other law does not predict.
        slopes: J, in standard deviations per unit of each parameter.
        curvature: of the model's negative log likelihood.
    """
    pull = np.einsum("ty,tyr->r", apart, slopes)
    variance = float(np.sum(apart**2) - pull @ np.linalg.lstsq(curvature, pull, rcond=1e-10)[0])
    return float(np.sum(noise * apart) / np.sqrt(max(variance, LEAST)))


def _lagged(values: np.ndarray, lag: int) -> np.ndarray:
    return np.concatenate([np.zeros((lag, values.shape[1])), values[:-lag]])[: len(values)]


def _history(rows: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Lags of readings, inputs and innovations."""
    past = [_lagged(rows, lag) for lag in range(1, PAST + 1)]
    return np.concatenate([rows, *past, *(_lagged(noise, lag) for lag in range(1, PAST + 1))], axis=1)


def standardised(values: np.ndarray, held_out: np.ndarray) -> np.ndarray:
    """Columns in the standard units of the fitted steps, limited to ±4; constant ones are left out.

    Args:
        values: one row per step.
        held_out: which steps are held out.
    """
    fitted = ~held_out
    centre, sd = values[fitted].mean(0), values[fitted].std(0)
    kept = sd > 1e-9
    return np.clip((values[:, kept] - centre[kept]) / sd[kept], -4.0, 4.0)


def _quadratic(rows: np.ndarray) -> np.ndarray:
    size = rows.shape[1]
    pairs = [rows[:, i : i + 1] * rows[:, j : j + 1] for i in range(size) for j in range(i, size)]
    return np.concatenate([rows, *pairs], axis=1)


def _ridge(features: np.ndarray, targets: np.ndarray, fitted: np.ndarray) -> tuple[np.ndarray, float]:
    """Predictions for all rows, and the effective number of parameters; the penalty by cross-validation.

    Generalised cross-validation on the fitted rows chooses the penalty from a grid, where the largest one
    leaves practically nothing of the regression.
    """
    table = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    left, values, right = np.linalg.svd(table[fitted], full_matrices=False)
    goals, count = left.T @ targets[fitted], int(fitted.sum())
    total = float(np.sum(targets[fitted] ** 2))
    best: tuple[float, np.ndarray, float] | None = None
    for penalty in np.geomspace(1e-2, 1e4, 13) * count / 100.0:
        shrink = values**2 / (values**2 + penalty)
        explained = float(np.sum((2.0 * shrink - shrink**2)[:, None] * goals**2))
        freedom = float(np.sum(shrink))
        score = (total - explained) / max(count - freedom, 1.0) ** 2
        if best is None or score < best[0]:
            coefficients = right.T @ ((shrink / np.maximum(values, 1e-12))[:, None] * goals)
            best = score, coefficients, freedom
    assert best is not None
    return table @ best[1], best[2]


def _mean_score(features: np.ndarray, noise: np.ndarray, held_out: np.ndarray) -> np.ndarray:
    """Log score of N(prediction, s²) minus that of N(0, 1), per step."""
    predicted, freedom = _ridge(features, noise, ~held_out)
    rest = noise - predicted
    count = int((~held_out).sum())
    size = np.sum(rest[~held_out] ** 2, axis=0) / max(count - freedom, 1.0)
    return np.sum(0.5 * (noise**2 - rest**2 / size - np.log(size)), axis=1)


def _size_score(features: np.ndarray, noise: np.ndarray, held_out: np.ndarray) -> np.ndarray:
    """Log score of N(0, v) with a predicted variance v minus that of N(0, 1), per step."""
    predicted, _ = _ridge(features, noise**2, ~held_out)
    size = np.clip(predicted, 0.2, 5.0)
    return np.sum(0.5 * (noise**2 - noise**2 / size - np.log(size)), axis=1)


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Mean over steps and its standard error.

    Log scores of two models that predict from the past differ by a martingale plus a drift, so that steps
    count as independent.
    """
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
