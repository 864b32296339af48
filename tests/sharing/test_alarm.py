"""The alarm: a martingale under the model, its level over whole streams, and what follows from it."""

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from tests.sharing.streams import SECRET, Plant, noise_policy, private_policy, run
from tests.stream_study import _wealth
from veil.laws import Gaussian, to_grid
from veil.sharing import Sharer
from veil.sharing.account import read_account
from veil.sharing.alarm import (
    FACTORS,
    LEVEL,
    MEMORIES,
    OFFSETS,
    SIZES,
    Bets,
    alarm_charge,
    log_ratios,
    no_bets,
    surprise,
    unknown_cell,
    unpacked_bets,
)
from veil.sharing.sharer import AlarmStop
from veil.systems import Gain, Platoon, with_resolution
from veil.types import as_float64


def test_no_bet_gains_under_the_model():
    """E[q(z)/φ(z)] = 1 for every bet, whatever was before: Gauss-Hermite quadrature in two dimensions."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(180)
    z = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    mass = np.outer(weights, weights).ravel() / weights.sum() ** 2
    before, shifts = np.array([0.8, -1.1]), np.array([[0.5, -0.4], [0.0, 1.2]])
    ratios = log_ratios(z, np.broadcast_to(before, z.shape), np.broadcast_to(shifts, (len(z), 2, 2)))
    assert ratios.shape[1] == 2 + 2 * len(OFFSETS) + len(MEMORIES) + 3 * len(SIZES)
    means = mass @ np.exp(np.minimum(ratios, 600.0))
    narrow = np.abs(means - 1.0) < 1e-6
    # Bets on noise of ten or a thousand times the size live in tails that no quadrature reaches: bounded.
    assert np.all(means < 1.0 + 1e-6) and narrow.sum() >= ratios.shape[1] - 3 * 4


@pytest.mark.parametrize("size", SIZES)
def test_bets_on_the_size_are_ratios_of_densities(size):
    z = np.array([-2.0, 0.1, 3.0])[:, None]
    ratios = log_ratios(z, np.full_like(z, np.nan), np.zeros((3, 1, 1)))
    found = ratios[:, 1 + len(OFFSETS) + len(MEMORIES) + SIZES.index(size)]
    assert np.allclose(found, (stats.norm.logpdf(z, scale=size) - stats.norm.logpdf(z))[:, 0])


@pytest.mark.parametrize("memory", MEMORIES)
def test_bets_on_a_memory_are_ratios_of_densities(memory):
    z, before = np.array([[0.3, -1.0]]), np.array([[1.5, 0.2]])
    found = log_ratios(z, before, np.zeros((1, 1, 2)))[0, 1 + 2 * len(OFFSETS) + MEMORIES.index(memory)]
    truth = stats.norm.logpdf(z, memory * before, math.sqrt(1 - memory**2)) - stats.norm.logpdf(z)
    assert found == pytest.approx(truth.sum())


def test_stakes_are_spread_over_all_changes_to_come():
    """The wealth is Σ_j π_j Π_{s≥j} q/φ and what is left, with π_j the falls of 1/log₂(t + 2)."""
    rng, bets = np.random.default_rng(1), no_bets(1)
    rows, ratios = [], []
    for _ in range(12):
        before = bets.noise
        rows.append(rng.normal(size=(3, 1)))
        ratios.append(log_ratios(rows[-1][0], before, rows[-1][1:]))
        bets = bets.after(rows[-1])
    kept = [1.0 / math.log2(t + 2) for t in range(13)]
    gains = np.cumsum(np.array(ratios)[::-1], axis=0)[::-1]
    wealth = kept[-1] + sum(
        (one - other) * np.exp(gain).mean() for (one, other), gain in zip(pairwise(kept), gains, strict=True)
    )
    assert float(bets.log_wealth) == pytest.approx(math.log(wealth))
    again = unpacked_bets(bets.packed(), 1)
    assert again.count == 12 and np.array_equal(again.log_stakes, bets.log_stakes)
    assert np.isnan(again.noise).all()  # after a restart the step before is not known


def test_what_is_not_known_is_not_bet_on_and_what_is_wild_is_no_error():
    bets = no_bets(2).after(np.full((4, 2), np.nan))
    assert bets.count == 0 and float(bets.log_wealth) == 0.0
    bets = bets.after(np.array([[1e300, np.nan], [1.0, 2.0], [0.0, 0.0]]))
    assert np.isfinite(bets.log_wealth) and bets.log_wealth > 1e6


def test_the_noise_and_the_shifts_are_those_of_the_transition(float64):
    """By hand on the gain loop: (x' − θx − w)/sd, and what another θ would have expected."""
    system = as_float64(Gain())
    step = map(jnp.asarray, ([0.6], [2.0], [0.5], [1.4]))
    rows = np.asarray(surprise(system, *step, cell=jnp.zeros(0), key=jr.key(0)).rows)
    others = [*(0.6 * np.array(FACTORS)), 0.3, 0.6, 0.9]
    assert np.allclose(rows[0], (1.4 - 0.6 * 2.0 - 0.5) / 0.3)
    assert np.allclose(rows[1:, 0], [(other - 0.6) * 2.0 / 0.3 for other in others])


def test_the_charge_is_the_entropy_of_whether_and_when():
    for level, steps in ((0.1, 3), (1e-4, 2**31 - 1)):
        coin = stats.bernoulli(level).entropy()
        assert alarm_charge(level, steps) == pytest.approx(float(coin) + level * math.log(steps + 1))
    assert 0.0031 < alarm_charge(LEVEL) < 0.0032
    for level in (0.0, 0.6, math.nan):
        with pytest.raises(ValueError, match="probability"):
            alarm_charge(level)


def test_false_alarms_are_at_most_the_level(float64):
    """2,000 streams of 150 steps at levels .3 and .05: by Ville at most so many, here 4 s.e. are granted."""
    largest = _wealth(as_float64(Gain()), (0.3,), 2000, 150, 1.0, 0).max(axis=0)
    for level in (0.3, 0.05):
        rate = np.mean(largest >= -math.log(level))
        assert rate <= level + 4 * math.sqrt(level * (1 - level) / 2000)
        assert rate > level / 20  # and the test is not asleep


def test_other_drivers_are_noticed(float64):
    largest = _wealth(as_float64(Platoon()), (0.25, 0.43), 40, 150, 1.5, 20)
    assert np.mean(largest[-1] >= -math.log(LEVEL)) > 0.8 and np.all(largest[:20] < -math.log(LEVEL))


WRONG = {"sd": 0.9}  # three times the noise of the model


@pytest.mark.parametrize("make", [noise_policy, private_policy])
def test_after_an_alarm_the_stream_is_blind_and_stays_so(tmp_path, make):
    """Over a restart as well; the ledger says since when, and what the owner may rely on."""
    files: dict[str, Any] = {"ledger": tmp_path / "ledger", "account": tmp_path / "account"}
    plant = Plant(0, **WRONG)
    with Sharer(make(), SECRET, **files, resolution=0.0) as sharer:
        run(sharer, plant, 60)
        alarmed, reason = sharer.alarmed, sharer.alarm
        assert 2 <= alarmed < 40 and "Charges mean nothing from this step on" in sharer.alarm_sentence()
    with Sharer(make(), SECRET, **files, resolution=0.0) as sharer:
        assert (sharer.alarmed, sharer.alarm) == (alarmed, reason)
        run(sharer, plant, 5)
        entries = list(sharer.ledger)
    then = "blind" if make is noise_policy else "withheld"
    for entry in entries:
        after = entry["step"] > alarmed
        assert entry.get("alarmed", False) == after
        if after:
            assert entry["decision"] == then and entry["charge"] == 0.0
    assert read_account(tmp_path / "ledger").alarmed == alarmed + 1
    assert {entry["decision"] for entry in entries[:alarmed]} == {"released"}


def test_blind_after_an_alarm_means_that_states_have_no_part_in_it():
    """Two plants from the alarm on, the same inputs: the same releases."""
    made = []
    for seed in (1, 2):
        with Sharer(noise_policy(), SECRET, seed=3, resolution=0.0) as sharer:
            numbers = np.random.default_rng(0)
            with pytest.MonkeyPatch.context() as patch:
                tossed = iter(np.random.default_rng(5).integers(0, 2**32, (500, 2), np.uint32))
                patch.setattr("veil.sharing.step_program._coins", tossed.__next__)
                while not sharer.alarmed:
                    sharer.share([5.0 * numbers.normal()], [0.0])
                last = sharer.next_step
                own = np.random.default_rng(seed)
                made.append([last, *(sharer.share([own.normal()], [0.1]).shared for _ in range(5))])
    assert made[0][0] == made[1][0] and np.array_equal(np.stack(made[0][1:]), np.stack(made[1][1:]))


def test_stop_ends_the_stream_and_warn_does_not():
    with (
        Sharer(noise_policy(), SECRET, on_alarm="stop", resolution=0.0) as sharer,
        pytest.raises(AlarmStop, match="ends here"),
    ):
        run(sharer, Plant(0, **WRONG), 60)
    assert len(sharer.ledger) == sharer.alarmed
    with Sharer(noise_policy(), SECRET, on_alarm="warn", resolution=0.0) as sharer:
        made = run(sharer, Plant(0, **WRONG), 60)
        assert sharer.alarmed and Counter(one.receipt.decision for one in made) == {"released": 60}
        assert not any("alarmed" in entry for entry in sharer.ledger)  # nobody but the owner knows
        assert sharer.ledger.about["alarm"]["charge"] == 0.0


def test_a_plant_that_is_the_model_is_left_alone(tmp_path):
    """Also if the stream is started again after every few steps: the stakes are kept, not spread anew."""
    files: dict[str, Any] = {"ledger": tmp_path / "ledger", "account": tmp_path / "account"}
    plant, counts = Plant(3), []
    for _ in range(3):
        with Sharer(noise_policy(), SECRET, **files, resolution=0.0) as sharer:
            run(sharer, plant, 40)
            counts.append(sharer._bets.count)
            assert not sharer.alarm
    assert counts == [39, 78, 117]


def test_a_degenerate_axis_is_passed_over(float64):
    law = Gaussian(jnp.zeros(2), jnp.diag(jnp.asarray([1.0, 0.0])))

    class Still(Gain):
        def transition(self, secret, state, external):
            return law

    step = jnp.asarray([0.6]), jnp.zeros(2), jnp.zeros(1), jnp.asarray([0.5, 0.0])
    rows = np.asarray(surprise(Still(), *step, cell=jnp.zeros(0), key=jr.key(0)).rows)
    assert rows[0, 0] == 0.5 and np.isnan(rows[0, 1]) and np.all(np.isfinite(rows[1:]))
    assert Bets(np.zeros(0), np.full(2, np.nan)).after(rows).count == 1


def test_a_coarse_sensor_raises_no_alarm_beyond_its_level(float64):
    """Readings in steps of four sd of the noise, 200 streams of 200 steps, at a level of 0.1."""
    system, secret, step = with_resolution(as_float64(Gain()), 1.2), jnp.asarray([0.6]), (1.2,)

    def stream(key):
        def one(now, own):
            state, external, cell, reading = now
            move, reply, private = jr.split(own, 3)
            after = system.transition(secret, state, external).sample(jr.normal(move, (1,)))
            read = to_grid(after, step)
            found = surprise(system, secret, reading, external, read, cell=cell, key=private)
            answer = system.react(external, reading, jr.normal(reply, (1,)))
            return (after, answer, found.cell, read), found.rows

        first = system.initial(secret).sample(jr.normal(jr.fold_in(key, 1), (1,)))
        start = (first, jnp.zeros(1), unknown_cell(system), to_grid(first, step))
        return jax.lax.scan(one, start, jr.split(key, 200))[1]

    rows = np.asarray(jax.jit(jax.vmap(stream))(jr.split(jr.key(0), 200)))
    bets, most = Bets(np.zeros((200, 0)), np.full((200, 1), np.nan)), np.zeros(200)
    for now in np.moveaxis(rows, 1, 0):
        bets = bets.after(now)
        most = np.maximum(most, bets.log_wealth)
    alarms = int(np.sum(most >= np.log(10.0)))
    assert alarms <= 20 + 3.0 * np.sqrt(18.0)
    assert abs(np.std(rows[:, :, 0, 0]) - 1.0) < 0.02
