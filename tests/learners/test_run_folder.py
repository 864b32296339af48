"""A run comes back from its folder as it was saved, prints in a few lines, and draws its training."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.reports.made_folders import metrics, run_folder
from veil.io import StoreError
from veil.learners import run as runs
from veil.learners.run import Run
from veil.registry import POLICIES
from veil.systems import Gain


def ready_run(folder, system):
    """A policy that needs no training."""
    ready = runs.Ready("gain", POLICIES["noise"](sd=(0.3,)))
    return runs.keep(folder, ready, system)


def test_a_training_comes_back_with_its_result_and_its_history(tmp_path):
    folder = run_folder(tmp_path / "learned", audited=False, shared=False)
    found = Run.load(folder)
    assert found == Run.load(str(folder)) and found.finished and found.history == tuple(metrics())
    assert found.result is not None and found.result.best == 20 and found.policy is None
    assert found != replace(found, result=replace(found.result, best=21))
    lines = str(found).splitlines()
    assert len(lines) <= 25 and "pathwise on platoon, 50 releases, finished" in lines[0]
    assert "0.001 to 0.006 of 1.386 nats" in lines[1] and "after update 20" in str(found)


def test_a_training_is_drawn_and_a_notebook_shows_it(tmp_path):
    found = Run.load(run_folder(tmp_path / "learned", audited=False, shared=False))
    figure = found.plot()
    assert isinstance(figure, Figure)
    leakage, distortion = figure.axes
    assert np.size(leakage.lines[0].get_xdata()) == 40 and "leakage" in leakage.get_ylabel()
    (fresh,) = [line for line in distortion.lines if line.get_marker() == "o"]
    assert list(np.asarray(fresh.get_xdata())) == [0.0, 20.0, 40.0]
    assert found._repr_html_().count("data:image/png;base64,") == 1


def test_a_run_is_saved_elsewhere_with_its_policy(tmp_path):
    with jax.enable_x64(True):
        system = Gain()
        first = ready_run(tmp_path / "first", system)
        found = Run.load(tmp_path / "first", system)
        assert found == first and found.policy is not None and not found.history
        found.save(tmp_path / "second")
        again = Run.load(tmp_path / "second", system)
    assert again == found
    leaves = zip(jax.tree.leaves(again.policy), jax.tree.leaves(first.policy), strict=True)
    assert all(np.array_equal(one, other) for one, other in leaves)
    names = ("run.json", "policy.safetensors")
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    assert "noise on gain, without training" in str(found) and "<img" not in found._repr_html_()
    with pytest.raises(ValueError, match="no training to draw"):
        found.plot()


def test_only_a_finished_run_with_its_policy_is_saved(tmp_path):
    folder = run_folder(tmp_path / "learned", audited=False, shared=False)
    with pytest.raises(ValueError, match="finished run that has its policy"):
        Run.load(folder).save(tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_metrics_that_are_no_text_are_refused(tmp_path):
    folder = run_folder(tmp_path / "learned", audited=False, shared=False)
    (folder / runs.METRICS).write_bytes(b"\xff\xfe")
    with pytest.raises(StoreError, match=r"metrics\.jsonl cannot be read"):
        Run.load(folder)
