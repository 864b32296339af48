"""Series in a live stream and in recordings: by name, from the system, on past the end, private."""

import json
import stat

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from tests.flats import OUTDOOR, PEOPLE, START, TARIFF, flat
from veil.evaluation.episodes import play_batch
from veil.evaluation.transcript_file import TranscriptError, load, save
from veil.policies import Counterfactual, GaussianNoise
from veil.recordings import read_recording
from veil.recordings.bound import bind
from veil.sharing import Fault, Sharer, step_program
from veil.sharing.inputs import given_external, parsed
from veil.systems import Building, nominal

INDOOR = {"indoor": 20.0}


def policy(start=START):
    with jax.enable_x64(True):
        return GaussianNoise(flat(start), jnp.asarray([0.3]))


def line(step, **external):
    return json.dumps({"step": step, "state": INDOOR, "external": {"power": 2.0, **external}}).encode()


def test_what_a_line_leaves_out_is_taken_from_the_series_and_what_it_says_wins():
    system = policy().system
    row = START + 2
    np.testing.assert_array_equal(
        parsed(line(3), system).external, [2.0, OUTDOOR[row], TARIFF[row], PEOPLE[row], row]
    )
    np.testing.assert_array_equal(
        parsed(line(3, outdoor=-7.0), system).external, [2.0, -7.0, TARIFF[row], PEOPLE[row], row]
    )
    np.testing.assert_array_equal(
        parsed(line(3, clock=1), system).external, [2.0, OUTDOOR[1], TARIFF[1], PEOPLE[1], 1]
    )
    np.testing.assert_array_equal(
        given_external([2.0, 1.0, 0.1, 3.0], system, 3), [2.0, 1.0, 0.1, 3.0, row], "in order, without clock"
    )


def test_after_the_end_of_the_series_the_values_must_be_given():
    system = policy().system
    late = len(OUTDOOR) - START + 1
    assert parsed(line(late - 1), system).external is not None
    request = parsed(line(late), system)
    assert (
        request.external is None
        and "outdoor is missing, and the series of the system has no row 30" in request.fault
    )
    given = parsed(line(late, outdoor=3.0, tariff=0.3, people=1.0), system).external
    np.testing.assert_array_equal(given, [2.0, 3.0, 0.3, 1.0, 30])


@pytest.mark.parametrize(
    ("external", "fault"),
    [
        ({"outdoor": 99.0}, "external.outdoor must lie between -40 and 40"),
        ({"wind": 1.0}, "more fields"),
        ({"clock": 1.5}, "whole number of steps"),
        ({"clock": True}, "whole number of steps"),
    ],
)
def test_wrong_inputs_are_faults(external, fault):
    request = parsed(line(1, **external), policy().system)
    assert request.state is None and fault in request.fault


def test_a_stream_goes_on_over_a_gap_with_the_series_and_is_replayed_from_its_ledger(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Sharer(policy(), 1, budget=1.0, ledger=path, resolution=0.0) as sharer:
        sharer.share(INDOOR, {"power": 2.0})
        sharer.share(INDOOR, {"power": 1.5, "outdoor": -3.0}, step=4)
        entries = [sharer.ledger[step]["external"] for step in (1, 2, 3, 4)]
        spent = sharer.accountant.total()
    rows = np.arange(START, START + 4)
    np.testing.assert_allclose(np.array(entries)[:, 0], [2.0, 2.0, 2.0, 1.5])
    np.testing.assert_allclose(np.array(entries)[:3, 1], OUTDOOR[rows[:3]])
    assert entries[3][1] == -3.0
    np.testing.assert_array_equal(np.array(entries)[:, 4], rows)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "people are at home: nobody else reads that"
    with Sharer(policy(), 1, budget=1.0, ledger=path, resolution=0.0) as again:
        assert again.next_step == 5 and again.accountant.total() == pytest.approx(spent, rel=1e-12)
        with pytest.raises(Fault, match="people must be finite"):
            again.skip({"power": 1.0, "people": np.nan})


def test_what_nobody_measures_need_not_be_given():
    """The releases of two streams of a building, one with the envelope and one without, are the same."""
    with jax.enable_x64(True):
        sharing = GaussianNoise(Building(), jnp.asarray([0.3]))
    made = []
    for envelope in ({}, {"envelope": 15.0}):
        numbers = np.random.default_rng(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(step_program, "_coins", lambda n=numbers: n.integers(0, 2**32, 2, np.uint32))
            with Sharer(sharing, 1, budget=1.0, resolution=0.0, seed=5) as sharer:
                assert sharer.optional == ("envelope",)
                found = [sharer.share({"indoor": 20.0 + t, **envelope}, {"shift": 0.0}) for t in range(3)]
                made.append([one.shared for one in found])
                refused = sharer.share({**envelope}, {"shift": 0.0})
                assert "state.indoor is missing" in refused.receipt.fault
    assert made[0] == made[1] and None not in made[0]
    with jax.enable_x64(True):
        assert Sharer(Counterfactual(Building()), 1, resolution=0.0).optional == (), "it recovers all noise"


def test_private_series_are_kept_apart_in_a_file_of_transcripts(tmp_path, float64):
    system, path = flat(), tmp_path / "some.npz"
    sharing = GaussianNoise(system, jnp.asarray([0.3]))
    records = play_batch(nominal(system), sharing, 4, jnp.arange(6, dtype=jnp.int32), jr.key(0))
    save(records, path, system)
    with np.load(path) as file:
        assert not np.any(file["external"][..., 3]) and np.any(file["external"][..., 1])
        np.testing.assert_array_equal(file["private"][0, :, 0], PEOPLE[START : START + 4])
        public = {name: file[name] for name in file.files if name != "private"}
    again = load(path, system, sharing)
    np.testing.assert_array_equal(again.public.external, records.public.external)
    np.savez(path, **public)
    with pytest.raises(TranscriptError, match=r"private series \(people\)"):
        load(path, system, sharing)


def test_a_recording_has_its_own_weather_or_that_of_the_system():
    indoor = np.array([20.0, 20.5, 21.0, 20.7])
    known = {"indoor": indoor, "power": indoor - 18.0}
    (found,) = bind(flat(), read_recording(known, flat())).stretches
    rows = np.arange(START, START + 4)
    np.testing.assert_allclose(found.external[:, 1], OUTDOOR[rows], rtol=1e-6)
    np.testing.assert_array_equal(found.external[:, 4], rows)
    recording = read_recording(known | {"T_out": indoor - 25.0}, flat(), {"outdoor": "T_out"})
    (found,) = bind(flat(), recording).stretches
    np.testing.assert_array_equal(found.external[:, 1], indoor - 25.0)
    np.testing.assert_allclose(found.external[:, 2], TARIFF[rows], rtol=1e-6)


def test_where_a_recording_tells_the_time_and_all_series_its_clock_is_the_wall_clock():
    indoor = np.array([20.0, 20.5, 21.0])
    times = ["2026-01-07 22:00", "2026-01-07 23:00", "2026-01-08 00:00"]
    known = {"time": times, "indoor": indoor, "power": indoor - 18.0, "people": [1, 1, 2]}
    recording = read_recording(known | {"outdoor": [1, 2, 3], "tariff": [0.1, 0.2, 0.3]}, flat())
    (found,) = bind(flat(), recording).stretches
    np.testing.assert_array_equal(found.external[:, 4], [22, 23, 24])
    series = recording.series("outdoor", "tariff", start=1)
    assert (series.names, series.start, series.hour) == (("outdoor", "tariff"), 1, 22.0)
    np.testing.assert_array_equal(series.values[:, 0], [1.0, 2.0, 3.0])
