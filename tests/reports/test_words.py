"""The plain words of a report never make a leak smaller than it is."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.evaluation.made_audits import audit, every_kind
from tests.reports.made_folders import audit_folder
from veil.reports.headline import LITTLE, _leaked, comparison, guessing, learning, tone
from veil.reports.leakage_sections import _single_runs
from veil.reports.sources import Material, collect
from veil.results import text as words
from veil.results.parts import Quantity
from veil.stats import Mean
from veil.systems import Platoon

FOUND = every_kind()


def test_at_most_is_never_below_and_at_least_never_above():
    values = np.random.default_rng(0).uniform(0.0, 1.5, 2000)
    for value in [0.0, 0.001, 0.0125, 1.386, *values]:
        assert float(words.at_most(value)) >= value - 1e-9
        assert float(words.at_most(value)) <= value + 1e-3
        assert value - 1e-3 <= float(words.at_least(value)) <= value + 1e-9


def test_nothing_is_said_to_leak_more_than_there_is():
    entropy = math.log(4)  # 1.38629: rounded up it would be 1.387
    assert words.interval_text((1.3861, entropy), entropy) == "1.386 to 1.386"
    assert words.interval_text((0.0, 1.3801), entropy) == "0.000 to 1.381"


def test_shares_are_rounded_outwards_and_end_at_all_there_is():
    entropy = math.log(5)
    assert words.share_text((0.0, 0.0598), entropy) == "0.0 to 3.8 %"
    assert words.share_text((1.6088, entropy), entropy) == "99.9 to 100.0 %"
    assert words.share_text((0.5 * entropy, 0.5 * entropy), entropy) == "50.0 to 50.0 %"


def test_a_charge_is_never_said_to_be_nothing_unless_it_is():
    texts = {0.0: "0.000 nats", 1e-9: "less than 0.001 nats", 1e-3: "0.001 nats", 0.0121: "0.013 nats"}
    assert {value: words.charged(value) for value in texts} == texts


def test_the_card_of_each_verdict():
    certified, leak = FOUND["certifiable"], FOUND["certified_leak"]
    share = certified.interval[1] / certified.leakage.entropy
    most = math.ceil(1000 * share) / 10
    assert certified.in_short == f"At most {most:.1f} % leaks as modelled" and tone(certified) == "good"
    assert leak.in_short == "At least 98 % leaks" and tone(leak) == "bad"
    for name in ("replay_mismatch", "model_does_not_fit", "tool_error"):
        assert FOUND[name].in_short == "Not certified" and tone(FOUND[name]) == "open"
        assert "Assume that all 1.386 nats may leak" in learning(FOUND[name])
    assert "nothing to learn" in learning(FOUND["one_secret"]) and FOUND["one_secret"].in_short == "No secret"


@pytest.mark.parametrize("name", ["not_enough_particles", "filter_inconsistent"])
def test_a_refusal_says_first_what_an_attacker_proves(name):
    found = FOUND[name]
    low, entropy = found.interval[0], found.leakage.entropy
    assert found.in_short == f"At least {math.floor(100 * low / entropy)} % leaks, no upper bound"
    said = learning(found)
    assert said.startswith(f"In 50 releases it learns at least {words.at_least(low)} of the 1.386 nats")
    assert "No upper bound is certified" in said and "Assume that all 1.386 nats may leak" in said


def test_where_much_is_proven_to_leak_the_card_says_so_before_what_leaks_at_most():
    found = FOUND["uneven_prior"]  # bounded, but a third of all there is
    low, high = (100 * end / found.leakage.entropy for end in found.interval)
    assert found.in_short == f"At least {math.floor(low)} %, at most {math.ceil(high)} % leaks as modelled"
    assert found.verdict.certified and tone(found) == "bad"


def test_only_what_can_leak_little_is_called_good():
    edge = LITTLE * math.log(4)
    assert tone(audit(lower=0.0, upper=edge - 1e-9, error=0.0)) == "good"
    assert tone(audit(lower=0.0, upper=1.01 * edge, error=0.0)) == "open"
    assert tone(audit(lower=1.01 * edge, upper=1.02 * edge, error=0.0)) == "bad"


def test_the_best_guess_is_told_beside_chance():
    found = FOUND["certified_leak"]
    assert found.best_attack is not None
    said = guessing(found, found.nouns)
    right = words.percent(found.best_attack.accuracy.value)
    assert (
        f"everything but the driving style names the right driver {right}" in said
        and "25 % would be chance" in said
    )
    assert "No adversary" in guessing(replace(found, attacks=()), found.nouns)


def test_runs_are_compared_only_where_their_intervals_are_apart(tmp_path):
    def compared(**audits):
        folders = [audit_folder(tmp_path / name, made) for name, made in audits.items()]
        return comparison(Material("", tuple(map(collect, folders)), {}))

    quiet, loud = FOUND["certifiable"], FOUND["certified_leak"]
    said = compared(noise=quiet, true=loud)
    assert (
        said
        == compared(true=loud, noise=quiet)
        == compared(between=FOUND["uneven_prior"], noise=quiet, true=loud)
    )
    assert f"“noise” tells at most {words.at_most(quiet.interval[1])} nats where “true”" in said
    assert compared(a=quiet, b=quiet) == "" and compared(a=quiet) == ""
    assert compared(c=FOUND["not_enough_particles"], d=FOUND["replay_mismatch"]) == ""


def test_a_secret_is_shown_with_names_and_units():
    fields = Platoon().secret_fields
    assert words.secret_text(fields, (0.4, 0.5)) == "speed gain 0.4 1/s, difference gain 0.5 1/s"


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
    assert words.change_text(Quantity("cost", "", Mean(1.0, 0.1), None, change)) == said


def test_runs_that_revealed_nothing_are_not_said_to_reveal_more_than_nothing():
    found = replace(FOUND["certifiable"], realised=np.full(64, 1e-15))
    for said in (_single_runs(found), found.summary()):
        assert "not one revealed 0.001 nats or more" in said and "more than 0.000" not in said
    told = replace(found, realised=np.full(64, 0.002))
    assert (
        "one in a hundred more than 0.002" in _single_runs(told) and "the worst one 0.002" in told.summary()
    )
    for audit_, count in ((found, 0), (told, 1)):
        assert [row.name for row in _leaked(audit_)].count("worst_per_cent") == count
