"""Curves, words, files and the floor of a frontier; the command is tested with the command line."""

import json
import math
from dataclasses import replace

import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from veil.frontier import PointStore, zero_leakage_floor
from veil.policies import Transport
from veil.results import frontier as curve
from veil.results.frontier import Frontier
from veil.results.parts import SMALLEST, Point, ResultError
from veil.settings import FAMILY_WORDS, FrontierGoal, FrontierSettings
from veil.stats import Leakage, Mean
from veil.systems import Gain
from veil.types import as_float64

ENTROPY = math.log(4)


def made(kind, value, distortion, upper, *, lower=None, error=0.002, verdict="certifiable"):
    """A point by hand."""
    low = upper - 0.001 if lower is None else lower
    leakage = Leakage(Mean(low, error), Mean(upper, error), ENTROPY)
    reasons = () if verdict == "certifiable" else ("the two sides are 0.200 nats apart (limit 0.050)",)
    use = Mean(float(distortion), 0.001), Mean(2.0, 0.1), Mean(0.3 * distortion, 0.05)
    return Point(FrontierGoal(kind, float(value)), leakage, verdict, reasons, *use, 128, 512, 3.5)


def frontier(*points, floor=0.1):
    return Frontier("Platoon", 50, Mean(floor, 0.001), points, 0, 0.2, 100)


def law(kind, constant, power, places):
    """Points of leakage constant / distortion^power."""
    return [made(kind, at, at, constant / at**power) for at in places]


NOISE = law("noise", 0.8, 1.0, (1.0, 3.0, 9.0, 27.0))
DISPLACEMENT = law("displacement", 1e-4, 3.0, (0.05, 0.07, 0.1, 0.2))


def test_between_points_a_curve_is_a_power_law():
    found = curve.needed(NOISE, 0.05)
    assert not found.bound and found.distortion == pytest.approx(16.0)
    assert curve.needed(DISPLACEMENT, 0.05).distortion == pytest.approx((1e-4 / 0.05) ** (1 / 3))
    assert curve.upper_at(NOISE, 5.0) == pytest.approx(0.8 / 5.0)
    assert curve.needed(NOISE[::-1], 0.05) == found  # whatever the order


def test_beyond_its_points_a_curve_says_nothing_or_stays():
    assert curve.needed(NOISE, 0.01) == curve.Needed(None)
    assert curve.needed([], 0.05) == curve.Needed(None, believed=False)
    assert curve.needed(NOISE, 0.9) == curve.Needed(1.0, bound=True)
    assert curve.upper_at(NOISE, 0.5) is None and curve.upper_at([], 1.0) is None
    assert curve.upper_at(NOISE, 100.0) == pytest.approx(0.8 / 27.0)


def test_leakages_that_are_not_positive_count_as_the_smallest_one():
    points = [made("noise", 1, 1.0, 0.1), made("noise", 2, 10.0, -0.004)]
    assert curve.needed(points, 0.01).distortion == pytest.approx(math.sqrt(10.0))
    assert curve.upper_at(points, 10.0) == pytest.approx(SMALLEST)


def test_points_that_cannot_be_believed_are_in_no_curve():
    doubtful = made("noise", 5, 2.0, 0.001, verdict="not_enough_particles")
    assert curve.needed([*NOISE, doubtful], 0.05) == curve.needed(NOISE, 0.05)
    said = frontier(*NOISE, doubtful, replace(doubtful, goal=FrontierGoal("quantised", 2.0))).sentence
    assert "Gaussian noise 16" in said and "quantised not known" in said
    assert "no bound is to be believed: Gaussian noise 5; quantised 2." in said


def test_learned_points_above_displacement_are_found():
    good, bad = made("transport", 80, 0.1, 0.099), made("transport", 5, 0.1, 0.12)
    outside = made("transport", 2, 0.01, 1.2)
    found = frontier(*DISPLACEMENT, good, bad, outside)
    ((point, other),) = found.above_displacement()
    assert point.goal.value == 5 and other == pytest.approx(0.1)
    assert "weight 5 (at least 0.113 nats, displacement 0.100)" in found.compared_with_displacement()
    near = replace(bad, leakage=Leakage(Mean(0.119, 0.0064), Mean(0.12, 0.0064), ENTROPY))
    said = frontier(*DISPLACEMENT, near, outside).compared_with_displacement()  # within three standard errors
    assert "none lies above" in said and "1 could not be compared" in said
    assert "not measured there" in frontier(*DISPLACEMENT, outside).compared_with_displacement()
    assert frontier(*NOISE).compared_with_displacement() == ""


