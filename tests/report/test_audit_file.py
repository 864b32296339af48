"""An audit comes back from its file as it was written, for every verdict, unknown numbers included."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from tests.evaluation.made_audits import every_kind, with_scenarios
from veil.io import plain
from veil.report.audit_reader import found_from, read_audit
from veil.report.blocks import ReportError
from veil.results import audit_file as files
from veil.results import audit_text as words
from veil.stats import Rate

KINDS = every_kind()


def through_json(audit):
    return found_from(json.loads(json.dumps(plain(files.content(audit)), allow_nan=False)))


def same(first, second):
    """Equal numbers; what is not finite may come back as unknown."""
    if math.isfinite(first):
        return second == first
    return not math.isfinite(second)


@pytest.mark.parametrize("name", KINDS)
def test_numbers_come_back_as_they_were(name):
    made = KINDS[name]
    found = through_json(made)
    assert (found.verdict, found.system, found.policy) == (made.verdict.name, made.system, made.policy)
    assert (found.horizon, found.episodes, found.particles) == (made.horizon, made.episodes, made.particles)
    assert found.interval == words.interval(made) and found.certified == made.verdict.certified
    assert found.refused == words.refused(made)
    pairs = [(made.leakage, found.leakage)]
    pairs += [(a.leakage, b.leakage) for a, b in zip(made.secrets, found.secrets, strict=True)]
    pairs += [(a.leakage, b.leakage) for a, b in zip(made.times, found.times, strict=True)]
    for before, after in pairs:
        for side in ("lower", "upper"):
            assert same(getattr(before, side).value, getattr(after, side).value)
            assert same(getattr(before, side).error, getattr(after, side).error)
        assert (before.low, before.high, before.entropy) == (after.low, after.high, after.entropy)
    for before, after in zip(made.attacks, found.attacks, strict=True):
        assert (before.name, before.role, before.accuracy) == (after.name, after.role, after.accuracy)
        assert same(before.lower.value, after.lower.value) and same(before.raw.value, after.raw.value)
    for before, after in zip(made.utility, found.utility, strict=True):
        assert before.name == after.name and same(before.value.value, after.value.value)
        assert before.change == after.change and before.true_data == after.true_data


def test_what_single_episodes_told_comes_back_as_quantiles():
    made = KINDS["certifiable"]
    found = through_json(made)
    for share in (0.5, 0.99, 1.0):
        assert found.realised[share] == pytest.approx(np.quantile(made.realised, share))


def test_curves_and_other_scenarios_come_back():
    made = with_scenarios(KINDS["certifiable"])
    found = through_json(made)
    assert made.curves is not None and found.curves is not None
    for name in ("score", "posterior", "spread"):
        assert np.array_equal(getattr(made.curves, name), getattr(found.curves, name))
    assert through_json(KINDS["nothing_known"]).curves is None
    for before, after in zip(made.scenarios, found.scenarios, strict=True):
        assert (before.name, before.distortion, before.entropy) == (
            after.name,
            after.distortion,
            after.entropy,
        )
        assert [row.lower for row in before.attacks] == [row.lower for row in after.attacks]


def test_the_best_attacker_plays_by_the_rules():
    """Whoever knows more than the threat model grants is right more often, and must not be named."""
    made = KINDS["certifiable"]
    told = [
        replace(row, accuracy=Rate(0.9, 0.8, 1.0)) if row.role != "attack" else row for row in made.attacks
    ]
    found = through_json(replace(made, attacks=tuple(told)))
    fair = [row.accuracy.value for row in made.attacks if row.role == "attack"]
    assert max(fair) < 0.9 and len(fair) < len(told)
    assert found.best is not None and found.best.accuracy.value == max(fair)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"attacks"', '"attack"'),
        lambda text: text.replace('"entropy": 1.38', '"entropy": "1.38"x'),
        lambda text: text.replace('"verdict": "certifiable"', '"verdict": 3'),
        lambda text: "",
    ],
)
def test_a_damaged_file_is_refused_with_its_name(tmp_path, spoil):
    files.write(KINDS["certifiable"], tmp_path)
    path = tmp_path / "audit.json"
    path.write_text(spoil(path.read_text()))
    with pytest.raises(ReportError, match=r"audit\.json is cut short or was changed"):
        read_audit(tmp_path)
