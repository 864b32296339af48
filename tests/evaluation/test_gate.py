"""The gate: its order, its limits, and that no broken measurement passes."""

from dataclasses import replace

import numpy as np
import pytest

from veil.evaluation.scoring import bad_episodes
from veil.evaluation.verdict import VerdictInputs, reach_verdict, width_limit
from veil.results.parts import AttackResult
from veil.stats import Leakage, Mean, clopper_pearson

H = float(np.log(4))


def attack(lower, hits=260, role="attack"):
    mean = Mean(lower, 0.005)
    return AttackResult("someone", role, clopper_pearson(hits, 1024), mean, mean, Mean(0.0, 0.01), 1024, 1.0)


GOOD = VerdictInputs(
    leakage=Leakage(Mean(0.10, 0.005), Mean(0.11, 0.005), H),
    bad=0.0,
    calibration=Mean(0.0, 0.01),
    vulnerability=Mean(0.27, 0.01),
    ranks=np.random.default_rng(0).uniform(size=(1024, 2)),
    attacks=(attack(0.09),),
    mismatch=0,
    failed=0.0,
    method="filter",
)


def verdict(**changes):
    return reach_verdict(replace(GOOD, **changes), 0.25)


def test_a_sound_measurement_passes_and_shows_all_its_inputs():
    found = verdict()
    assert found.name == "certifiable" and not found.reasons
    assert {
        "lower",
        "upper",
        "width",
        "bad_fraction",
        "calibration",
        "rank_p",
        "accuracy_allowed",
    } <= found.inputs.keys()
    assert all(value == value for value in found.inputs.values())


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"mismatch": 1}, "replay_mismatch"),
        ({"attacks": (attack(1.375, 1015),)}, "certified_leak"),
        (
            {"leakage": Leakage(Mean(0.1, 0.005), Mean(0.1 + 1.01 * width_limit(H), 0.005), H)},
            "not_enough_particles",
        ),
        ({"leakage": Leakage(Mean(0.1, 0.005), Mean(float("nan"), float("inf")), H)}, "not_enough_particles"),
        ({"bad": 0.021}, "not_enough_particles"),
        ({"failed": 0.001}, "not_enough_particles"),
        ({"method": None}, "no_upper_bound"),
        ({"method": "coupling", "bad": 0.3}, "certifiable"),
        ({"calibration": Mean(-0.06, 0.01)}, "filter_inconsistent"),
        ({"ranks": np.random.default_rng(0).beta(2, 2, size=(1024, 2))}, "filter_inconsistent"),
        ({"attacks": (attack(0.2),)}, "filter_inconsistent"),
        ({"attacks": (attack(0.0, 600),)}, "filter_inconsistent"),
        ({"attacks": (attack(0.9, 900, role="assisted"),)}, "certifiable"),
    ],
)
def test_each_rule_has_its_verdict(changes, name):
    assert verdict(**changes).name == name


def test_the_rules_are_asked_in_order():
    everything = {
        "mismatch": 1,
        "attacks": (attack(1.375, 1015),),
        "method": None,
        "bad": 0.5,
        "calibration": Mean(-1.0, 0.01),
    }
    names = []
    for rule in everything:
        names.append(verdict(**everything).name)
        everything = {**everything, rule: getattr(GOOD, rule)}
    assert names == [
        *("replay_mismatch", "certified_leak", "no_upper_bound", "not_enough_particles"),
        "filter_inconsistent",
    ]


def test_an_attack_that_beats_the_bound_is_an_error_of_the_tool():
    for row in (attack(0.2), attack(0.0, 600)):
        assert any("error of the tool" in reason for reason in verdict(attacks=(row,)).reasons)


def test_a_coupling_that_bounds_nothing_says_so_and_one_that_bounds_something_is_believed():
    """No particles are asked for where there are none."""
    everything = Leakage(Mean(0.0, 0.0), Mean(H, 0.0), H)
    found = verdict(method="coupling", bad=1.0, leakage=everything, attacks=())
    assert found.name == "no_upper_bound" and "differ in 100.0% of the episodes" in found.reasons[0]
    part = Leakage(Mean(0.0, 0.0), Mean(0.1 * H, 0.01), H, 0.13 * H)
    assert verdict(method="coupling", bad=0.1, leakage=part, attacks=()).name == "certifiable"
    assert verdict(bad=0.1, leakage=part, attacks=()).name == "not_enough_particles"


def test_one_secret_has_nothing_to_leak():
    nothing = Leakage(Mean(0.0, 0.0), Mean(0.0, 0.0), 0.0)
    sure = AttackResult(
        "prior", "attack", clopper_pearson(10, 10), Mean(0.0, 0.0), Mean(0.0, 0.0), Mean(0.0, 0.0), 10, 0.0
    )
    found = reach_verdict(replace(GOOD, leakage=nothing, attacks=(sure,), calibration=Mean(0.0, 0.0)), 1.0)
    assert found.name == "certifiable"


@pytest.mark.parametrize(
    ("first", "second", "bad"),
    [
        ([0.0, -3.0], [0.0, -3.0], False),
        ([0.0, -3.0], [0.0, -5.0], True),  # two nats apart about a secret that matters
        ([0.0, -25.0], [0.0, -40.0], False),  # both exclude it
        ([0.0, -19.0], [0.0, -40.0], True),  # one does not
        ([-30.0, 0.0], [0.0, -30.0], True),  # each excludes another one
        ([0.0, -np.inf], [0.0, -np.inf], True),
        ([0.0, np.nan], [0.0, -30.0], True),
    ],
)
def test_an_episode_is_bad_where_its_pilots_disagree_about_what_matters(first, second, bad):
    assert bad_episodes(np.array([[first, second]])).tolist() == [bad]


def test_a_divergence_may_be_large_and_a_method_without_an_upper_side_is_none():
    wide = Leakage(Mean(0.0, 0.0), Mean(0.4, 0.01), H)
    assert verdict(leakage=wide, attacks=(), method="excess").name == "certifiable"
    assert verdict(leakage=wide, attacks=(), method="filter").name == "not_enough_particles"
    assert verdict(leakage=wide, attacks=(), method="excess", bad=0.2).name == "not_enough_particles"
    assert verdict(attacks=(), method="attack").name == "no_upper_bound"


def test_where_a_reader_is_told_more_a_poor_filter_is_no_reason_to_refuse():
    """Neither is what it says about the model; what attackers gain still is."""
    wide, poor = Leakage(Mean(0.1, 0.005), Mean(0.4, 0.005), H), Mean(-1.0, 0.01)
    ranks = np.random.default_rng(0).beta(2, 2, size=(1024, 2))
    given = {"leakage": wide, "bad": 0.3, "told": ("the wall as well", 0.3)}
    assert verdict(**given).name == verdict(**given, calibration=poor, ranks=ranks).name == "certifiable"
    assert verdict(**given, attacks=(attack(0.6),)).name == "filter_inconsistent"
    assert verdict(**(given | {"told": None})).name == "not_enough_particles"
    seldom = {"told": ("the wall as well", 0.01), "bad": 0.01}
    assert verdict(**seldom).name == "certifiable"
    assert verdict(**seldom, calibration=poor).name == "filter_inconsistent", "a good filter is a test"