def test_words_tell_what_each_family_needs():
    said = frontier(*NOISE, *DISPLACEMENT, made("plain", 2, 1.0, 0.3)).sentence
    needed = (1e-4 / 0.05) ** (1 / 3)
    assert "Gaussian noise 16;" in said
    assert f"displacement interpolation {needed:.3g} ({16 / needed:.3g} times less than noise)" in said
    assert "learned from noise not reached" in said
    assert "0.1 per step" in said


def test_words_say_not_reached_and_compare_with_nothing_then():
    few = [made("noise", 1, 1.0, 0.5)]
    said = frontier(*few, *DISPLACEMENT).needs()
    assert "Gaussian noise not reached" in said and "than noise" not in said
    worse = frontier(*NOISE, made("plain", 2, 20.0, 0.06), made("plain", 5, 80.0, 0.015)).needs()
    assert "times more than noise" in worse
    assert "at most 0.05" in frontier(made("displacement", 1, 0.05, 0.01)).needs()


def test_a_point_survives_its_file_and_other_points_are_not_read(tmp_path):
    shelf, point = PointStore(tmp_path), made("transport", 80, 0.1, 0.01, verdict="filter_inconsistent")
    shelf.keep(point, "mark")
    assert shelf.point(point.goal, "mark") == point
    assert shelf.point(point.goal, "another mark") is None
    assert shelf.point(FrontierGoal("transport", 5.0), "mark") is None
    lost = replace(point, change=Mean(math.nan, math.inf))
    shelf.keep(lost, "mark")
    again = shelf.point(point.goal, "mark")
    assert again is not None and math.isnan(again.change.value) and math.isinf(again.change.error)
    path = shelf.place(point.goal) / "point.json"
    for damage in ("", "{", "[]", "null", "{}", path.read_text()[:-30], path.read_text().replace("1.3", "x")):
        path.write_text(damage)
        assert shelf.point(point.goal, "mark") is None
    shelf.keep_floor(Mean(0.1, 0.01), "mark")
    assert shelf.floor("mark") == Mean(0.1, 0.01) and shelf.floor("other") is None
    assert Point.from_dict(point.to_dict()) == point


def test_files_and_picture_hold_every_point(tmp_path):
    doubtful = made("quantised", 1, 0.5, 0.9, verdict="not_enough_particles")
    learned = made("transport", 80, 0.1, -0.001), made("plain", 5, 1, 0.2)
    found = frontier(*NOISE, doubtful, *DISPLACEMENT, *learned)
    paths = found.save(tmp_path)
    content = json.loads(paths[0].read_text())
    assert content["unit"] == "nats" and content["floor"] == 0.1
    assert len(content["points"]) == len(found.points) == len(paths[1].read_text().splitlines()) - 1
    assert content["needed"]["noise"] == {"nats": 0.05, "distortion": pytest.approx(16.0), "bound": False}
    assert [point["trusted"] for point in content["points"]].count(False) == 1
    drawn = found.plot()
    left, right = drawn.axes
    assert left.get_xscale() == left.get_yscale() == "log" and "%" in right.get_xlabel()
    (floor,) = [one for one in left.lines if one.get_linestyle() == ":"]
    assert np.all(np.asarray(floor.get_xdata()) == 0.1)
    (hollow,) = [one for one in left.lines if one.get_markerfacecolor() == "white"]
    assert np.all(np.asarray(hollow.get_xdata()) == 0.5)
    named = {text.get_text() for text in drawn.legends[0].get_texts()}
    assert named >= {
        *FAMILY_WORDS.values(),
        "least distortion at zero leakage (transport)",
        "not to be believed",
    }
    (quiet,) = [one for one in left.lines if one.get_marker() == "D"]
    assert np.all(np.asarray(quiet.get_ydata()) == SMALLEST)


