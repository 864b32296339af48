"""Files and pictures of audits made by hand, read back by other means."""

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread
from scipy import stats

from tests.evaluation import made_audits as made
from veil.io import replace_text
from veil.stats import reliability_bins

KINDS = made.every_kind()
REQUIRED = {
    *("verdict", "leakage", "horizon", "episodes", "particles_per_secret", "attacks", "utility"),
    *("threat_model", "seeds", "version", "sentence", "gate", "times", "secrets", "components", "scenarios"),
}


def refuse(word):
    raise AssertionError(f"{word} is not JSON")


def read(folder):
    return json.loads((folder / "audit.json").read_text(encoding="utf-8"), parse_constant=refuse)


@pytest.mark.parametrize("name", KINDS)
def test_the_json_is_strict_and_holds_every_promised_field(name, tmp_path):
    audit = KINDS[name]
    audit.save(tmp_path)
    content = read(tmp_path)
    assert content.keys() >= REQUIRED
    assert content["leakage"].keys() >= {"lower", "upper", "standard_error", "width", "entropy"}
    assert content["utility"].keys() >= {"distortion", "cost", "cost_true_data", "tracking"}
    for row in content["attacks"]:
        assert row.keys() >= {"name", "accuracy", "accuracy_low", "accuracy_high", "lower"}
    assert content["verdict"] == audit.verdict.name
    assert content["sentence"] == audit.sentence
    assert content["threat_model"] == audit.threat_model


def test_the_numbers_of_the_json_are_those_of_the_audit(tmp_path):
    KINDS["uneven_prior"].save(tmp_path)
    content = read(tmp_path)
    leakage = content["leakage"]
    assert leakage["lower"] == 0.3 and leakage["upper"] == 0.31 and leakage["standard_error"] == 0.0022
    assert leakage["width"] == pytest.approx(0.01)
    assert leakage["entropy"] == pytest.approx(stats.entropy([0.7, 0.2, 0.1]))
    assert leakage["interval"] == [pytest.approx(0.3 - 3.5 * 0.0022), pytest.approx(0.3166)]
    utility = content["utility"]
    assert (utility["distortion"], utility["cost"], utility["cost_true_data"]) == (0.61, 1.52, 1.5)
    assert utility["tracking"] == {"speed": 0.21, "spacing": 0.34}
    unknown = utility["quantities"][-1]
    assert unknown["value"] is None and unknown["value_error"] is None and unknown["true_data"] is None
    assert content["gate"]["calibration_limit"] is None and content["gate"]["method"] == "filter"
    assert [row["step"] for row in content["times"]] == [1, 5, 10, 20, 50]
    assert [row["name"] for row in content["scenarios"]] == ["secrets between", "idm drivers"]
    worst, found = content["worst_scenario"], KINDS["uneven_prior"].worst_scenario
    assert found is not None
    assert (worst["name"], worst["attacker"], worst["attackers"]) == ("secrets between", "learned", 3)
    assert worst["at_least"] == found.low < worst["lower"] == 0.23 and worst["confidence"] > 0.998
    quantiles = {row["fraction"]: row["nats"] for row in content["realised"]["quantiles"]}
    assert quantiles[0.99] == pytest.approx(np.quantile(KINDS["uneven_prior"].realised, 0.99))
    assert np.shape(content["curves"]["posterior"]) == (3, 50)


def test_what_is_not_known_is_null(tmp_path):
    KINDS["nothing_known"].save(tmp_path)
    content = read(tmp_path)
    assert content["leakage"]["lower"] is None and content["leakage"]["standard_error"] is None
    assert content["curves"] is None and content["attacks"][0]["lower"] is None
    assert content["realised"]["not_finite"] == 2
    bare = replace(KINDS["nothing_known"], utility=())
    bare.save(tmp_path)
    assert read(tmp_path)["utility"] == {
        **dict.fromkeys(("distortion", "cost", "cost_true_data", "cost_parts", "tracking")),
        "quantities": [],
    }


