"""The accountant: sums, refusals, and budgets that several streams share."""

import math

import numpy as np
import pytest

from veil.sharing import Accountant, BudgetError


def test_what_is_covered_is_spent_and_what_is_not_changes_nothing():
    account = Accountant(0.5)
    assert account.spend(0.2) == pytest.approx(0.2) and account.remaining() == pytest.approx(0.3)
    account.check(0.3)
    with pytest.raises(BudgetError, match=r"0\.3 nats left of 0\.5"):
        account.spend(0.31)
    assert account.total() == pytest.approx(0.2)
    assert account.spend(0.3) == pytest.approx(0.5) and account.remaining() == 0.0
    account.spend(0.0)
    with pytest.raises(BudgetError):
        account.spend(1e-9)


def test_many_small_charges_are_added_as_exactly_as_one_sum():
    charges = np.random.default_rng(0).uniform(0.0, 1e-6, 200_000)
    account = Accountant(spent=charges)
    assert abs(account.total() - math.fsum(charges)) <= 2e-16 * math.fsum(charges) * 4
    again = Accountant(1.0, spent=charges[:1000])  # as after a restart
    assert again.total() == Accountant(1.0, spent=list(charges[:1000])).total()


def test_streams_of_one_secret_share_a_budget():
    """Each has its own limit, and all of them together the limit of the secret; a refusal spends nowhere."""
    secret = Accountant(0.3)
    first, second = Accountant(0.25, shared=secret), Accountant(0.25, shared=secret)
    first.spend(0.2)
    assert second.remaining() == pytest.approx(0.1) and secret.total() == pytest.approx(0.2)
    with pytest.raises(BudgetError, match=r"left of 0\.3"):
        second.spend(0.15)
    assert (second.total(), secret.total()) == (0.0, pytest.approx(0.2))
    second.spend(0.1)
    with pytest.raises(BudgetError, match=r"left of 0\.25"):
        first.spend(0.06)
    assert secret.remaining() == pytest.approx(0.0)


@pytest.mark.parametrize("charge", [-1e-9, math.nan, math.inf])
def test_charges_that_are_none_are_refused(charge):
    account = Accountant()
    with pytest.raises(ValueError, match="finite number of nats"):
        account.spend(charge)
    assert account.total() == 0.0 and account.remaining() == math.inf


@pytest.mark.parametrize("budget", [-0.1, math.nan])
def test_budgets_that_are_none_are_refused(budget):
    with pytest.raises(ValueError, match="0 or more"):
        Accountant(budget)