def test_a_frontier_comes_back_as_it_was_and_prints_in_a_few_lines(tmp_path):
    unknown = replace(made("plain", 5, 1, 0.2), change=Mean(math.nan, math.inf))
    steered = replace(made("transport", 5, 0.2, 0.01), goal=FrontierGoal("transport", 5.0, (80.0, 20.0)))
    found = replace(frontier(*NOISE, *DISPLACEMENT, steered, unknown), resolution={"speed": 0.01})
    found.save(tmp_path)
    assert json.loads((tmp_path / "frontier.json").read_text())["resolution"] == {"speed": 0.01}
    assert "in steps of: speed 0.01." in found.sentence and found != replace(found, resolution={})
    assert Frontier.load(tmp_path) == found and Frontier.load(str(tmp_path)).sentence == found.sentence
    assert found != replace(found, seed=1) and found != replace(found, points=found.points[:-1])
    lines = str(found).splitlines()
    assert len(lines) <= 25 and "Gaussian noise" in str(found) and "16" in str(found)
    page = found._repr_html_()
    assert page.count("data:image/png;base64,") == 1 and "displacement interpolation" in page
    (tmp_path / "frontier.json").write_text("{}")
    with pytest.raises(ResultError, match="cut short or was changed"):
        Frontier.load(tmp_path)
    with pytest.raises(ResultError, match="makes it"):
        Frontier.load(tmp_path / "nowhere")


def test_goals_lead_from_neighbour_to_neighbour():
    goals = FrontierSettings(weights=(5.0, 80.0, 20.0), kinds=("plain", "transport")).goals
    assert [(goal.kind, goal.value, goal.before) for goal in goals] == [
        ("transport", 80.0, ()),
        ("transport", 20.0, (80.0,)),
        ("transport", 5.0, (80.0, 20.0)),
        ("plain", 5.0, ()),
        ("plain", 20.0, (5.0,)),
        ("plain", 80.0, (5.0, 20.0)),
    ]
    for goal, previous in zip(goals[1:3], goals[:2], strict=True):
        assert goal.previous == previous
    assert goals[0].previous is None
    assert len({goal.name for goal in FrontierSettings().goals}) == len(FrontierSettings().goals) == 31


def scalar_floor(system, sd, steps, episodes, seed):
    """The floor of a gain in numpy: scalar Kalman filters, and the barycentre of Gaussians on a line."""
    random = np.random.default_rng(seed)
    gains = np.asarray(system.prior.secrets)[:, 0]
    index, rows = np.arange(episodes) % len(gains), np.arange(episodes)
    state = float(system.initial_sd) * random.standard_normal(episodes)
    mean, spread = np.zeros((episodes, len(gains))), np.full(len(gains), float(system.initial_sd))
    push, found = np.zeros(episodes), np.zeros(episodes)
    for _ in range(steps):
        centre, middle = mean.mean(axis=1), spread.mean()
        offset, change = centre[:, None] - mean, np.abs(middle - spread)[None]
        shape = offset / np.maximum(change, 1e-12)
        far = 2 * change * stats.norm.pdf(shape) + offset * (1 - 2 * stats.norm.cdf(-shape))
        found += far.mean(axis=1) / steps  # mean of |N(offset, change²)|, equal masses
        slope = middle / spread
        shared = centre + slope[index] * (state - mean[rows, index]) + sd * random.standard_normal(episodes)
        gain = spread**2 * slope / (slope**2 * spread**2 + sd**2)
        mean = gains * (mean + gain * (shared - centre)[:, None]) + push[:, None]
        spread = np.sqrt(gains**2 * spread**2 * (1 - gain * slope) + float(system.sd) ** 2)
        state = gains[index] * state + push + float(system.sd) * random.standard_normal(episodes)
        push = float(system.reply) * shared + float(system.reaction_sd) * random.standard_normal(episodes)
    return found.mean(), found.std() / math.sqrt(episodes)


def test_the_floor_is_that_of_gaussians_on_a_line(float64):
    system, steps = as_float64(Gain()), 5
    found = zero_leakage_floor(Transport(system, np.asarray([0.05])), steps, 6144, key=jr.key(1))
    truth, error = scalar_floor(system, 0.05, steps, 30_000, 2)
    assert found.error < 0.015 * found.value
    assert found.value == pytest.approx(truth, abs=4 * math.hypot(found.error, error))
