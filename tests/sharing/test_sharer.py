"""The sharer: charges, answers, faults, gaps, restarts. The truth is a Kalman filter in numpy."""

import math
import os
import stat
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.sharing.streams import (
    NOISE,
    SECRET,
    Plant,
    kalman_charges,
    noise_policy,
    private_policy,
    run,
    value,
)
from veil.policies import GaussianNoise
from veil.sharing import Accountant, Fault, LedgerError, Sharer, snapshots
from veil.sharing import step_program as engines_module
from veil.sharing.alarm import alarm_charge
from veil.sharing.inputs import checked_secret, in_prior
from veil.sharing.step_program import StepEngine
from veil.systems import Platoon

BUDGET = 0.15
PRIVATE_COINS = engines_module._coins


@pytest.fixture(scope="module", autouse=True)
def coins():
    """Private randomness with a seed, so that a test that passes once passes always."""
    numbers = np.random.default_rng(20261116)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines_module, "_coins", lambda: numbers.integers(0, 2**32, 2, np.uint32))
        yield


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """A stream with a gap and two faults, closed and opened again; what was said, and the ledger."""
    path = tmp_path_factory.mktemp("stream") / "ledger.jsonl"
    plant, made = Plant(), []
    with Sharer(
        noise_policy(), SECRET, budget=BUDGET, exhausted="withhold", ledger=path, resolution=0.0
    ) as sharer:
        made += run(sharer, plant, 4)
        made.append(sharer.share([math.nan], [plant.external]))
        plant.step(None)
        made.append(sharer.share([plant.state], [math.inf]))
        plant.step(None)
        plant.step(None)  # step 7 never comes
        made.append(sharer.share([plant.state], [plant.external], step=8))
        before = sharer.accountant.total()
    with Sharer(
        noise_policy(), SECRET, budget=BUDGET, exhausted="withhold", ledger=path, resolution=0.0
    ) as sharer:
        assert sharer.accountant.total() == before and sharer.next_step == 9
        plant.step(None if made[-1].shared is None else made[-1].shared[0])
        made += run(sharer, plant, 20)
        entries = list(sharer.ledger)
        repeats = [sharer.share([99.0], [0.0], step=number) for number in (1, 5, 7, 12)]
    return made, entries, repeats, path


def test_charges_are_the_information_of_each_release_given_what_is_public(story):
    """Over faults, a gap and a restart; a step that was refused would have cost more than was left."""
    _, entries, _, _ = story
    opened = [entry["decision"] == "released" for entry in entries]
    rows = [(entry["external"][0], entry["shared"][0] if entry["shared"] else None) for entry in entries]
    truth = kalman_charges(rows, opened)
    charged = np.array([entry["charge"] for entry in entries])
    assert np.allclose(charged[opened], truth[opened], atol=1e-8, rtol=1e-6)
    assert np.all(charged[~np.array(opened)] == 0.0)
    for entry, exact in zip(entries, truth, strict=True):
        if entry["decision"] == "withheld":
            assert exact > entry["left"] - 1e-9
    assert sum(opened) > 4 and "withheld" in {entry["decision"] for entry in entries}


def test_the_account_adds_up_and_keeps_the_budget(story):
    _, entries, _, _ = story
    start = alarm_charge(1e-4)
    totals = start + np.cumsum([entry["charge"] for entry in entries])
    assert np.allclose([entry["total"] for entry in entries], totals, rtol=1e-12)
    assert np.allclose([BUDGET - entry["left"] for entry in entries], np.r_[start, totals[:-1]], atol=1e-12)
    assert totals[-1] <= BUDGET


def test_faults_and_gaps_are_withheld_and_named(story):
    made, entries, _, _ = story
    assert [entry["decision"] for entry in entries[4:7]] == ["fault", "fault", "gap"]
    assert all(entry["shared"] is None and entry["charge"] == 0.0 for entry in entries[4:7])
    assert made[4].receipt.fault == "state.level must be finite." and made[4].shared is None
    assert made[5].receipt.fault == "external.push must be finite."
    assert entries[5]["external"] == entries[4]["external"]  # the last one is taken to hold


def test_a_step_on_record_is_answered_from_it(story):
    """Whatever the state is said to be now."""
    _, entries, repeats, _ = story
    for number, again in zip((1, 5, 7, 12), repeats, strict=True):
        shared = entries[number - 1]["shared"]
        assert again.receipt.step == number
        assert (again.shared is None) if shared is None else again.shared.tolist() == shared


