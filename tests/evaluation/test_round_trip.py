"""Results come back from their folders as they were saved, print in a few lines, and draw themselves."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.evaluation.made_audits import every_kind, with_scenarios
from veil.results import Audit
from veil.results.parts import ResultError, same_result
from veil.stats import Mean, Rate

KINDS = every_kind()


@pytest.mark.parametrize("name", KINDS)
def test_an_audit_comes_back_as_it_was(name, tmp_path):
    made = KINDS[name]
    paths = made.save(tmp_path / "new")
    found = Audit.load(tmp_path / "new")
    assert [path.name for path in paths] == ["audit.json", "audit.csv", "audit.npz"]
    assert found == made and found.sentence == made.sentence and found.interval == made.interval
    assert found.threat_model == made.threat_model and found.advice == made.advice
    assert np.array_equal(found.realised, made.realised, equal_nan=True)
    assert np.array_equal(found.posteriors, made.posteriors, equal_nan=True)
    again = [path.read_bytes() for path in found.save(tmp_path / "again")]
    assert again == [path.read_bytes() for path in paths]


def test_any_change_is_a_difference():
    made = with_scenarios(KINDS["certifiable"])
    assert made.curves is not None
    changes = [
        {"horizon": 49},
        {"policy": "other"},
        {"chance": 0.26},
        {"realised": made.realised + 1e-12},
        {"index": made.index[::-1]},
        {"curves": None},
        {"curves": replace(made.curves, score=made.curves.score[:-1])},
        {"attacks": made.attacks[:-1]},
        {"scenarios": made.scenarios[::-1]},
        {"leakage": replace(made.leakage, upper=Mean(math.nan, 0.1))},
        {"verdict": replace(made.verdict, inputs=made.verdict.inputs | {"method": "none"})},
    ]
    for change in changes:
        assert made != replace(made, **change), change
    assert made == replace(made) and made != "an audit"
    assert same_result(Mean(math.nan, math.inf), Mean(-math.inf, math.nan))


def test_the_best_attacker_plays_by_the_rules():
    """Whoever knows more than the threat model grants is right more often, and must not be named."""
    made = KINDS["certifiable"]
    rows = [
        replace(row, accuracy=Rate(0.9, 0.8, 1.0)) if row.role != "attack" else row for row in made.attacks
    ]
    fair = [row.accuracy.value for row in made.attacks if row.role == "attack"]
    assert max(fair) < 0.9 and len(fair) < len(rows)
    best = replace(made, attacks=tuple(rows)).best_attack
    assert best is not None and best.accuracy.value == max(fair)


def test_what_single_episodes_told_is_in_the_file_as_quantiles(tmp_path):
    made = KINDS["certifiable"]
    made.save(tmp_path)
    rows = json.loads((tmp_path / "audit.json").read_text())["realised"]["quantiles"]
    for row in rows:
        assert row["nats"] == pytest.approx(np.quantile(made.realised, row["fraction"]))
        assert row["nats"] == made.realised_quantile(row["fraction"])


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
    KINDS["certifiable"].save(tmp_path)
    path = tmp_path / "audit.json"
    path.write_text(spoil(path.read_text()))
    with pytest.raises(ResultError, match=r"audit\.json is cut short or was changed. Give the `veil audit`"):
        Audit.load(tmp_path)


def test_arrays_of_another_audit_are_refused(tmp_path):
    KINDS["uneven_prior"].save(tmp_path)
    other = (tmp_path / "audit.npz").read_bytes()
    KINDS["certifiable"].save(tmp_path)
    (tmp_path / "audit.npz").write_bytes(other)
    with pytest.raises(ResultError, match="of two audits"):
        Audit.load(tmp_path)
    (tmp_path / "audit.npz").unlink()
    with pytest.raises(ResultError, match=r"audit\.npz cannot be read"):
        Audit.load(tmp_path)
    with pytest.raises(ResultError, match=r"audit\.json cannot be read"):
        Audit.load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", KINDS)
def test_printed_it_is_a_verdict_and_a_small_table(name):
    made = KINDS[name]
    lines = str(made).splitlines()
    assert len(lines) <= 25 and max(map(len, lines)) <= 110
    assert made.verdict.name.replace("_", " ") in lines[0]
    assert "".join(made.sentence.split())[1:60] in "".join("".join(lines[1:]).split())
    assert not any(word in str(made) for word in ("nan", "None", " inf"))


def test_a_notebook_shows_verdict_table_and_picture():
    made = replace(KINDS["certifiable"], policy="<b>")
    page = made._repr_html_()
    assert "&lt;b&gt;" in page and "<b>" not in page
    assert "Leaks at least 0.004 nats" in page and page.count("<tr>") >= 4
    assert page.count("data:image/png;base64,") == 1


def test_a_picture_that_does_not_exist_is_refused():
    assert isinstance(KINDS["certifiable"].plot(), Figure)
    with pytest.raises(ValueError, match="there are posterior, reliability, leakage"):
        KINDS["certifiable"].plot("leak")
