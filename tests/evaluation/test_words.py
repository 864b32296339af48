"""The words say what the numbers say, and nothing more."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tests.evaluation import made_audits as made
from veil.results import text
from veil.stats import Mean, Rate

KINDS = made.every_kind()
REFUSALS = [
    name for name, audit in KINDS.items() if audit.verdict.name not in ("certifiable", "certified_leak")
]


def amounts(text, unit):
    """All numbers before a unit, in order."""
    return [float(number) for number in re.findall(rf"([\d.]+) {unit}", text)]


def test_the_sentence_of_a_certified_bound_is_this_one():
    assert KINDS["certifiable"].sentence == (
        "leaks at least 0.004 nats (0.006 bits) and at most 0.021 nats (0.030 bits) of the 1.386 nats there "
        "are over 50 steps, with 99.87 % confidence; the best of six attackers names the right driver 26 % "
        "of the time, chance is 25 %; the cost changes by +1.30 % ± 0.20 against true data"
    )


@pytest.mark.parametrize("upper", [0.0, 1e-9, 0.0123, 0.0145, 0.1, 0.31337, 1.2])
def test_at_most_is_never_less_than_the_data_and_bits_are_nats_over_log_two(upper):
    audit = made.audit(lower=upper / 2, upper=upper, error=0.001)
    said = audit.sentence.partition("at most")[2]
    high = upper + 3 * 0.001
    (nats, _), (bits,) = amounts(said, "nats"), amounts(said, "bits")
    least = audit.sentence.partition(" and at most")[0]
    assert (audit.interval[0] < 1e-3) == ("at least" not in audit.sentence)
    assert all(value <= audit.interval[0] + 1e-9 for value in amounts(least, "nats") if "at least" in least)
    assert high - 1e-9 <= nats <= high + 0.001 + 1e-9
    assert high / math.log(2) - 1e-9 <= bits <= high / math.log(2) + 0.001 + 1e-9


def test_a_reliable_audit_of_a_large_leak_does_not_sound_like_a_pass():
    """What is proven comes first, then the word, then what the word means and what to do."""
    audit = made.audit(lower=0.9, upper=0.95, error=0.001)
    first, second, *rest = audit.summary().splitlines()
    assert audit.verdict.name == "certifiable"
    assert re.search(
        r"leaks at least 0\.8\d\d nats .* and at most 0\.9\d\d nats .* of the 1\.386 nats", first
    )
    low, high = (100 * end / audit.leakage.entropy for end in audit.interval)
    assert second == (
        f"Verdict: certifiable. At least {math.floor(low)} %, at most {math.ceil(high)} % leaks as modelled: "
        "this audit can be relied on; whether that is little enough is yours to judge."
    )
    assert rest[0].startswith("Protect more") and audit.advice == rest[0]
    assert (
        f"At least {math.floor(low)} %, at most {math.ceil(high)} % leaks as modelled (certifiable)"
        in str(audit)
    )
    assert made.audit(lower=0.0, upper=0.01, error=0.001).advice == "", "little: nothing to do"


def test_a_bound_that_is_no_bound_is_called_everything():
    text = made.audit(lower=0.5, upper=1.386, error=0.1).sentence
    assert "everything there is to know, 1.386 nats (2.000 bits)," in text


@pytest.mark.parametrize(
    ("share", "begin"), [(0.0, ""), (0.09, "in 9 % of the episodes, where the filters fail, "), (1.0, "")]
)
def test_a_verdict_says_where_the_upper_side_is_that_of_a_reader_who_is_told_more(share, begin):
    audit = KINDS["certifiable"]
    inputs = audit.verdict.inputs | {"told": "the wall as well", "told_fraction": share}
    said = replace(audit, verdict=replace(audit.verdict, inputs=inputs)).sentence
    clause = f"; {begin}the upper side is what a reader gains who is told the wall as well: "
    assert (clause in said) == (share > 0.0) and ("told" in said) == (share > 0.0)
    assert share == 0.0 or said.index("at most") < said.index("told") < said.index("the best of six")
    refused = KINDS["not_enough_particles"]
    other = replace(refused, verdict=replace(refused.verdict, inputs=inputs))
    assert "told" not in other.sentence, "what is not certified has no upper side to explain"


def test_at_least_is_never_more_than_the_data():
    audit = KINDS["certified_leak"]
    low = 1.37 - 3.5 * 0.0022  # as the gate would have it
    text = audit.sentence
    assert text.startswith("leaks at least 1.362 nats (1.965 bits) of the 1.386 nats there are")
    assert low - 0.001 <= amounts(text, "nats")[0] <= low
    assert low / math.log(2) - 0.001 <= amounts(text, "bits")[0] <= low / math.log(2)
    assert audit.interval == (pytest.approx(low), pytest.approx(math.log(4)))


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_gives_its_reasons_assumes_everything_and_says_what_to_do(name):
    audit = KINDS[name]
    text = audit.sentence
    proven = audit.interval[0] >= 1e-3
    begin = "leaks at least" if proven else "cannot certify: "
    assert text.startswith(begin) and "cannot certify" in text
    assert "assume everything (1.386 nats) may leak" in text
    assert all(reason in text for reason in audit.verdict.reasons)
    assert audit.advice and text.endswith(audit.advice)
    assert "at most" not in text
    assert audit.interval[1] == pytest.approx(math.log(4))


def test_each_refusal_has_its_own_advice():
    advice = {name: KINDS[name].advice for name in REFUSALS}
    assert len(set(advice.values())) == len(advice)
    assert "more particles" in advice["not_enough_particles"] and "folding" in advice["not_enough_particles"]
    assert "--learned" in advice["filter_inconsistent"]
    assert "seed" in advice["replay_mismatch"] and "build" in advice["replay_mismatch"]
    assert "recorded data" in advice["model_does_not_fit"]
    assert "report it" in advice["tool_error"] and "error of the tool" in advice["tool_error"]


def test_a_kernel_without_any_method_is_not_told_to_take_more_particles():
    text = KINDS["nothing_known"].advice
    assert "particles" not in text and "noise" in text


@pytest.mark.parametrize("name", ["replay_mismatch", "tool_error", "model_does_not_fit"])
def test_where_the_transcripts_or_the_tool_are_wrong_no_leak_is_claimed_either(name):
    assert KINDS[name].interval[0] == 0.0
    assert "at least" not in KINDS[name].sentence


def test_one_secret_has_nothing_to_tell():
    text = KINDS["one_secret"].sentence
    assert "0.000 nats (0.000 bits)" in text and "only one secret" in text


@pytest.mark.parametrize("name", KINDS)
def test_words_hold_no_numbers_that_are_not_finite_and_no_forbidden_word(name):
    audit = KINDS[name]
    text = "\n".join([audit.summary(), *audit.threat_model]).lower()
    assert not re.search(r"\b(nan|inf|none)\b", text)
    assert "epsilon" not in text and "ε" not in text


def test_the_threat_model_names_what_is_known_what_is_outside_and_the_worst_per_cent():
    audit = replace(KINDS["certifiable"], realised=np.linspace(-1.0, 1.0, 101))
    text = " ".join(audit.threat_model)
    for part in ("system", "policy", "prior", "public seed", "all 50 releases", "x_1", "several episodes"):
        assert part in text
    for part in ("side channels", "independent of the secret", "normal approximation", "plant", "average"):
        assert part in text
    assert "more than 0.980 nats" in text and "worst one 1.000" in text
    assert "assisted" in text
    fair = replace(audit, attacks=audit.attacks[:1])
    assert "assisted" not in " ".join(fair.threat_model)


def test_only_attackers_within_the_threat_model_count():
    audit = KINDS["certifiable"]
    sure = replace(audit.attacks[-1], accuracy=Rate(1.0, 0.9, 1.0))
    said = replace(audit, attacks=(audit.attacks[0], sure)).sentence
    assert "; the one attacker names the right driver 26 % of the time, chance is 25 %;" in said
    assert "attacker" not in replace(audit, attacks=(sure,)).sentence
    thirteen = replace(audit, attacks=audit.attacks[:1] * 13).sentence
    assert "best of 13 attackers" in thirteen


def test_nearly_always_is_not_always():
    assert [text.percent(share) for share in (0.0, 0.004, 0.256, 0.996, 1.0)] == [
        *("0 %", "0.4 %", "26 %", "99.6 %", "100 %")
    ]


def test_a_verdict_names_what_is_proven_then_the_worst_scenario_then_the_cost():
    """At least 0.230 minus as many standard errors as the best of three attackers has to pay for."""
    audit = KINDS["uneven_prior"]
    low = 0.23 - stats.norm.isf(stats.norm.sf(3.0) / 3) * 0.004
    said = audit.sentence
    worst = (
        f"; worst scenario of 2: secrets between, where “learned” gains at least "
        f"{math.floor(1e3 * low) / 1e3:.3f} nats"
    )
    found = audit.worst_scenario
    assert found is not None
    assert found.low == pytest.approx(low) and (found.tried, found.scenarios) == (3, 2)
    assert any("three attackers in all" in line and "99.87 %" in line for line in audit.threat_model)
    assert "; more may leak there" in said and "three attackers" not in KINDS["certifiable"].threat_model[2]
    assert said.startswith("leaks at least 0.292 nats") and worst in said
    assert said.index("at most") < said.index("worst scenario") < said.index("the cost changes by +1.30 %")
    assert said in audit.summary() and "scenario" not in KINDS["certifiable"].sentence
    quiet = replace(audit.scenarios[0], attacks=(made.attack("learned", 0.01, 0.3, error=0.02),))
    assert "secrets between, where no attacker proves a leak" in replace(audit, scenarios=(quiet,)).sentence


def test_where_no_method_applies_the_lower_bound_of_the_attackers_is_named_first():
    audit = made.audit("no_upper_bound", ["no method bounds the leakage from above"], lower=0.6, upper=1.38)
    said = audit.sentence
    assert said.startswith("leaks at least 0.592 nats") and "cannot certify an upper bound: no method" in said
    assert audit.verdict.refused and audit.interval == (pytest.approx(0.5923), pytest.approx(math.log(4)))


def test_a_refusal_promises_nothing_in_the_summary():
    for name in REFUSALS:
        assert "This holds" not in KINDS[name].summary()
    unsure = made.audit("not_enough_particles", [made.WIDE])
    lost = replace(unsure, leakage=replace(unsure.leakage, upper=Mean(math.nan, math.inf)))
    assert "assume everything (1.386 nats)" in lost.summary()
