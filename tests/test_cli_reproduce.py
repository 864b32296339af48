"""`python -m paper.reproduction` to its page: two releases, Kalman filters, a learner at rest."""

import contextlib
import io
import json
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paper.reproduction import command, engine, stages
from paper.reproduction.columns import TRUE
from paper.reproduction.options import Extent
from paper.reproduction.parts import PARTS
from paper.reproduction.summary import summaries
from tests.exact_bounder import exact_candidates
from veil.beliefs.base import PriorBelief
from veil.cli import main
from veil.evaluation import evaluate
from veil.evaluation.bounds import bounder_candidates
from veil.io import load_arrays
from veil.learners import run as runs
from veil.learners import training
from veil.learners.run import METRICS
from veil.learners.selection import SelectionScore
from veil.learners.training import Trained
from veil.policies import GaussianNoise, LearnedPolicy, Truth
from veil.policies.plain import NoiseKernel
from veil.stats import Leakage, Mean
from veil.systems import System
from veil.types import as_float32

SMALL = Extent(2, 2, 8, 2, 2, particles=16, training_fraction=0.01)
SCORE = SelectionScore(
    Leakage(Mean(0.0, 0.1), Mean(0.1, 0.1), 1.386), Mean(2.0, 0.1), Mean(0.3, 0.1), 4.0, 0.05, 9.0
)


def candidates(system, policy, believed=None):
    return (
        bounder_candidates(system, policy) if isinstance(policy, Truth) else exact_candidates(system, policy)
    )


class Noisy(LearnedPolicy):
    """Noise on true data, its sd being what was learned; compiles faster than a network."""

    system: System
    network: jax.Array

    def start(self, *, key):
        del key
        return PriorBelief.start(self.system)

    def features(self, belief, external, time):
        return jnp.zeros(0, belief.log_masses.dtype)

    def kernel(self, features, external, time):
        del features, external, time
        return NoiseKernel(self.system, self.network)


def untrained(system):
    return Noisy(system, jnp.array([0.3, 0.5], jnp.float32))


def loaded(folder, system):
    """The policy of the file."""
    assert runs.Run.load(folder).result is not None
    return load_arrays(folder / runs.POLICY, untrained(system))


def at_rest(calls):
    """A training that changes nothing, and says so in its folder."""

    def fit(settings, system, folder, report, ending):
        del ending
        calls.append(settings)
        lines = [
            {"update": 0.0, "seconds": 1.0} | SCORE.metrics(),
            {"update": 3.0, "seconds": 2.0} | SCORE.metrics(),
        ]
        (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
        report(lines[-1])
        return Trained(untrained(as_float32(system)), SCORE, 3, 0, "all updates made")

    return fit


def veil(*arguments):
    """Exit code and output of a command line."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), jax.enable_x64(True):
        try:
            command.main([*map(str, arguments)])
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Small sizes, and a count of trainings."""
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "prepare", lambda: None)
        patch.setattr(evaluate, "bounder_candidates", candidates)
        patch.setattr(training, "train_run", at_rest(calls))
        patch.setattr(runs, "load_policy", loaded)
        patch.setattr(command, "FAST", SMALL)
        patch.setattr(command, "cores", lambda: 1)  # a second process would know nothing of all this
        patch.setattr(engine, "chargeable", lambda policy: False)
        yield calls


OLD = ("figure_1_of_an_old_run.png",)

OTHERS = ("which_policy.png",)  # of a study, not of a reproduction


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory, quick):
    """One run, what it printed, and how many trainings it took."""
    folder = tmp_path_factory.mktemp("reproduced")
    (folder / "paper" / "pictures").mkdir(parents=True)
    for name in (*OLD, *OTHERS):
        (folder / "paper" / "pictures" / name).touch()
    return (
        folder,
        veil("--fast", "--out", folder / "out", "--only", "pathwise", "--publish", folder / "paper"),
        len(quick),
    )


def test_one_column_goes_through_to_the_page(reproduced):
    folder, (code, out, err), trainings = reproduced
    assert code == 0, err
    assert trainings == 1 and "pathwise, training" not in out
    page = (folder / "out" / "RESULTS.md").read_text()
    pictures = sorted(path.name for path in (folder / "out" / "pictures").iterdir())
    assert pictures == ["figure_1_pathwise.png", "figure_2_pathwise.png", "learning_curves.png"]
    assert all(f"](pictures/{name})" in page for name in pictures)
    assert "A shortened run" in page and "| *true in the paper* | 1.24 |" in page
    assert page == (folder / "paper" / "RESULTS.md").read_text()
    assert sorted(path.name for path in (folder / "paper" / "pictures").iterdir()) == [*pictures, *OTHERS]
    assert (folder / "out" / "results.json").read_text() == (folder / "paper" / "results.json").read_text()
    for name in ("RESULTS.md", "results.json", "results.csv", "table_1.md", "table_2.md"):
        assert str(folder / "out" / name) in out
    assert "fuel within 0.2 % of" in out and "not measured" not in out


