"""Linkage against classes whose confusion is known, and against independence."""

import dataclasses
import functools

import numpy as np
import pytest
from scipy import integrate, stats

from veil.attacks import linkage
from veil.attacks.linkage import (
    best_of,
    nearest_matcher,
    normalised,
    regression_features,
    trained_matcher,
    true_ranks,
)

SOME = 4000  # permutations
link, match, match_others = (
    functools.partial(one, permutations=SOME) for one in (linkage.link, linkage.match, linkage.match_others)
)

CLASSES, STEP = 6, 1.4  # individuals in a row, this many standard deviations of the noise apart


@pytest.fixture(scope="module")
def row():
    """Streams that are the place of their owner and standard normal noise, and their scores."""
    owners = np.tile(np.arange(CLASSES), 300)
    streams = STEP * owners + np.random.default_rng(0).standard_normal(len(owners))
    return -0.5 * (streams[:, None] - STEP * np.arange(CLASSES)[None]) ** 2, owners


def information_of_the_row():
    """Mutual information by quadrature."""

    def entropy_part(y):
        density = stats.norm.pdf(y - STEP * np.arange(CLASSES)).mean()
        return -density * np.log(density)

    ends = -8.0, STEP * (CLASSES - 1) + 8.0
    return integrate.quad(entropy_part, *ends, limit=200)[0] - 0.5 * np.log(2 * np.pi * np.e)


def test_classes_on_a_line_are_found_as_often_as_the_normal_law_says(row):
    scores, owners = row
    found = link("line", scores, owners)
    half = float(stats.norm.cdf(STEP / 2.0))
    expected = (2.0 * half + (CLASSES - 2) * (2.0 * half - 1.0)) / CLASSES
    error = np.sqrt(expected * (1.0 - expected) / len(owners))
    assert found.first.value == pytest.approx(expected, abs=4.0 * error)
    # the owner is among the first five unless the noise goes past all the others, seen from an end
    last = 2.0 * float(stats.norm.sf((CLASSES - 1) * STEP / 2.0)) / CLASSES
    assert found.named.value == pytest.approx(1.0 - last, abs=4.0 * np.sqrt(last / len(owners)) + 1e-9)
    assert found.links() and found.errors > 10.0


@pytest.mark.parametrize("scale", [1.0, -0.01, 250.0])
def test_the_information_of_classes_on_a_line_is_that_of_quadrature_whatever_the_scale(row, scale):
    """The calibration finds the scale of the scores, and its sign."""
    scores, owners = row
    told = link("line", scale * scores, owners, permutations=400).information
    assert told.value == pytest.approx(information_of_the_row(), abs=4.0 * told.error)
    assert 0.01 < told.error < 0.03


def test_owners_who_are_always_last_are_linked_as_well():
    rng = np.random.default_rng(1)
    scores = rng.standard_normal((40, 40)) - 8.0 * np.eye(40)
    found = link("backwards", scores, np.arange(40), permutations=50_000)
    assert found.median_rank == 40 and found.errors < -3.0 and found.links(20)
    assert found.p[2] < 1e-3 and found.information.low() > 0.0


def test_ties_are_worth_their_part_of_a_hit():
    found = link("constant", np.zeros((12, 12)), np.arange(12), permutations=400)
    assert found.first.value == pytest.approx(1 / 12) and found.named.value == pytest.approx(5 / 12)
    assert found.median_rank == 6.5 and found.place.value == pytest.approx(0.5)
    assert found.p == (1.0, 1.0, 1.0) and not found.links() and found.information.value == 0.0
    scores = np.array([[3.0, 3.0, 1.0, 0.0, 0.0, 0.0, -1.0]] * 3)
    ranks = [1.5, 1.5, 3.0, 5.0, 5.0, 5.0, 7.0]
    assert np.array_equal(true_ranks(scores), [ranks] * 3)
    half = link("ties", scores, np.array([0, 4, 6]), permutations=400)
    assert half.first.value == pytest.approx((0.5 + 0.0 + 0.0) / 3)
    assert half.named.value == pytest.approx((1.0 + 2.0 / 3.0 + 0.0) / 3)


