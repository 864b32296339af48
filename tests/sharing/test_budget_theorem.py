"""The budget theorem on a finite hidden Markov chain, every public history enumerated: no sampling at all.

Two hidden states, two values of the release, an environment that answers with what was shared. The exact
filter gives i_t(h_t); the accountant decides by it. The leakage of the whole run is then a finite sum.
"""

import itertools

import numpy as np
import pytest

from veil.sharing.account import Accountant, BudgetError

STEPS = 5
PRIOR = np.array([0.5, 0.3, 0.2])
START = np.array([0.6, 0.4])
STAY = np.array([[0.9, 0.5], [0.6, 0.3], [0.2, 0.8]])  # P(x' = x | θ, w), w in {0, 1}
HIT = np.array([[0.9, 0.2], [0.8, 0.3], [0.85, 0.25]])  # P(y = 1 | θ, x)
COIN = np.array([0.5, 0.5])  # of a blind release


def moved(beliefs, w):
    """P(x' | θ, h) from P(x | θ, h)."""
    stay = STAY[:, w, None]
    return stay * beliefs + (1 - stay) * beliefs[:, ::-1]


def release_law(beliefs):
    """P(y | θ, h) for y = 0, 1, and what is left of P(x, y | θ, h) for each."""
    joint = np.stack([(1 - HIT) * beliefs, HIT * beliefs], axis=1)
    return joint.sum(axis=2), joint


def information(masses, law):
    marginal = masses @ law
    return float(np.sum(masses[:, None] * law * np.log(law / marginal)))


def leakage(budget, exhausted, factor=1.0, stops=lambda step, shared: False):
    """I(Θ; Y, W, stop) of the budgeted run, charges being `factor` times the truth, and the most charged."""
    total, most = 0.0, 0.0

    def follow(step, masses_joint, beliefs, w, spent, shared):
        """Add up over all continuations; `masses_joint` is q(θ) P(h | θ)."""
        nonlocal total, most
        likely = masses_joint.sum()
        if step == STEPS or stops(step, shared):
            posterior = masses_joint / likely
            total += likely * np.sum(posterior * np.log(posterior / PRIOR))
            most = max(most, sum(spent))
            return
        law, joint = release_law(beliefs)
        charge = factor * information(masses_joint / likely, law)
        try:
            Accountant(budget, spent).check(charge)
        except BudgetError:
            shut(step, masses_joint, beliefs, w, spent, shared)
            return
        for y in (0, 1):
            after = joint[:, y] / law[:, y, None]
            follow(step + 1, masses_joint * law[:, y], moved(after, w), y, [*spent, charge], (*shared, y))

    def shut(step, masses_joint, beliefs, w, spent, shared):
        if exhausted == "withhold":
            follow(step + 1, masses_joint, moved(beliefs, w), 0, spent, (*shared, None))
            return
        for y in (0, 1):  # a public coin that still drives the environment
            follow(step + 1, COIN[y] * masses_joint, moved(beliefs, w), y, spent, (*shared, y))

    follow(0, PRIOR, np.broadcast_to(START, (3, 2)), 0, [], ())
    return total, most


@pytest.mark.parametrize("exhausted", ["withhold", "blind"])
@pytest.mark.parametrize("budget", [0.0, 0.005, 0.02, 0.05, 10.0])
def test_the_leakage_is_at_most_the_budget(exhausted, budget):
    leaked, most = leakage(budget, exhausted)
    assert most <= budget + 1e-12
    assert -1e-12 <= leaked <= budget + 1e-12


def test_without_a_limit_it_is_the_information_of_the_whole_chain():
    """Σ_h Σ_θ q P(h | θ) log P(h | θ) / P(h), by the forward recursion of each history."""
    chances = []
    for history in itertools.product((0, 1), repeat=STEPS):
        beliefs, likelihood, w = np.broadcast_to(START, (3, 2)), np.ones(3), 0
        for y in history:
            joint = (HIT if y else 1 - HIT) * beliefs
            likelihood = likelihood * joint.sum(axis=1)
            beliefs, w = moved(joint / joint.sum(axis=1, keepdims=True), w), y
        chances.append(likelihood)
    chances = np.array(chances).T
    assert np.allclose(chances.sum(axis=1), 1.0)
    assert leakage(np.inf, "withhold")[0] == pytest.approx(information(PRIOR, chances), rel=1e-12)


@pytest.mark.parametrize("exhausted", ["withhold", "blind"])
def test_an_understated_charge_breaks_it(exhausted):
    """By 30 %: every path keeps the budget by its own account, and the run leaks more."""
    broken = 0
    for budget in np.linspace(0.005, 0.06, 12):
        leaked, most = leakage(budget, exhausted, 0.7)
        assert most <= budget + 1e-12
        broken += leaked > budget * 1.02
    assert broken >= 3


@pytest.mark.parametrize("exhausted", ["withhold", "blind"])
def test_it_holds_when_the_stream_may_stop_at_any_time_by_what_is_public(exhausted):
    leaked, most = leakage(0.02, exhausted, stops=lambda step, shared: step > 1 and shared[-1] == 1)
    assert 0.0 < leaked <= 0.02 + 1e-12 and most <= 0.02 + 1e-12
