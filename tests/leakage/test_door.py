"""The door: what it refuses, what it returns, what it agrees with."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from tests.leakage.mixtures import random_covariances, random_mixture
from veil.leakage import (
    closed_forms,
    information_modulus,
    inputs,
    mixture_kernel_components,
    mutual_information,
    quadrature,
)
from veil.registry import LEAKAGE


def good():
    return {
        "secret": np.array([0, 0, 1]),
        "weight": np.array([0.25, 0.25, 0.5]),
        "mean": np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]),
        "covariance": np.broadcast_to(np.eye(2), (3, 2, 2)).copy(),
    }


def spoil(name, index, value):
    arguments = good()
    arguments[name] = arguments[name].astype(float) if name != "secret" else arguments[name]
    arguments[name][index] = value
    return arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (spoil("weight", 0, -0.25), ["weight", "negative", "(0,)"]),
        (spoil("weight", 0, 0.5), ["weight", "sums to 1.25", "divide"]),
        (
            spoil("covariance", (1, 0, 0), -1.0),
            ["covariance", "component 1", "positive definite", "noise floor"],
        ),
        (spoil("covariance", (2, 0, 1), 0.5), ["covariance", "component 2", "symmetric"]),
        (spoil("mean", (2, 1), np.nan), ["mean", "NaN", "(2, 1)"]),
        (spoil("covariance", (0, 0, 0), np.inf), ["covariance", "infinity"]),
        (good() | {"mean": np.zeros(3)}, ["mean", "(N, d)", "(3,)"]),
        (good() | {"mean": np.zeros((3, 9))}, ["d = 9", "1 to 8"]),
        (good() | {"weight": np.full(4, 0.25)}, ["weight", "(3,)", "(4,)"]),
        (good() | {"covariance": np.eye(2)}, ["covariance", "(3, 2, 2)"]),
        (good() | {"secret": np.array([0.0, 0.0, 1.0])}, ["secret", "integer", "astype"]),
        (good() | {"weight": np.array([0.5, 0.5, 0.0])}, ["secret 1", "no weight"]),
        (good() | {"method": "estimat"}, ["estimat", "Did you mean estimate?"]),
        (good() | {"method": "estimate", "alpha": 0.3}, ["alpha", "estimate", "samples"]),
        (good() | {"method": "kl_chernoff", "alpha": 1.5}, ["alpha", "between 0 and 1"]),
    ],
)
def test_bad_input_is_refused_with_its_name_and_a_remedy(arguments, words):
    with pytest.raises(ValueError) as error:
        mutual_information(**arguments)
    for word in words:
        assert word in str(error.value)


def test_every_method_answers_by_name_with_a_float_in_nats():
    for method in LEAKAGE.able("of_mixture"):
        value = mutual_information(**good(), method=method)
        assert isinstance(value, float) and 0.0 <= value < 2.0, method
        assert value.bits == pytest.approx(value / math.log(2))
    estimate = mutual_information(**good())
    assert estimate.standard_error is not None and estimate.samples == 16384
    assert mutual_information(**good(), method="quadrature").error is not None
    assert mutual_information(**good(), seed=1) == mutual_information(**good(), seed=1)


def test_quadrature_equals_adaptive_integration_of_two_normals():
    apart, prior = 1.3, 0.3

    def integrand(y):
        first, second = prior * norm.pdf(y), (1 - prior) * norm.pdf(y, apart, 0.7)
        total = first + second
        return first * np.log(first / prior / total) + second * np.log(second / (1 - prior) / total)

    truth, _ = quad(integrand, -9, 9, epsabs=1e-12)
    value = quadrature(
        np.array([0, 1]),
        np.array([prior, 1 - prior]),
        np.array([[0.0], [apart]]),
        np.array([[[1.0]], [[0.49]]]),
    )
    assert value.value == pytest.approx(truth, abs=1e-9)
    assert abs(value.value - truth) <= 10 * value.error + 1e-12


def test_separated_components_are_a_finite_channel():
    """Far apart, the release is a symbol: the information is that of the joint table (checked with qif)."""
    qif = pytest.importorskip("qif")
    generator = np.random.default_rng(5)
    prior, channel = generator.dirichlet(np.ones(3)), generator.dirichlet(np.ones(4), 3)
    symbol = np.tile(np.arange(4), 3)
    mixture = (
        np.repeat(np.arange(3), 4),
        (prior[:, None] * channel).reshape(-1),
        50.0 * symbol[:, None],
        np.ones((12, 1, 1)),
    )
    bits = qif.measure.shannon.add_leakage(prior, channel)
    for method in ("quadrature", "estimate", "matched"):
        value = mutual_information(*mixture, method)
        slack = 5 * value.standard_error if value.standard_error else 1e-9
        assert abs(value.bits - bits) <= slack + (1e-6 if method == "matched" else 0.0), method


def test_padding_changes_nothing():
    """d = 1 and d = 3 are padded; adding the same idle coordinate by hand must not move any method."""
    generator = np.random.default_rng(6)
    for size in (1, 3):
        secret, weight = np.array([0, 1, 1, 2, 2, 2]), generator.dirichlet(np.ones(6))
        mean, covariance = generator.standard_normal((6, size)), random_covariances(generator, 6, size)
        wide = np.zeros((6, size + 1, size + 1))
        wide[:, :size, :size], wide[:, size, size] = covariance, 1.0
        deep = np.concatenate([mean, np.full((6, 1), 3.0)], axis=1)
        for method in ("kl_chernoff", "regime_adaptive", "matched", "coupled"):
            narrow, broad = (
                mutual_information(secret, weight, m, c, method)
                for m, c in ((mean, covariance), (deep, wide))
            )
            assert broad == pytest.approx(narrow, abs=1e-9), method


def test_units_and_origin_do_not_matter():
    generator = np.random.default_rng(9)
    secret, weight, mean, covariance = random_mixture(generator)
    units = np.exp(generator.standard_normal(mean.shape[1]))
    moved = (secret, weight, mean * units + 100.0, covariance * units[:, None] * units[None, :])
    for method in ("kl_chernoff", "regime_adaptive", "reference", "matched"):
        before, after = (
            mutual_information(secret, weight, mean, covariance, method),
            mutual_information(*moved, method),
        )
        assert after == pytest.approx(before, abs=2e-3 if method == "reference" else 1e-6), method


def test_a_mixture_kernel_goes_through_the_same_door():
    """J coinciding parts are the Gaussian kernel; parts that differ are measured as N·J components."""
    generator = np.random.default_rng(7)
    secret, weight = np.array([0, 0, 1, 1]), np.full(4, 0.25)
    mean, covariance = generator.standard_normal((4, 1)), np.full((4, 1, 1), 0.5)
    share = np.tile([0.3, 0.7], (4, 1))
    twice = mixture_kernel_components(
        secret, weight, share, np.stack([mean, mean], 1), np.stack([covariance] * 2, 1)
    )
    for method in ("quadrature", "regime_adaptive", "matched"):
        plain = mutual_information(secret, weight, mean, covariance, method)
        assert mutual_information(*twice, method) == pytest.approx(plain, abs=1e-9)
    apart = mixture_kernel_components(
        secret, weight, share, np.stack([mean - 5, mean + 5], 1), np.stack([covariance] * 2, 1)
    )
    assert len(apart[0]) == 8
    assert mutual_information(*apart, "regime_adaptive") >= mutual_information(*apart, "quadrature") - 1e-9
    with pytest.raises(ValueError, match="rows that sum to one"):
        mixture_kernel_components(
            secret, weight, share * 2, np.stack([mean, mean], 1), np.stack([covariance] * 2, 1)
        )


def test_the_modulus_bounds_the_change_of_information_of_any_channel():
    generator = np.random.default_rng(8)
    for _ in range(2000):
        secrets, symbols = generator.integers(2, 5), generator.integers(2, 6)
        prior = generator.dirichlet(np.ones(secrets))
        first = generator.dirichlet(np.full(symbols, 0.3), secrets)
        second = (1 - (step := generator.random() ** 3)) * first + step * generator.dirichlet(
            np.full(symbols, 0.3), secrets
        )
        distance = 0.5 * np.abs(first - second).sum(axis=1).max()
        change = abs(table_information(prior, first) - table_information(prior, second))
        assert change <= information_modulus(distance, int(secrets)) + 1e-12
    assert information_modulus(0.0, 4) == 0.0
    assert information_modulus(1.0, 4) == pytest.approx(math.log(4))
    with pytest.raises(ValueError, match="half the L1"):
        information_modulus(1.5, 4)


def table_information(prior, channel):
    joint = prior[:, None] * channel
    outside = joint.sum(axis=0)
    ratio = np.where(joint > 0, joint / (prior[:, None] * outside[None, :]), 1.0)
    return float((joint * np.log(ratio)).sum())


def _paper_by_numpy(secret, weight, mean, covariance, alpha):
    """H_KL(Y) − Σ q_k H_Cα(Y|k), row by row in float64."""
    precision, (_, log_det) = np.linalg.inv(covariance), np.linalg.slogdet(covariance)
    masses, size, total = np.bincount(secret, weight), mean.shape[1], 0.0
    for i in range(len(weight)):
        apart = mean[i] - mean
        square = np.einsum("jk,jkl,jl->j", apart, precision, apart)
        trace = np.einsum("kl,jlk->j", covariance[i], precision)
        overlap = weight @ np.exp(-0.5 * (square + trace - size + log_det - log_det[i]))
        own = secret == secret[i]
        mixed = (1.0 - alpha) * covariance[i] + alpha * covariance[own]
        distance = np.einsum("jk,jkl,jl->j", apart[own], np.linalg.inv(mixed), apart[own])
        volume = np.linalg.slogdet(mixed)[1] - (1.0 - alpha) * log_det[i] - alpha * log_det[own]
        closeness = np.exp(-0.5 * (alpha * (1.0 - alpha) * distance + volume))
        total += weight[i] * (np.log(weight[own] @ closeness / masses[secret[i]]) - np.log(overlap))
    return total


@pytest.mark.parametrize("size", [1, 2, 3])
def test_large_mixtures_are_bounded_in_mixed_precision_within_the_error_told(size):
    """Ragged groups in any order; the value is above that in float64, by at most twice the error."""
    generator = np.random.default_rng(30 + size)
    count = 700 + 60 * size
    secret = generator.choice(4, count, p=[0.05, 0.15, 0.2, 0.6])
    weight, mean = generator.dirichlet(np.ones(count)), 2.0 * generator.standard_normal((count, size))
    covariance = random_covariances(generator, count, size)
    for alpha in (0.5, 0.3):
        value = mutual_information(secret, weight, mean, covariance, "kl_chernoff", alpha=alpha)
        truth = _paper_by_numpy(secret, weight, mean, covariance, alpha)
        assert value.error is not None and 0.0 < value.error < 1e-5
        assert truth <= value <= truth + 2.0 * value.error


@pytest.mark.parametrize(("size", "reach"), [(2, 0.8), (4, 0.8), (2, 20.0)])
def test_narrow_components_far_apart_and_lone_secrets_keep_the_error_told(size, reach):
    """Standard deviations near 0.01; secrets of one to 500 components with unequal weights.

    At positions up to 20 the sums are formed by differences in float64, without an error to tell.
    """
    generator = np.random.default_rng(60 + size)
    sizes = (1, 500, 3, 70, 1, 130)
    count = sum(sizes)
    secret = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    weight = generator.dirichlet(np.full(count, 0.2)) + 1e-30
    centres = generator.uniform(-reach, reach, (40, size))
    mean = centres[generator.integers(0, 40, count)] + 0.02 * generator.standard_normal((count, size))
    covariance = 1e-4 * random_covariances(generator, count, size)
    for alpha in (0.5, 0.3):
        value = mutual_information(secret, weight, mean, covariance, "kl_chernoff", alpha=alpha)
        truth = _paper_by_numpy(secret, weight / weight.sum(), mean, covariance, alpha)
        assert (value.error is None) == (reach > 10.0)
        error = value.error or 1e-9
        assert 0.0 < error < 1e-5
        assert truth - 1e-9 <= value <= truth + 2.0 * error


def test_a_component_without_weight_changes_nothing_however_narrow():
    secret, weight, mean, covariance = random_mixture(np.random.default_rng(61))
    wider = (
        np.append(secret, secret[0]),
        np.append(weight, 0.0),
        np.concatenate([mean, mean[:1] + 5.0]),
        np.concatenate([covariance, 1e-13 * covariance[:1]]),
    )
    for method in ("regime_adaptive", "matched", "coupled"):
        assert mutual_information(*wider, method) == mutual_information(
            secret, weight, mean, covariance, method
        )


def test_a_large_mixture_too_narrow_for_products_is_bounded_by_differences():
    generator = np.random.default_rng(40)
    count = 600
    mixture = (
        np.repeat([0, 1], count // 2),
        np.full(count, 1.0 / count),
        3e3 * generator.standard_normal((count, 2)),
        np.broadcast_to(np.eye(2), (count, 2, 2)) * generator.uniform(1e-3, 1.0, count)[:, None, None],
    )
    value = mutual_information(*mixture, "kl_chernoff")
    assert value.error is None
    assert value == pytest.approx(_paper_by_numpy(*mixture, 0.5), abs=1e-6)


@pytest.mark.parametrize("sizes", [(130, 190, 200), (20, 20, 480)])
def test_the_layout_of_a_large_mixture_does_not_move_a_bound(sizes, monkeypatch):
    """Filled blocks and a mask agree with the small layout in float64."""
    generator = np.random.default_rng(50)
    count = sum(sizes)
    mixture = (
        generator.permutation(np.repeat(np.arange(3), sizes)),
        generator.dirichlet(np.ones(count)),
        generator.standard_normal((count, 2)),
        random_covariances(generator, count, 2),
    )
    fast = {method: mutual_information(*mixture, method) for method in ("reference", "matched")}
    for module in (closed_forms, inputs):
        monkeypatch.setattr(module, "LARGE", count)
    assert fast["reference"] == pytest.approx(mutual_information(*mixture, "reference"), abs=1e-8)
    assert fast["matched"] == pytest.approx(mutual_information(*mixture, "matched"), abs=1e-5)
