"""Every method against an independent truth, on 500 mixtures of any kind: a study."""

import jax
import numpy as np
import pytest

from tests.leakage.mixtures import random_mixture, sampled_information
from veil.leakage import mutual_information
from veil.leakage.quadrature import quadrature

Mixture = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

UPPER = ("trivial", "kl_chernoff", "regime_adaptive", "reference", "matched", "coupled")
UNCHANGED = ("kl_chernoff", "regime_adaptive", "matched")


@pytest.fixture(scope="module")
def compilations():
    """Counts programs that reach the compiler while the module runs."""
    seen = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: seen.append(event) if event.endswith("backend_compile_duration") else None
    )
    yield seen


def truth(generator, mixture) -> tuple[float, float]:
    """Value and standard error: quadrature in one and two dimensions, Monte Carlo above."""
    if mixture[2].shape[1] <= 2:
        return quadrature(*mixture).value, 0.0
    return sampled_information(generator, *mixture)


@pytest.mark.study
def test_bounds_bound_and_estimates_estimate_on_any_mixture(compilations):
    generator = np.random.default_rng(20261115)
    for trial in range(500):
        mixture = random_mixture(generator)
        value, error = truth(generator, mixture)
        slack = max(1e-6, 4.0 * error)
        bounds = {method: mutual_information(*mixture, method) for method in UPPER}
        for method, bound in bounds.items():
            assert bound >= value - slack, (trial, method, bound, value)
        if trial % 10 == 0:  # it computes all bounds again
            least = max(0.0, min(bounds.values()))
            assert mutual_information(*mixture, "closed_form") == pytest.approx(least, abs=1e-12)
        guess = mutual_information(*mixture, "estimate", seed=trial)
        assert guess.standard_error is not None
        assert abs(guess - value) <= 5.0 * np.hypot(guess.standard_error, error) + 1e-9, (trial, guess, value)
        safe = mutual_information(*mixture, "confidence_bound", samples=4096, seed=trial)
        assert safe >= value - slack, (trial, safe, value)
    assert 0 < len(compilations) <= 20, len(compilations)


@pytest.mark.study
def test_order_duplicates_and_empty_components_do_not_matter(compilations):
    generator = np.random.default_rng(7)
    for _ in range(12):
        mixture = random_mixture(generator)
        for changed in (
            permuted(generator, *mixture),
            split(generator, *mixture),
            with_ghost(generator, *mixture),
        ):
            for method in UNCHANGED:
                before, after = mutual_information(*mixture, method), mutual_information(*changed, method)
                assert after == pytest.approx(before, abs=1e-7), method
            before, after = (mutual_information(*m, "estimate") for m in (mixture, changed))
            assert before.standard_error is not None and after.standard_error is not None
            assert abs(before - after) <= 5.0 * np.hypot(before.standard_error, after.standard_error) + 1e-9
            for method, slack in (("reference", 0.1), ("coupled", 0.05), ("closed_form", 0.05)):
                before, after = (mutual_information(*m, method) for m in (mixture, changed))
                assert after == pytest.approx(before, abs=slack), method
    assert len(compilations) <= 20, len(compilations)


def permuted(generator, secret, weight, mean, covariance) -> Mixture:
    order = generator.permutation(len(weight))
    return secret[order], weight[order], mean[order], covariance[order]


def split(generator, secret, weight, mean, covariance) -> Mixture:
    """One component becomes two identical halves."""
    chosen = int(np.argmax(weight))
    weight = weight.copy()
    weight[chosen] /= 2
    mixture = (secret, weight, mean, covariance)
    return joined(mixture, [array[[chosen]] for array in mixture])


def with_ghost(generator, secret, weight, mean, covariance) -> Mixture:
    """A component without weight, far away and narrow."""
    ghost = (secret[:1], np.zeros(1), mean[:1] + 30.0, covariance[:1] * 1e-4)
    return joined((secret, weight, mean, covariance), ghost)


def joined(mixture, extra) -> Mixture:
    first, second, third, fourth = (np.concatenate(pair) for pair in zip(mixture, extra, strict=True))
    return first, second, third, fourth