def test_releases_are_the_state_plus_the_noise_of_the_policy():
    """Standardised over 400 steps: mean zero, variance one, and not the same in another stream."""
    errors = []
    for seed in (0, 0):
        plant, own = Plant(seed), []
        with Sharer(noise_policy(), SECRET, seed=7, resolution=0.0) as sharer:
            for _ in range(400):
                made = sharer.share({"level": plant.state}, {"push": plant.external})
                own.append((value(made) - plant.state) / NOISE)
                plant.step(value(made))
        errors.append(np.array(own))
    first, second = errors
    assert abs(first.mean()) < 4 / math.sqrt(400)
    assert abs((first**2).mean() - 1.0) < 4 * math.sqrt(2 / 400)
    assert not np.any(first == second)


def test_private_randomness_comes_from_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "urandom", lambda size: asked.append(size) or bytes(range(size)))
    assert PRIVATE_COINS().tobytes() == bytes(range(8)) and asked == [8]


def test_streams_of_one_secret_share_a_budget():
    together = Accountant(0.1)
    with (
        Sharer(noise_policy(), SECRET, shared_budget=together, resolution=0.0) as first,
        Sharer(noise_policy(), SECRET, shared_budget=together, resolution=0.0) as second,
    ):
        for sharer in (first, second, first):
            run(sharer, Plant(3), 8)
        spent = first.accountant.total() + second.accountant.total()
    assert together.total() == pytest.approx(spent) and 0.05 < spent <= 0.1


def test_an_edited_ledger_another_policy_and_a_second_process_are_refused(story, tmp_path):
    _, _, _, path = story
    copy = tmp_path / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"charge":0', b'"charge":1', 1)
    copy.write_bytes(b"".join(lines))
    with pytest.raises(LedgerError, match="line 4"):
        Sharer(noise_policy(), SECRET, budget=BUDGET, exhausted="withhold", ledger=copy, resolution=0.0)
    copy.write_bytes(path.read_bytes())
    with pytest.raises(LedgerError, match="another stream"):
        Sharer(noise_policy(), SECRET, budget=2 * BUDGET, exhausted="withhold", ledger=copy, resolution=0.0)
    with (
        Sharer(noise_policy(), SECRET, budget=BUDGET, exhausted="withhold", ledger=copy, resolution=0.0),
        pytest.raises(LedgerError, match="another process"),
    ):
        Sharer(noise_policy(), SECRET, budget=BUDGET, exhausted="withhold", ledger=copy, resolution=0.0)


def test_a_ledger_that_this_program_would_have_charged_otherwise_is_refused(story, tmp_path, monkeypatch):
    """The chain holds, but the numbers are those of another version or machine: the spending is not known."""
    copy, again = tmp_path / "ledger.jsonl", StepEngine.again
    copy.write_bytes(story[3].read_bytes())

    def otherwise(engine, entry):
        made = again(engine, entry)
        charged = eqx.tree_at(lambda one: one.decision.charge, made.public, made.charge + 1e-6)
        return replace(made, public=charged)

    monkeypatch.setattr(StepEngine, "again", otherwise)
    with pytest.raises(LedgerError, match="Step 1 of the ledger was charged otherwise"):
        Sharer(noise_policy(), SECRET, budget=BUDGET, exhausted="withhold", ledger=copy, resolution=0.0)


def test_a_secret_outside_the_prior_is_noticed():
    system = Platoon()
    values = np.asarray(system.prior.secrets, float)
    assert in_prior(checked_secret(2, system), system) and in_prior(values[3] * (1 + 1e-7), system)
    assert not in_prior(values[3] * np.array([1.0, 1.01]), system)
    assert not in_prior(np.array([values[0, 0], values[1, 1]]), system)  # numbers of two secrets


def test_strict_raises_and_takes_no_step():
    with Sharer(noise_policy(), SECRET, strict=True, resolution=0.0) as sharer:
        with pytest.raises(Fault, match=r"state\.level must be finite"):
            sharer.share([math.inf], [0.0])
        assert sharer.next_step == 1
        with pytest.raises(Fault, match="ahead"):
            sharer.share([0.0], [0.0], step=5000)


