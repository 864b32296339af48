"""The plain words of a report never make a leak smaller than it is."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.evaluation.made_audits import every_kind
from tests.report.test_audit_file import through_json
from veil.report import wording as words
from veil.results.audit import Quantity
from veil.stats import Mean

FOUND = {name: through_json(made) for name, made in every_kind().items()}


def test_at_most_is_never_below_and_at_least_never_above():
    values = np.random.default_rng(0).uniform(0.0, 1.5, 2000)
    for value in [0.0, 0.001, 0.0125, 1.386, *values]:
        assert float(words.at_most(value)) >= value - 1e-9
        assert float(words.at_most(value)) <= value + 1e-3
        assert value - 1e-3 <= float(words.at_least(value)) <= value + 1e-9


def test_nothing_is_said_to_leak_more_than_there_is():
    entropy = math.log(4)  # 1.38629: rounded up it would be 1.387
    assert words.ends((1.3861, entropy), entropy) == "1.386 to 1.386"
    assert words.ends((0.0, 1.3801), entropy) == "0.000 to 1.381"


def test_a_charge_is_never_said_to_be_nothing_unless_it_is():
    told = {0.0: "0.000 nats", 1e-9: "less than 0.001 nats", 1e-3: "0.001 nats", 0.0121: "0.013 nats"}
    assert {value: words.charged(value) for value in told} == told


def test_the_card_of_each_verdict():
    certified, leak = FOUND["certifiable"], FOUND["certified_leak"]
    share = certified.interval[1] / certified.leakage.entropy
    assert words.pill(certified) == f"At most {100 * share:.1f} % leaks" and words.tone(certified) == "good"
    assert words.pill(leak) == "At least 98 % leaks" and words.tone(leak) == "bad"
    for name in ("not_enough_particles", "filter_inconsistent", "replay_mismatch", "model_does_not_fit"):
        assert words.pill(FOUND[name]) == "Not certified" and words.tone(FOUND[name]) == "open"
        assert "Assume that all 1.386 nats may leak" in words.learning(FOUND[name])
    assert "nothing to learn" in words.learning(FOUND["one_secret"])


def test_much_that_leaks_for_sure_is_not_called_good():
    found = FOUND["uneven_prior"]  # bounded, but a third of all there is
    assert found.certified and words.tone(found) == "open"
    edge = words.LITTLE * found.leakage.entropy
    assert words.tone(replace(found, interval=(0.0, edge))) == "good"
    assert words.tone(replace(found, interval=(0.0, 1.01 * edge))) == "open"


def test_the_best_guess_is_told_beside_chance():
    found = FOUND["certified_leak"]
    assert found.best is not None
    right = round(100 * found.best.accuracy.value)
    said = words.guessing(found, "driver")
    assert f"everything but the driver guesses right {right}" in said and "25 % would be chance" in said
    assert "No adversary" in words.guessing(replace(found, attacks=()), "gain")


def test_two_runs_are_compared_only_where_their_intervals_are_apart():
    quiet, loud = FOUND["certifiable"], FOUND["certified_leak"]
    said = words.compared(("noise", quiet), ("true", loud))
    assert said == words.compared(("true", loud), ("noise", quiet))
    assert f"“noise” tells at most {words.at_most(quiet.interval[1])} nats where “true”" in said
    assert words.compared(("a", quiet), ("b", quiet)) == ""
    assert words.compared(("a", FOUND["not_enough_particles"]), ("b", FOUND["replay_mismatch"])) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Mean(0.114, 0.041), "+0.11 % ± 0.04"),
        (Mean(-0.163, 0.137), "−0.16 % ± 0.14"),
        (Mean(-0.001, 0.01), "0.00 % ± 0.01"),
        (Mean(math.nan, math.inf), "unknown"),
        (None, ""),
    ],
)
def test_changes_carry_their_sign_and_zero_has_none(change, said):
    assert words.change(Quantity("cost", "", Mean(1.0, 0.1), None, change)) == said
