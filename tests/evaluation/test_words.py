"""The words say what the numbers say, and nothing more."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.evaluation import made_audits as made
from veil.results import audit_text as words
from veil.stats import Mean, Rate

KINDS = made.every_kind()
REFUSALS = [
    name for name, audit in KINDS.items() if audit.verdict.name not in ("certifiable", "certified_leak")
]


def told(text, unit):
    """All numbers before a unit, in order."""
    return [float(number) for number in re.findall(rf"([\d.]+) {unit}", text)]


def test_the_sentence_of_a_certified_bound_is_this_one():
    assert words.verdict_sentence(KINDS["certifiable"]) == (
        "leaks at most 0.021 nats (0.030 bits) over 50 steps, 3 standard errors included; the best of six "
        "attackers names the right secret 26 % of the time, chance is 25 %"
    )


@pytest.mark.parametrize("upper", [0.0, 1e-9, 0.0123, 0.0145, 0.1, 0.31337, 1.2])
def test_at_most_is_never_less_than_the_data_and_bits_are_nats_over_log_two(upper):
    text = words.verdict_sentence(made.audit(lower=upper / 2, upper=upper, error=0.001))
    high = upper + 3 * 0.001
    (nats,), (bits,) = told(text, "nats"), told(text, "bits")
    assert high - 1e-9 <= nats <= high + 0.001 + 1e-9
    assert high / math.log(2) - 1e-9 <= bits <= high / math.log(2) + 0.001 + 1e-9


def test_a_bound_that_is_no_bound_is_called_everything():
    text = words.verdict_sentence(made.audit(lower=0.5, upper=1.386, error=0.1))
    assert "everything there is to know, 1.386 nats (2.000 bits)," in text


def test_at_least_is_never_more_than_the_data():
    audit = KINDS["certified_leak"]
    low = 1.37 - 3.5 * 0.0022  # as the gate would have it
    text = words.verdict_sentence(audit)
    assert text.startswith("leaks at least 1.362 nats (1.965 bits) of the 1.386 nats there are")
    assert low - 0.001 <= told(text, "nats")[0] <= low
    assert low / math.log(2) - 0.001 <= told(text, "bits")[0] <= low / math.log(2)
    assert words.interval(audit) == (pytest.approx(low), pytest.approx(math.log(4)))


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_gives_its_reasons_assumes_everything_and_says_what_to_do(name):
    audit = KINDS[name]
    text = words.verdict_sentence(audit)
    assert text.startswith("cannot certify: ") and "assume everything (1.386 nats) may leak" in text
    assert all(reason in text for reason in audit.verdict.reasons)
    assert words.advice(audit) and text.endswith(words.advice(audit))
    assert "at most" not in text
    assert words.interval(audit)[1] == pytest.approx(math.log(4))


def test_each_refusal_has_its_own_advice():
    advice = {name: words.advice(KINDS[name]) for name in REFUSALS}
    assert len(set(advice.values())) == len(advice)
    assert "more particles" in advice["not_enough_particles"] and "folding" in advice["not_enough_particles"]
    assert "--learned" in advice["filter_inconsistent"]
    assert "seed" in advice["replay_mismatch"] and "build" in advice["replay_mismatch"]
    assert "recorded data" in advice["model_does_not_fit"]
    assert "report it" in advice["tool_error"] and "error of the tool" in advice["tool_error"]


def test_a_kernel_without_any_method_is_not_told_to_take_more_particles():
    text = words.advice(KINDS["nothing_known"])
    assert "particles" not in text and "noise" in text


@pytest.mark.parametrize("name", ["replay_mismatch", "tool_error", "model_does_not_fit"])
def test_where_the_transcripts_or_the_tool_are_wrong_no_leak_is_claimed_either(name):
    assert words.interval(KINDS[name])[0] == 0.0
    assert "at least" not in words.verdict_sentence(KINDS[name])


def test_one_secret_has_nothing_to_tell():
    text = words.verdict_sentence(KINDS["one_secret"])
    assert "0.000 nats (0.000 bits)" in text and "only one secret" in text


@pytest.mark.parametrize("name", KINDS)
def test_words_hold_no_numbers_that_are_not_finite_and_no_forbidden_word(name):
    audit = KINDS[name]
    text = "\n".join([words.summary(audit), *words.threat_model(audit)]).lower()
    assert not re.search(r"\b(nan|inf|none)\b", text)
    assert "epsilon" not in text and "ε" not in text


def test_the_threat_model_names_what_is_known_what_is_outside_and_the_worst_per_cent():
    audit = replace(KINDS["certifiable"], realised=np.linspace(-1.0, 1.0, 101))
    text = " ".join(words.threat_model(audit))
    for part in ("system", "policy", "prior", "public seed", "all 50 releases", "x_1", "several episodes"):
        assert part in text
    for part in ("side channels", "independent of the secret", "normal approximation", "plant", "average"):
        assert part in text
    assert "more than 0.980 nats" in text and "worst told 1.000" in text
    assert "assisted" in text
    fair = replace(audit, attacks=audit.attacks[:1])
    assert "assisted" not in " ".join(words.threat_model(fair))


def test_only_attackers_within_the_threat_model_count():
    audit = KINDS["certifiable"]
    sure = replace(audit.attacks[-1], accuracy=Rate(1.0, 0.9, 1.0))
    text = words.attackers(replace(audit, attacks=(audit.attacks[0], sure)))
    assert text == "; the one attacker names the right secret 26 % of the time, chance is 25 %"
    assert words.attackers(replace(audit, attacks=(sure,))) == ""
    thirteen = words.attackers(replace(audit, attacks=audit.attacks[:1] * 13))
    assert "best of 13 attackers" in thirteen


def test_nearly_always_is_not_always():
    assert [words.percent(share) for share in (0.0, 0.004, 0.256, 0.996, 1.0)] == [
        *("0 %", "0.4 %", "26 %", "99.6 %", "100 %")
    ]


def test_the_summary_names_the_scenario_in_which_most_is_gained():
    assert "learned gains most: 0.230 nats (secrets between)" in words.summary(KINDS["uneven_prior"])
    assert "not the model," not in words.summary(KINDS["certifiable"])


def test_a_refusal_promises_nothing_in_the_summary():
    for name in REFUSALS:
        assert "This holds" not in words.summary(KINDS[name])
    unsure = made.audit("not_enough_particles", [made.WIDE])
    lost = replace(unsure, leakage=replace(unsure.leakage, upper=Mean(math.nan, math.inf)))
    assert "assume everything (1.386 nats)" in words.summary(lost)