def test_files_say_what_the_page_says(reproduced):
    folder = reproduced[0] / "out"
    content = json.loads((folder / "results.json").read_text())
    assert list(content["columns"]) == ["true", "pathwise"] and content["unit"] == "nats"
    assert content["trainings"]["pathwise"]["updates"] == 3 and content["seconds"]["true"] > 0.0
    rows = [line.split(",") for line in (folder / "results.csv").read_text().splitlines()]
    fuel = {row[0]: float(row[3]) for row in rows if row[1:3] == ["fuel", "4"]}
    assert fuel["pathwise"] == content["columns"]["pathwise"]["fuel"][3]["value"]
    assert f"{fuel['pathwise']:.3f} ±" in (folder / "table_1.md").read_text()
    assert [row[5] for row in rows if row[:2] == ["true", "squared"]] == ["0.04", "0.05", "0.06", "0.08"]
    stored = np.load(folder / "columns" / "pathwise" / "parts" / "driven.npz")
    assert fuel["pathwise"] == pytest.approx(stored["fuel"][stored["index"] == 3].mean())


def broken(*arguments):
    raise AssertionError("this was done before")


def again(folder):
    """What a new process would find out about the same reproduction."""
    return summaries(engine.Work(SMALL, folder, ["pathwise"]))


def test_a_second_run_does_no_work_and_a_damaged_stage_is_done_again(reproduced, quick, monkeypatch):
    folder, trainings = reproduced[0] / "out", len(quick)
    for stage in ("audited", "read", "charged"):
        monkeypatch.setattr(stages, stage, broken)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "evaluate", broken)
        patch.setattr(engine, "play_episodes", broken)
        before = again(folder)
    assert len(quick) == trainings
    part = folder / "columns" / TRUE / "parts" / "driven.npz"
    whole = part.read_bytes()
    part.write_bytes(whole[: len(whole) // 2])
    assert again(folder) == before
    with np.load(part) as mended:
        assert len(mended["fuel"]) == 4 * SMALL.table_episodes


def test_a_damaged_training_is_done_again(reproduced, quick, tmp_path):
    folder = reproduced[0] / "out"
    work = engine.Work(SMALL, folder, ["pathwise"])
    policy = folder / "runs" / "pathwise" / "policy.safetensors"
    whole, trainings = policy.read_bytes(), len(quick)
    policy.write_bytes(whole[:-8])
    assert work.study("pathwise").as_trained is not None
    assert len(quick) == trainings + 1 and policy.read_bytes() == whole


def test_one_table_alone_needs_driving_only(reproduced, monkeypatch):
    folder = reproduced[0] / "out"
    for stage in ("audited", "read", "charged"):
        monkeypatch.setattr(stages, stage, broken)
    code, out, _ = veil("--fast", "--out", folder, "--only", "pathwise", "--part", "table_1")
    assert code == 0 and str(folder / "table_1.md") in out and "RESULTS.md" not in out


def test_help_says_how_the_reproduction_is_started_and_offers_every_part():
    code, out, _ = veil("--help")
    assert code == 0 and out.startswith("usage: python -m paper.reproduction [FLAGS]")
    assert all(part in out for part in PARTS) and set(get_args(command.Part)) == {"all", *PARTS}


def test_stopping_says_that_the_same_command_goes_on(reproduced, monkeypatch):
    def stop(work):
        raise KeyboardInterrupt

    monkeypatch.setattr("paper.reproduction.parts.everything", stop)
    code, _, err = veil("--fast", "--out", reproduced[0] / "out")
    assert code == 130 and "the same command goes on" in err


def test_unknown_columns_are_refused_with_a_guess():
    code, _, err = veil("--only", "pathwize")
    assert code == 2 and "Did you mean pathwise?" in err


def test_noise_is_as_far_from_the_truth_as_its_model(monkeypatch, tmp_path):
    """E d of N(0, diag sd²) with weights (3, 1), by a numpy draw, against the distortion to be met."""
    work = engine.Work(SMALL, tmp_path, ["noise"])
    like = work.study(work.study("noise").column.like)
    like.__dict__["audited"] = {"distortion": np.array([1.0, 2.0])}
    noise = work.study("noise").as_trained
    assert isinstance(noise, GaussianNoise)
    sd = np.asarray(noise.sd)
    assert sd[1] / sd[0] == pytest.approx(1.7)
    drawn = sd * np.random.default_rng(0).standard_normal((400_000, 2))
    distances = np.sqrt(3.0 * drawn[:, 0] ** 2 + drawn[:, 1] ** 2)
    assert distances.mean() == pytest.approx(1.5, abs=5 * distances.std() / np.sqrt(len(drawn)))
