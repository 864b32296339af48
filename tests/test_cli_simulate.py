"""`veil simulate`: arrays that anyone can read, and that say what happened."""

import jax
import numpy as np
import pytest

from tests.command_lines import quick, veil
from tests.evaluation import made_audits as made
from veil.evaluation import audit as engine
from veil.evaluation.episodes import SIMULATED, replay_batch
from veil.evaluation.transcript_file import NAMES
from veil.learners import run as runs
from veil.results import Audit
from veil.systems import Gain
from veil.systems.scenarios import nominal

EPISODES, STEPS, SD = 30, 12, 0.3


@pytest.fixture(scope="module", autouse=True)
def unhurried():
    with quick():
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One file of noise by its name, and one of a run folder whose policy looks at a belief."""
    place = tmp_path_factory.mktemp("simulated")
    size = ["--episodes", EPISODES, "--steps", STEPS]
    ended = veil(
        "simulate", "gain", "--policy", "noise", "--sd", SD, *size, "--out", place / "new" / "noise.npz"
    )
    assert ended[0] == 0, ended[2]
    assert veil("train", "gain", "--policy", "transport", "--out", place / "run")[0] == 0
    assert veil("simulate", place / "run", *size, "--out", place / "run.npz")[0] == 0
    return place, ended


def arrays(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def test_the_file_holds_the_arrays_of_the_definitions(files):
    place, (_, out, _) = files
    found = arrays(place / "new" / "noise.npz")
    shapes = [(EPISODES,), *((EPISODES, STEPS, size) for size in (1, 1, 1, 0)), (EPISODES,)]
    assert [found[name].shape for name in NAMES] == shapes and found.keys() == {*NAMES, "last_state"}
    assert (
        f"{EPISODES} episodes of {STEPS} releases" in out
        and "veil audit gain --policy noise --sd 0.3 --transcripts " in out
    )
    assert np.array_equal(found["secret"], np.arange(EPISODES) % 3)  # the secrets take turns
    assert len(np.unique(found["public_seed"])) == EPISODES and found["public_seed"].min() >= SIMULATED - 3


def test_the_arrays_obey_the_loop_and_the_noise_that_was_asked_for(files):
    """Residuals of the scalar loop and of the releases, by hand: standard normal, and not the same."""
    system, found = Gain(), arrays(files[0] / "new" / "noise.npz")
    states = np.concatenate([found["state"], found["last_state"][:, None]], axis=1)[:, :, 0]
    gain = np.asarray(system.prior.secrets, float)[found["secret"]]
    moved = states[:, 1:] - gain * states[:, :-1] - found["external"][:, :, 0]
    answered = found["external"][:, 1:, 0] - float(system.reply) * found["shared"][:, :-1, 0]
    residuals = {
        "state": moved / float(system.sd),
        "shared": (found["shared"] - found["state"])[:, :, 0] / SD,
        "external": answered / float(system.reaction_sd),
    }
    for name, values in residuals.items():
        assert abs(values.mean()) < 4 / np.sqrt(values.size), name
        assert abs(values.var() - 1.0) < 4 * np.sqrt(2 / values.size), name
    both = np.corrcoef(residuals["state"].ravel(), residuals["shared"].ravel())[0, 1]
    assert abs(both) < 4 / np.sqrt(EPISODES * STEPS)


def test_a_run_of_the_audit_reads_the_same_bits_and_replays_them(files, monkeypatch):
    """What the engine is given is what the file holds; its features follow from what is public."""
    place, seen = files[0], []

    def fake(system, policy, options, *, records, progress, store, executor):
        seen.append((policy, records))
        return made.every_kind()["certifiable"]

    monkeypatch.setattr(engine, "audit", fake)
    monkeypatch.setattr(Audit, "save_pictures", lambda audit, folder: [])
    code, _, err = veil("audit", place / "run", "--transcripts", place / "run.npz")
    assert code == 0, err
    ((policy, records),), found = seen, arrays(place / "run.npz")
    for name in ("external", "shared", "features", "public_seed"):
        assert np.array_equal(getattr(records.public, name), found[name]), name
    assert np.array_equal(records.states[:, :-1], found["state"]) and found["features"].shape[2] > 0
    with jax.enable_x64(True):
        assert not np.any(replay_batch(nominal(policy.system), policy, records.public))
    assert (place / "run" / "audit" / "audit.json").exists()


def test_a_seed_gives_the_same_file_and_another_seed_another(files, tmp_path):
    place = files[0]
    for name, seed in (("same", 0), ("other", 1)):
        out = ["--seed", seed, "--out", tmp_path / f"{name}.npz"]
        assert veil("simulate", place / "run", "--episodes", EPISODES, "--steps", STEPS, *out)[0] == 0
    first, same, other = (arrays(path) for path in (place / "run.npz", *sorted(tmp_path.glob("*.npz"))[::-1]))
    assert all(np.array_equal(first[name], same[name]) for name in first)
    assert not np.any(first["shared"] == other["shared"])


def test_a_run_folder_without_training_is_the_policy_by_its_name(files):
    """The same law and the same random numbers: the same releases as by name."""
    place = files[0]
    size = ["--episodes", EPISODES, "--steps", STEPS]
    assert veil("simulate", "gain", "--policy", "transport", *size, "--out", place / "named.npz")[0] == 0
    named, kept = arrays(place / "named.npz"), arrays(place / "run.npz")
    assert all(np.array_equal(named[name], kept[name]) for name in named)
    run = runs.Run.load(place / "run")
    assert run.finished and run.result is None and isinstance(run.settings, runs.Ready)
