"""Weather and tariff from files: series of a system by name and unit, row by row."""

import numpy as np
import pytest
from scipy import stats

import veil
from tests.flats import BODY, CAPACITY, OUTDOOR, PEOPLE, SD, START, TARIFF, Flat, flat
from tests.recordings import simulated as made
from veil.recordings import RecordingError, read_recording
from veil.recordings.bound import bind

LOSSES = np.asarray(flat().prior.secrets)[:, 0]
CLOCK = [f"2024-01-15 {6 + k:02d}:00" for k in range(12)]  # the flat begins at row 6, at six o'clock


def lived(rows, weather, people, seed=0):
    """Indoor temperature and power of twelve hours in the flat with the second loss."""
    rng = np.random.default_rng(seed)
    indoor, power = [20.0], 2.0 + rng.standard_normal(rows)
    for t in range(rows - 1):
        heat = power[t] - LOSSES[1] * (indoor[-1] - weather[t]) + BODY * people[t]
        indoor.append(indoor[-1] + heat / CAPACITY + SD * rng.standard_normal())
    return np.array(indoor), power


def posterior(indoor, power, weather, people, inside):
    """By the densities of the steps that lie in a stretch."""
    total = []
    for loss in LOSSES:
        mean = (
            indoor[:-1] + (power[:-1] - loss * (indoor[:-1] - weather[:-1]) + BODY * people[:-1]) / CAPACITY
        )
        total.append(stats.norm.logpdf(indoor[1:], mean, SD)[inside].sum())
    return made.softmax(np.array(total))


def test_recorded_weather_in_another_unit_and_a_gap(float64):
    weather, people = OUTDOOR[:12] - 3.0, PEOPLE[:12]
    indoor, power = lived(12, weather, people)
    keep = [0, 1, 2, 3, 4, 7, 8, 9, 10, 11]
    file = {"time": CLOCK, "indoor": indoor, "power [W]": 1000.0 * power, "T out [°F]": 1.8 * weather + 32.0}
    file = {name: np.asarray(column)[keep] for name, column in {**file, "people": people}.items()}
    found = read_recording(file, flat(), {"outdoor": "T out"})
    assert not any("Not recorded" in note for note in found.notes)
    bound = bind(flat(), found)
    np.testing.assert_allclose(bound.stretches[1].external[:, 1], weather[7:], atol=1e-9)
    np.testing.assert_array_equal(bound.stretches[1].external[:, 4], np.arange(13, 18))
    measured = veil.measure(flat(), found)
    expected = posterior(indoor, power, weather, people, [0, 1, 2, 3, 7, 8, 9, 10])
    np.testing.assert_allclose(measured.masses, expected, atol=1e-6)


def test_weather_that_is_not_recorded_is_that_of_the_system_row_by_row_and_this_is_said(float64):
    rows = np.arange(START, START + 12)
    indoor, power = lived(12, OUTDOOR[rows], PEOPLE[rows])
    keep = [0, 1, 2, 3, 4, 7, 8, 9, 10, 11]
    file = {"time": CLOCK, "indoor": indoor, "power": power}
    file = {name: np.asarray(column)[keep] for name, column in file.items()}
    found = read_recording(file, flat())
    assert any(
        f"Not recorded: outdoor, people. The series of the system are taken instead, from their row {START}"
        in note
        for note in found.notes
    )
    measured = veil.measure(flat(), found)
    expected = posterior(indoor, power, OUTDOOR[rows], PEOPLE[rows], [0, 1, 2, 3, 7, 8, 9, 10])
    np.testing.assert_allclose(measured.masses, expected, atol=1e-5)
    np.testing.assert_allclose(bind(flat(), found).stretches[1].external[:, 2], TARIFF[rows[7:]], rtol=1e-6)


def test_a_recording_that_begins_at_another_time_of_day_than_the_series_is_refused():
    indoor, power = lived(12, OUTDOOR, PEOPLE)
    found = read_recording(
        {"time": [f"2024-01-15 {k:02d}:00" for k in range(12)], "indoor": indoor, "power": power}
    )
    with pytest.raises(
        RecordingError, match=r"begins at 00:00, and the series of the system \(outdoor, people\) at 06:00"
    ):
        bind(flat(), found)
    assert bind(flat(0), found).stretches[0].external[0, 4] == 0.0
    long = {"indoor": np.full(30, 20.0), "power": np.full(30, 2.0)}
    with pytest.raises(RecordingError, match="end after row 29, where row 35 is needed"):
        bind(flat(), read_recording(long, flat()))
    nan = np.where(np.arange(12) == 5, np.nan, indoor)
    with pytest.raises(RecordingError, match="gaps and no times"):
        bind(flat(), read_recording({"indoor": nan, "power": power}, flat()))


def test_columns_of_a_file_become_series_in_the_units_of_the_fields():
    hours = np.arange(30)
    file = {
        "time": [f"2024-01-{15 + k // 24:02d} {k % 24:02d}:00" for k in hours],
        "Outdoor Temp [°F]": 1.8 * OUTDOOR + 32.0,
        "Price [ct/kWh]": 100.0 * TARIFF,
        "people": PEOPLE,
    }
    names = {"outdoor": "Outdoor Temp", "tariff": "Price", "people": "people"}
    weather = read_recording(file, columns=names)
    series = weather.series(fields=Flat.exogenous_fields, start=START)
    np.testing.assert_allclose(
        np.asarray(series.values), np.stack([OUTDOOR, TARIFF, PEOPLE], axis=1), rtol=1e-6
    )
    assert (series.names, series.start, series.hour) == (("outdoor", "tariff", "people"), START, 0.0)
    assert veil.check_system(Flat(flat().prior, series)).ok
    plain = weather.series("outdoor")
    np.testing.assert_allclose(np.asarray(plain.values)[:, 0], 1.8 * OUTDOOR + 32.0, rtol=1e-6)
    with pytest.raises(RecordingError, match="no column for sun"):
        weather.series("sun")
    with pytest.raises(RecordingError, match="has gaps: 2 stretches"):
        cut = {name: np.delete(np.asarray(column), 7) for name, column in file.items()}
        read_recording(cut, columns=names).series()
    wrong = {**file, "Outdoor Temp [°F]": 1.8 * OUTDOOR + 200.0}
    with pytest.raises(RecordingError, match="outdoor in degC lies between -40 and 40"):
        read_recording(wrong, columns=names).series(fields=Flat.exogenous_fields)
