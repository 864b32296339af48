"""`veil frontier` from the command line to its files, on a linear loop where a Kalman filter is exact."""

import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from tests.exact_bounder import exact_candidates
from veil import frontier as engine
from veil import frontier as families
from veil import settings as options
from veil.cli import frontier as command
from veil.cli import main
from veil.cli.console import point_progress
from veil.evaluation import evaluate
from veil.learners import Learner, Progress

SMALL = ("gain", "--steps", "4", "--episodes", "6", "--updates", "2", "--weights", "2", "40")
KINDS = ("--kinds", "noise", "displacement", "transport")
NAMES = ("noise-1", "noise-8", "displacement-0.5", "displacement-1", "transport-40", "transport-2")


class Nudge(Learner):
    """Moves every weight a little, by the privacy weight; compiles faster than a gradient."""

    episodes: int = eqx.field(static=True)
    updates: int = eqx.field(static=True)
    learning_rate: float = eqx.field(static=True)

    def begin(self, family, policy, *, key):
        del key
        return Progress(policy, family[0].objective.distortion_price, jnp.asarray(0, jnp.int32), None)

    def update(self, family, progress, *, key):
        del key
        weight = family[0].objective.privacy_weight

        def moved(leaf):
            return leaf + 1e-4 / weight if eqx.is_inexact_array(leaf) else leaf

        network = jax.tree.map(moved, progress.policy.network)
        policy = eqx.tree_at(lambda one: one.network, progress.policy, network)
        return Progress(policy, progress.price, progress.updates + 1, None), {"weight": weight}


