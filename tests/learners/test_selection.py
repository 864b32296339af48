import numpy as np
import pytest

from veil.learners.base import mistaken_secret, plants, robust
from veil.learners.selection import EpisodeSample, counted
from veil.stats import Leakage, Mean
from veil.systems import Gain, Platoon

ENTROPY = float(np.log(4.0))


def leakage_counted(claimed, lower, upper, error=0.01):
    none = np.zeros(0)
    found = EpisodeSample(
        none, none, none, none, none, Leakage(Mean(lower, error), Mean(upper, error), ENTROPY)
    )
    return counted(found, Mean(claimed, 0.001))


@pytest.mark.parametrize(
    ("claimed", "lower", "upper", "expected"),
    [
        (0.1, 0.08, 0.12, 0.1),  # the sides agree: the claim, which scatters least
        (0.1, -0.3, 0.9, 0.9),  # a filter in trouble: the upper side
        (0.1, 0.3, 0.31, 0.31),  # episodes tell more than the filter claims
        (0.1, 0.12, 0.13, 0.1),  # within the errors
    ],
)
def test_a_claim_counts_only_where_nothing_speaks_against_it(claimed, lower, upper, expected):
    assert leakage_counted(claimed, lower, upper) == expected


def test_an_owner_who_errs_takes_one_secret_for_more_and_the_next_for_less():
    scenario = mistaken_secret(Gain(), 0.2)
    assert np.allclose(np.asarray(scenario.believed)[:, 0], [0.3 * 1.2, 0.6 * 0.8, 0.9 * 1.2])
    assert scenario.error == 0.0  # the adversary knows


def test_a_family_has_the_model_and_plants_that_are_not_it():
    family = robust(Platoon(), 5)
    names = [problem.scenario.name for problem in family]
    assert names == ["as modelled", "secret mistaken by 20%", "idm drivers", "coloured noise"]
    assert all(problem.leakage_belief is not None for problem in family)  # never the wrong model
    assert [scenario.name for scenario in plants(Gain())][::2] == ["as modelled", "more noise"]