def test_the_error_of_the_mean_place_is_that_of_hoeffding_for_permuted_owners():
    """Σ (doubly centred)² / (n − 1), with an individual who attracts all streams."""
    rng, count = np.random.default_rng(2), 30
    scores = rng.standard_normal((count, count)) + np.linspace(0.0, 6.0, count)[None]
    places = (true_ranks(scores) - 0.5) / count
    apart = places - places.mean(0) - places.mean(1)[:, None] + places.mean()
    exact = np.sqrt(np.sum(apart**2) / (count - 1)) / count
    found = link("popular", scores, np.arange(count), permutations=50_000)
    assert found.place.error == pytest.approx(exact, rel=4.0 / np.sqrt(2 * 50_000))
    assert exact < 0.7 * np.sqrt((1.0 - count**-2.0) / 12.0 / count), "independent ranks would vary more"


def test_scores_that_have_nothing_to_do_with_owners_are_called_links_as_rarely_as_stated():
    rng, count, runs = np.random.default_rng(3), 20, 120
    p, places, nats = [], [], []
    for seed in range(runs):
        scores = rng.standard_normal((count, count)) + 2.0 * rng.standard_normal(count)[None]
        found = link("nothing", scores, np.arange(count), seed=seed, permutations=400)
        p.append(found.p)
        places.append(found.places.mean())
        nats.append(found.information.value)
    p = np.array(p)
    assert stats.kstest(p[:, 2], "uniform").pvalue > 1e-3
    assert np.all(np.mean(p <= 0.1, axis=0) < 0.1 + 4.0 * np.sqrt(0.1 * 0.9 / runs))
    assert np.mean(places) == pytest.approx(0.5, abs=4.0 * np.std(places) / np.sqrt(runs))
    assert np.mean(nats) < 3.0 * np.std(nats) / np.sqrt(runs), "a bound from below, out of sample"


def test_a_matcher_that_goes_by_the_order_of_its_rows_finds_nobody():
    def by_order(references, streams):
        return -np.abs(np.arange(len(streams))[:, None] - np.arange(len(references))[None]).astype(float)

    features = np.random.default_rng(4).standard_normal((60, 2))
    assert link("cheat", by_order(features, features), np.arange(60)).first.value == 1.0
    for seed in range(3):
        found = match("cheat", by_order, features, features, np.arange(60), seed=seed)
        assert found.first.value < 0.1 and abs(found.errors) < 4.0 and not found.links()
        others = match_others(
            "cheat", lambda *_: by_order, features, features, np.arange(60), folds=3, seed=seed
        )
        assert others.first.value < 0.25 and abs(others.errors) < 4.0


def test_only_individuals_of_the_same_group_are_candidates():
    rng, groups = np.random.default_rng(5), np.repeat(np.arange(6), 5)
    scores = rng.standard_normal((30, 30))
    outside = groups[:, None] != groups[None, :]
    found = link("inside", scores, np.arange(30), groups)
    again = link("inside", np.where(outside, np.nan, scores), np.arange(30), groups)
    assert found.p == again.p and found.median_rank == again.median_rank
    assert (
        found.candidates == 5 and found.chance[0] == pytest.approx(0.2, abs=0.01) and found.named.value == 1.0
    )
    told = link("inside", scores + 9.0 * np.eye(30), np.arange(30), groups)
    assert told.first.value == 1.0 and told.information.value == pytest.approx(np.log(5), abs=0.1)
    with pytest.raises(ValueError, match="not finite"):
        link("bad", np.full((4, 4), np.nan), np.arange(4))


def test_shifted_and_scaled_features_are_matched_as_before_and_one_outlier_changes_nothing():
    rng = np.random.default_rng(6)
    known = rng.standard_normal((50, 3))
    told = known + 0.1 * rng.standard_normal((50, 3))
    plain = nearest_matcher(known, told)
    moved = nearest_matcher(known * [1.0, 7.0, 0.2] - 3.0, told * [5.0, 1.0, 1.0] + [0.0, 100.0, 2.0])
    assert np.allclose(plain, moved)
    assert match("near", nearest_matcher, known, told, np.arange(50)).first.value > 0.8
    spoilt = known.copy()
    spoilt[0] = 1e6
    assert match("outlier", nearest_matcher, spoilt, told, np.arange(50)).first.value > 0.75


def test_a_popular_individual_attracts_nobody_after_normalisation():
    rng = np.random.default_rng(7)
    scores = rng.standard_normal((40, 40)) + 2.0 * np.eye(40)
    popular = scores + 50.0 * (np.arange(40) == 3)[None, :] + 9.0 * rng.standard_normal(40)[:, None]
    assert link("raw", popular, np.arange(40), permutations=400).first.value <= 0.05
    plain, found = (link("n", normalised(one), np.arange(40)) for one in (scores, popular))
    assert found.first.value == pytest.approx(plain.first.value, abs=0.08) and found.links()