@pytest.fixture(scope="module")
def patched():
    """Fewer strengths, exact filters, and a learner that learns nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "bounder_candidates", exact_candidates)
        patch.setattr(families, "Pathwise", Nudge)
        patch.setattr(options, "STRENGTHS", {"noise": (1.0, 8.0), "displacement": (0.5, 1.0)})
        patch.setattr(main, "prepare", lambda: None)
        yield


def run(*arguments):
    """The exit code of a command line."""
    try:
        main.main(["frontier", *map(str, arguments)])
    except SystemExit as end:
        return end.code
    return 0


@pytest.fixture(scope="module")
def compiled():
    """When programs were compiled, as a list that grows."""
    events = []

    def listen(event, duration_secs, **kwargs):
        del kwargs
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return events


@pytest.fixture(scope="module")
def finished(patched, compiled, tmp_path_factory):
    """The folder of a whole frontier, and how many programs each point compiled."""
    folder, counts = tmp_path_factory.mktemp("frontier"), {}
    whole = engine.measured

    def counted(goal, *rest, **more):
        before = len(compiled)
        point = whole(goal, *rest, **more)
        counts[goal.name] = len(compiled) - before
        return point

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "measured", counted)
        assert run(*SMALL, *KINDS, "--out", folder) == 0
    return folder, counts


@pytest.fixture
def work(monkeypatch):
    """Which points are measured and how many policies are trained from here on."""
    done, whole, learn = [], engine.measured, families.train_policy

    def measured(goal, *rest, **more):
        done.append(goal.name)
        return whole(goal, *rest, **more)

    def train(*some, **more):
        done.append("train")
        return learn(*some, **more)

    monkeypatch.setattr(engine, "measured", measured)
    monkeypatch.setattr(families, "train_policy", train)
    return done


def test_the_whole_command_writes_points_files_and_a_picture(finished):
    folder, counts = finished
    content = json.loads((folder / "frontier.json").read_text())
    assert content["resolution"] == {}
    points = {f"{point['kind']}-{point['value']:g}": point for point in content["points"]}
    assert tuple(points) == NAMES == tuple(counts)
    assert points["noise-8"]["distortion"] == pytest.approx(8 * points["noise-1"]["distortion"])
    assert points["displacement-0.5"]["distortion"] < points["displacement-1"]["distortion"]
    assert points["displacement-1"]["upper"] == pytest.approx(0.0, abs=1e-5)  # all the way: perfect privacy
    assert points["displacement-0.5"]["upper"] > 0.01 and points["noise-1"]["upper"] > 0.01
    for name, point in points.items():
        assert point["low"] <= point["high"] <= point["entropy"] and point["episodes"] == 6
        assert (folder / "points" / name / "point.json").exists()
    assert (folder / "points" / "transport-2" / "policy.safetensors").exists()
    assert (folder / "points" / "transport-2" / "training" / "metrics.jsonl").exists()
    assert (folder / "frontier.png").read_bytes().startswith(b"\x89PNG")
    assert len((folder / "frontier.csv").read_text().splitlines()) == 1 + len(NAMES)


def test_points_of_one_family_share_their_programs(finished):
    _, counts = finished
    assert counts["noise-1"] > 0 and counts["transport-40"] > 0
    assert counts["noise-8"] == counts["displacement-1"] == counts["transport-2"] == 0


def test_a_second_run_measures_nothing(finished, work, capsys):
    folder, _ = finished
    before = (folder / "frontier.json").read_text()
    (folder / "frontier.png").unlink()
    assert run(*SMALL, *KINDS, "--out", folder) == 0
    assert not work and (folder / "frontier.json").read_text() == before
    shown = capsys.readouterr()
    assert (folder / "frontier.png").exists() and not shown.err
    for part in ("Frontier of gain: 6 episodes of 4 releases", "sd 8 × spread", "weight 40", "frontier.csv"):
        assert part in shown.out


def test_a_damaged_point_is_measured_again_and_its_policy_is_not_trained_again(finished, work, capsys):
    folder, _ = finished
    before = json.loads((folder / "frontier.json").read_text())
    (folder / "points" / "transport-40" / "point.json").write_text('{"kind": "trans')
    assert run(*SMALL, *KINDS, "--out", folder) == 0
    assert work == ["transport-40"]
    assert "5/6 transport 40, after 0:0" in capsys.readouterr().err
    after = json.loads((folder / "frontier.json").read_text())
    for old, new in zip(before["points"], after["points"], strict=True):
        assert {**old, "seconds": 0} == {**new, "seconds": 0}


def test_a_lost_policy_is_trained_again_to_the_same_bits(finished, work):
    folder, _ = finished
    point = folder / "points" / "transport-2"
    policy = (point / "policy.safetensors").read_bytes()
    (point / "policy.safetensors").write_bytes(policy[:40])
    (point / "point.json").unlink()
    assert run(*SMALL, *KINDS, "--out", folder) == 0
    assert work == ["train", "transport-2"] and (point / "policy.safetensors").read_bytes() == policy


def test_what_a_point_depends_on_is_measured_again(finished, work, monkeypatch):
    folder, _ = finished

    def stop(*some, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "measured", lambda goal, *rest, **more: work.append(goal.name) or stop())
    monkeypatch.setattr(families, "train_policy", lambda *some, **more: work.append("train") or stop())
    assert run(*SMALL, "--kinds", "transport", "--episodes", "9", "--again", "--out", folder) == 130
    assert run(*SMALL, "--kinds", "transport", "--price", "0.3", "--again", "--out", folder) == 130
    assert run(*SMALL, "--kinds", "noise", "--seed", "1", "--again", "--out", folder) == 130
    assert (
        run(*SMALL, "--kinds", "noise", "--price", "0.3", "--updates", "3", "--again", "--out", folder) == 0
    )
    assert work == ["transport-40", "train", "noise-1"]


def test_a_frontier_does_not_replace_another_one_unless_it_is_told_to(finished, work, capsys):
    folder, _ = finished
    assert run(*SMALL, *KINDS, "--again", "--out", folder) == 0
    before = (folder / "frontier.json").read_bytes()
    for other in ([*SMALL, "--kinds", "noise"], [*SMALL, *KINDS, "--seed", "1"]):
        assert run(*other, "--out", folder) == 2
        refusal = capsys.readouterr().err
        assert f"{folder} holds another frontier: gain, 6 points" in refusal and "--again" in refusal
        assert (folder / "frontier.json").read_bytes() == before
    assert not work


def test_ctrl_c_says_that_the_same_command_goes_on(patched, monkeypatch, tmp_path, capsys):
    def stop(*some, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "trace_frontier", stop)
    assert run(*SMALL, "--out", tmp_path) == 130
    assert "the same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["plato"], "Did you mean platoon?"),
        (["--kinds", "nois"], "noise"),
        (["--kinds", "noise", "noise"], "once"),
        (["--weights", "5", "-80"], "positive"),
        (["--weights", "inf"], "positive"),
        (["--weights"], "at least one"),
        (["--price", "0"], "positive"),
        (["--updates", "0"], "--updates 1"),
        (["--episodes", "7"], "--episodes 8, two per secret"),
        (["--seed", "-1"], "--seed"),
        (["--weigths", "5"], "--weights"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_answered_with_what_to_do(arguments, hint, patched, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    shown = capsys.readouterr()
    assert hint in shown.err + shown.out
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_a_mistake(patched, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run(*SMALL, "--out", tmp_path / "file" / "frontier") == 2
    assert "veil frontier:" in capsys.readouterr().err


def test_without_flags_it_is_a_platoon_in_its_own_folder():
    parsed = main.parse(["frontier"])
    assert isinstance(parsed, command.Frontier) and parsed.extent == options.FrontierSettings()
    assert parsed.folder.as_posix() == "frontier/platoon"


def test_on_a_terminal_one_bar_moves(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    with point_progress() as report:
        report("2/6 noise 8", "playing", 4, 8)
    assert "2/6 noise 8: playing" in capsys.readouterr().err


def test_where_there_is_no_terminal_each_point_and_some_updates_are_told_once(capsys):
    with point_progress() as report:
        for done in range(51):
            report("5/6 transport 40", "training", done, 50)
        report("5/6 transport 40", "playing", 0, 8)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4 and "training 25 of 50, after 0:00 min" in lines[2]