def test_the_csv_has_the_leakage_then_the_attacks_then_those_of_other_scenarios(tmp_path):
    audit = KINDS["uneven_prior"]
    odd = replace(audit.attacks[0], note='commas, "quotes"\nand lines')
    audit = replace(audit, attacks=(odd, *audit.attacks[1:]))
    audit.save(tmp_path)
    with (tmp_path / "audit.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1 + len(audit.attacks) + 3
    assert rows[0]["role"] == "leakage" and float(rows[0]["upper"]) == 0.31
    assert rows[0]["note"] == "certifiable"
    assert [row["name"] for row in rows[1:9]] == [row.name for row in audit.attacks]
    assert rows[1]["note"] == odd.note
    assert all(row["scenario"] == "as modelled" for row in rows[:9])
    assert [row["scenario"] for row in rows[9:]] == ["secrets between", "secrets between", "idm drivers"]
    assert float(rows[10]["accuracy"]) == 0.41 and float(rows[10]["lower"]) == 0.23
    assert all(None not in row and None not in row.values() for row in rows)


def test_numbers_that_are_not_finite_are_empty_cells():
    rows = list(csv.DictReader(io.StringIO(KINDS["nothing_known"].table())))
    assert rows[0]["lower"] == "" and rows[1]["lower"] == ""
    assert "nan" not in KINDS["nothing_known"].table()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = replace_text(tmp_path / "audit.json", "old")

    def broken(*_):
        raise OSError("no room")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="no room"):
        replace_text(path, "new")
    assert path.read_text() == "old" and [*tmp_path.iterdir()] == [path]


def coloured(path):
    """Share of the pixels that bear a colour; also checks size and spread."""
    pixels = imread(path)[..., :3]
    assert pixels.shape[0] > 150 and pixels.shape[1] > 350
    assert pixels.std() > 0.03, f"{path.stem} is blank"
    return np.mean(np.ptp(pixels, axis=2) > 0.2)


def test_every_picture_is_drawn_and_none_is_blank(tmp_path):
    paths = KINDS["certifiable"].save_pictures(tmp_path)
    assert [path.stem for path in paths] == ["posterior", "reliability", "leakage", "attacks", "realised"]
    assert all(coloured(path) > 5e-4 for path in paths)


@pytest.mark.parametrize(
    ("name", "picture"),
    [
        ("one_secret", "posterior"),
        ("one_secret", "leakage"),
        ("one_secret", "realised"),
        ("many_secrets", "posterior"),
        ("uneven_prior", "reliability"),
        ("nothing_known", "posterior"),
        ("nothing_known", "attacks"),
    ],
)
def test_pictures_bear_odd_audits(name, picture, tmp_path):
    path = tmp_path / "picture.png"
    KINDS[name].plot(picture).savefig(path, dpi=70)
    assert coloured(path) > 5e-4


def test_pictures_bear_an_audit_without_attackers_or_episodes_that_are_finite(tmp_path):
    audit = KINDS["nothing_known"]
    lost = np.full_like(audit.realised, -math.inf)
    empty = replace(audit, attacks=(), realised=lost, posteriors=np.full_like(audit.posteriors, math.nan))
    assert len(empty.save_pictures(tmp_path)) == 5


def test_the_prior_is_read_from_posterior_and_realised_leakage():
    assert KINDS["uneven_prior"].prior() == pytest.approx([0.7, 0.2, 0.1])
    assert KINDS["one_secret"].prior() == pytest.approx([1.0])
    wrong = replace(KINDS["uneven_prior"], realised=np.zeros(800))
    assert wrong.prior() == pytest.approx([1 / 3] * 3)


def test_equal_weights_give_the_clopper_pearson_interval():
    audit = replace(
        KINDS["certifiable"],
        posteriors=np.tile([0.55, 0.15, 0.15, 0.15], (12, 1)),
        index=np.array([0] * 7 + [1, 2, 3, 1, 2]),
        realised=np.log([0.55 * 4] * 7 + [0.15 * 4] * 5),
    )
    bins = reliability_bins(audit.posteriors, audit.index, audit.prior())
    truth = stats.binomtest(7, 12).proportion_ci(0.95, method="exact")
    assert bins.count.sum() == 48 and bins.count[5] == 12 and bins.count[1] == 36
    assert bins.mean == pytest.approx([0.15, 0.55]) and bins.rate == pytest.approx([5 / 36, 7 / 12])
    assert (bins.low[1], bins.high[1]) == (pytest.approx(truth.low), pytest.approx(truth.high))


@pytest.mark.parametrize("prior", [(0.25,) * 4, (0.7, 0.2, 0.1)], ids=["even", "uneven"])
def test_an_exact_posterior_lies_on_the_diagonal(prior):
    masses, index, realised = made.forecasts(1.0, np.asarray(prior), 12_000, seed=3)
    audit = replace(KINDS["certifiable"], posteriors=masses, index=index, realised=realised)
    bins = reliability_bins(audit.posteriors, audit.index, audit.prior())
    spread = (bins.high - bins.low) / 4  # about one standard error
    assert np.all(np.abs(bins.rate - bins.mean) < 4.5 * spread)