def test_the_trained_matcher_learns_the_conditional_gaussian_law():
    """References and streams are both noisy: of the same two numbers, through a matrix."""
    rng, count = np.random.default_rng(8), 6000
    root, mixing = np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([[1.0, -0.5], [0.3, 2.0]])

    def sample(size):
        latent = rng.standard_normal((size, 2)) @ root.T
        known = latent + 0.5 * rng.standard_normal((size, 2))
        return known, latent @ mixing.T + rng.standard_normal((size, 2)) * [0.3, 0.6]

    matcher = trained_matcher(*sample(count))
    known, told = sample(25)
    law = root @ root.T
    slope = mixing @ law @ np.linalg.inv(law + 0.25 * np.eye(2))
    left = mixing @ law @ mixing.T + np.diag([0.09, 0.36]) - slope @ law @ mixing.T
    away = told[:, None, :] - (known @ slope.T)[None, :, :]
    exact = -0.5 * np.sum((away @ np.linalg.inv(left)) * away, axis=2)
    found = matcher(known, told)
    centred = [one - one.mean(axis=1, keepdims=True) for one in (found, exact)]
    slope, error = np.polyfit(centred[1].ravel(), centred[0].ravel(), 1)[0], np.std(centred[0] - centred[1])
    assert slope == pytest.approx(1.0, abs=0.06) and error < 0.05 * np.std(centred[1])


def test_a_matcher_is_trained_on_others_and_gains_nothing_by_it():
    """Overfitting makes it know the individuals it has seen; those are no candidates."""
    rng, seen = np.random.default_rng(9), []
    known = rng.standard_normal((40, 12))

    def spy(references, streams):
        matcher = trained_matcher(references, streams)

        def found(candidates, told):
            seen.append((references[:, 0], candidates[:, 0]))
            return matcher(candidates, told)

        return found

    errors = []
    for seed in range(16):
        told = rng.standard_normal((40, 6))
        errors.append(match_others("spy", spy, known, told, np.arange(40), seed=seed).errors)
    assert len(seen) == 64 and all(not set(first) & set(second) for first, second in seen)
    assert all(len(set(second)) == 10 for _, second in seen)
    assert abs(np.mean(errors)) < 4.0 / np.sqrt(16) and 0.5 < np.std(errors) < 1.5
    told = known[:, :6] + 0.1 * rng.standard_normal((40, 6))
    found = match_others("told", trained_matcher, known, told, np.arange(40))
    assert found.candidates == 10 and found.first.value > 0.5 and found.links()


def test_regression_features_are_the_numbers_of_a_known_loop():
    rng, count = np.random.default_rng(10), 20_000
    push, noise, state = rng.standard_normal((count, 1)), rng.standard_normal(count), np.zeros((count, 1))
    colour = 0.0
    for t in range(count - 1):
        colour = 0.6 * colour + 0.8 * noise[t]
        state[t + 1] = state[t] - 0.3 * state[t] + 0.5 * push[t] + 0.2 * noise[t]
    found = regression_features(state, push)
    assert found["gains"] == pytest.approx([-0.3, 0.5], abs=4.0 * 0.01)
    size, first, second, fifth, fourth = found["noise"]
    assert np.exp(size) == pytest.approx(0.2, abs=4 * 0.2 / np.sqrt(2 * count))
    assert max(abs(first), abs(second), abs(fifth)) < 4.0 / np.sqrt(count)
    assert fourth == pytest.approx(3.0**0.25, abs=0.02)


def test_the_best_attacker_is_the_one_furthest_from_chance():
    rng = np.random.default_rng(11)
    noise = rng.standard_normal((30, 30))
    rows = [link("none", noise, np.arange(30)), link("low", noise - 2.0 * np.eye(30), np.arange(30))]
    assert best_of(rows).name == "low"


def test_a_p_value_is_compared_with_the_level_by_all_tests():
    found = link("none", np.random.default_rng(12).standard_normal((30, 30)), np.arange(30))
    rare = dataclasses.replace(found, p=(1.0, 1.0, 0.001))
    assert rare.links(1) and not rare.links(2) and rare.links(2, level=0.005)
    assert dataclasses.replace(found, p=(0.001, 1.0, 1.0)).links()
    assert not dataclasses.replace(found, p=(1.0, 0.001, 1.0)).links(), "among five is told, not tested"