def counterfactual(states, externals, gain=0.6):
    """Copies of all secrets with the noise of the true states; the release is their median."""
    secrets, copies, made = np.array([0.3, 0.6, 0.9]), None, []
    for t, state in enumerate(states):
        if t == 0:
            copies = np.full(3, state)
        else:
            noise = state - gain * states[t - 1] - externals[t - 1]
            copies = secrets * copies + externals[t - 1] + noise
        made.append(np.median(copies))
    return np.array(made)


def test_the_counterfactual_policy_goes_on_from_its_private_memory(tmp_path):
    """A stream that is interrupted twice, once between its memory and its ledger, is the one that is not."""
    ledger, memory, plant = tmp_path / "ledger.jsonl", tmp_path / "secret.json.memory", Plant(5)
    states, externals, made = [], [], []

    def once(sharer):
        states.append(plant.state)
        externals.append(plant.external)
        made.append(value(sharer.share([plant.state], [plant.external])))
        plant.step(made[-1])

    for steps in (4, 5, 3):
        with Sharer(private_policy(), SECRET, ledger=ledger, memory=memory, resolution=0.0) as sharer:
            for _ in range(steps):
                once(sharer)
            keep = sharer.ledger.append

            def crash(*entries):
                raise OSError("power cut")

            if steps == 5:
                sharer.ledger.append = crash
                with pytest.raises(OSError, match="power cut"):
                    sharer.share([plant.state], [plant.external])
                sharer.ledger.append = keep
        assert stat.S_IMODE(memory.stat().st_mode) == 0o600
    assert np.allclose(made, counterfactual(states, externals), atol=1e-6)


def test_a_lost_memory_costs_distortion_and_nothing_else(tmp_path):
    """The copies then go on from what is public: the next releases do not depend on the states before."""
    releases = []
    for seed in (1, 2):
        ledger, plant = tmp_path / f"{seed}.jsonl", Plant(seed)
        with Sharer(private_policy(), SECRET, ledger=ledger, resolution=0.0) as sharer:
            for _ in range(3):
                sharer.share([plant.state], [0.5])
                plant.step(None)
        with Sharer(private_policy(), SECRET, ledger=ledger, resolution=0.0) as sharer:
            releases.append(value(sharer.share([plant.state], [0.5])))
    assert releases[0] == releases[1]


def test_a_state_out_of_range_is_moved_to_the_edge(monkeypatch):
    """By a public rule, inside: with the same coins it gives the same release as the edge itself."""
    monkeypatch.setattr(engines_module, "_coins", lambda: np.array([1, 2], np.uint32))
    with jax.enable_x64(True):
        policy = GaussianNoise(Platoon(), jnp.asarray([0.3, 0.5]))
    with (
        Sharer(policy, 0, seed=1, resolution=0.0) as one,
        Sharer(policy, 0, seed=1, resolution=0.0) as other,
    ):
        for first, second, same in ((90.0, 60.0, True), (15.0, 16.0, False)):
            made = [
                value(sharer.share([speed, 20.0], [15.0, 15.0, 20.0]))
                for sharer, speed in ((one, first), (other, second))
            ]
            assert (made[0] == made[1]) == same


@pytest.mark.usefixtures("optimised")
def test_a_long_ledger_is_gone_on_with_from_a_snapshot_of_the_belief(tmp_path, monkeypatch):
    """With the snapshot, without it and with an edited one the stream stands at the same bits."""
    monkeypatch.setattr(snapshots, "EVERY", 20)
    path, plant = tmp_path / "ledger.jsonl", Plant(8)
    files = {"ledger": path, "account": tmp_path / "account"}
    with Sharer(noise_policy(), SECRET, budget=1.0, **files, resolution=0.0) as sharer:
        run(sharer, plant, 47)
    kept = snapshots.beside(path)
    states, replayed, again = [], [], StepEngine.again

    def noted(self, entry):
        replayed.append(entry["step"])
        return again(self, entry)

    monkeypatch.setattr(StepEngine, "again", noted)
    for change in (lambda whole: whole, lambda whole: whole[:-1] + b"?", None):
        if change is None:
            kept.unlink()
        else:
            kept.write_bytes(change(kept.read_bytes()))
        with Sharer(noise_policy(), SECRET, budget=1.0, **files, resolution=0.0) as sharer:
            states.append((sharer._engine.snapshot(), sharer.accountant.total(), sharer.next_step))
    assert states[0] == states[1] == states[2]
    assert replayed == [*range(41, 48), *range(1, 48), *range(1, 48)]
