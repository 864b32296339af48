"""The confidence bound covers at its level, also when one peeks."""

import numpy as np
import pytest

from tests.leakage.mixtures import policy_like
from veil.leakage import mutual_information, quadrature, upper_confidence
from veil.leakage.confidence import bounded_mean

REPEATS = 1000


def coverage_floor(delta: float) -> float:
    """Least share of 1000 repeats that a bound with this error rate can show, at four standard errors."""
    return 1.0 - delta - 4.0 * np.sqrt(delta * (1.0 - delta) / REPEATS)


@pytest.mark.parametrize("law", ["rare", "even", "smooth"])
def test_the_bound_covers_the_mean_of_bounded_values(law):
    generator = np.random.default_rng(1)
    draw, mean = {
        "rare": (lambda n: (generator.random(n) < 0.02).astype(float), 0.02),
        "even": (lambda n: (generator.random(n) < 0.5).astype(float), 0.5),
        "smooth": (lambda n: generator.beta(1.0, 9.0, n), 0.1),
    }[law]
    covered = [upper_confidence(draw(200), 0.05) >= mean for _ in range(REPEATS)]
    assert np.mean(covered) >= coverage_floor(0.05)


@pytest.mark.study
def test_peeking_after_every_batch_does_not_break_the_bound():
    generator = np.random.default_rng(2)
    results = [
        bounded_mean(lambda n: generator.beta(0.5, 9.5, n), delta=0.05, width=0.04, most=512, first=32)
        for _ in range(REPEATS)
    ]
    assert np.mean([result.upper >= 0.05 for result in results]) >= coverage_floor(0.05)
    assert all(32 < result.samples < 512 for result in results)  # it looked several times and stopped early


@pytest.mark.study
def test_the_confidence_bound_covers_the_information():
    mixture = policy_like(np.random.default_rng(3), 32, size=1, shift=0.5)
    truth = quadrature(*mixture).value
    bounds = [
        mutual_information(*mixture, "confidence_bound", delta=0.05, samples=256, seed=seed)
        for seed in range(REPEATS)
    ]
    assert np.mean([bound >= truth for bound in bounds]) >= coverage_floor(0.05)
    assert np.mean(bounds) - truth < 0.1  # and it is not vacuous


def test_a_rare_secret_does_not_blow_up_the_range():
    """With a mass of 1e-9 the divergence has range 20 nats; the entropy form keeps log 2."""
    secret, weight = np.array([0, 0, 1]), np.array([0.5, 0.5 - 1e-9, 1e-9])
    mean, covariance = np.array([[0.0], [1.0], [0.5]]), np.full((3, 1, 1), 1.0)
    bound = mutual_information(secret, weight, mean, covariance, "confidence_bound", width=0.0, samples=16384)
    assert 0.0 <= bound <= mutual_information(secret, weight, mean, covariance, "trivial")
    far = mutual_information(
        np.array([0, 1, 1]), weight, mean, covariance, "confidence_bound", width=0.0, samples=65536
    )
    truth = quadrature(np.array([0, 1, 1]), weight, mean, covariance).value
    assert truth <= far <= truth + 0.02


def test_the_bound_tightens_with_samples_and_reports_them():
    mixture = policy_like(np.random.default_rng(4), 32, size=2, shared=True)
    loose, tight = (
        mutual_information(*mixture, "confidence_bound", width=0.0, samples=n) for n in (1024, 65536)
    )
    assert (loose.samples, tight.samples, tight.delta) == (1024, 65536, 1e-6)
    assert tight < loose < 0.05
    assert tight < 0.001  # nothing leaks here
