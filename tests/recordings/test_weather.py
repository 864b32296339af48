"""Weather and tariff from files: series of a system by name and unit, row by row."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from scipy import stats

import veil
from tests.flats import BODY, CAPACITY, OUTDOOR, PEOPLE, SD, START, TARIFF, Flat, flat
from tests.recordings import simulated as made
from veil.recordings import RecordingError, read_recording
from veil.recordings.bound import bind
from veil.settings import ReadSettings
from veil.systems import Series

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


HOUR, FIRST = timedelta(hours=1), datetime(2024, 3, 30, tzinfo=UTC)
BERLIN = ReadSettings(time_zone="Europe/Berlin")


def hours_since(first, begin, rows):
    """A temperature that tells its own instant: tenths of the hours since the first one."""
    return np.array([((begin + k * HOUR) - first) / HOUR / 10.0 for k in range(rows)])


def written(first, rows, how):
    """Instants as a file has them: in UTC, by the clock of Berlin, with its offset, or by a clock alone."""
    stamps = [first + k * HOUR for k in range(rows)]
    if how == "utc":
        return [f"{stamp:%Y-%m-%dT%H:%MZ}" for stamp in stamps]
    if how == "alone":
        return [f"{stamp:%Y-%m-%d %H:%M}" for stamp in stamps]
    local = [stamp.astimezone(ZoneInfo("Europe/Berlin")) for stamp in stamps]
    return [f"{stamp:%Y-%m-%d %H:%M}" if how == "berlin" else stamp.isoformat() for stamp in local]


def weather_from(first, rows, how, start=0):
    weather = {
        "outdoor": hours_since(first, first, rows),
        "tariff": np.full(rows, 0.3),
        "people": np.zeros(rows),
    }
    file = {"time": written(first, rows, how), **weather}
    read = read_recording(file, settings=BERLIN if how == "berlin" else None)
    return Flat(flat().prior, read.series(start=start))


def recorded(system, first, rows, how):
    indoor = np.full(rows, 20.0) + 0.1 * np.sin(np.arange(rows))
    file = {"time": written(first, rows, how), "indoor": indoor, "power": np.full(rows, 2.0)}
    return read_recording(file, system, settings=BERLIN if how == "berlin" else None)


@pytest.mark.parametrize("spring", [True, False])
@pytest.mark.parametrize("theirs", ["utc", "berlin", "offset"])
@pytest.mark.parametrize("ours", ["utc", "berlin", "offset"])
def test_weather_and_recording_meet_at_the_same_instant_over_daylight_saving(ours, theirs, spring):
    """Clocks go forward on 31 March and back on 27 October 2024, at 01:00 UTC."""
    first = FIRST if spring else datetime(2024, 10, 26, tzinfo=UTC)
    system, begin = weather_from(first, 96, theirs, start=5), first + 30 * HOUR
    bound = bind(system, recorded(system, begin, 40, ours))
    expected = hours_since(first, begin, 40)
    np.testing.assert_allclose(bound.stretches[0].external[:, 1], expected, atol=1e-5)
    np.testing.assert_array_equal(bound.stretches[0].external[:, 4], np.arange(30, 70))


def test_weather_that_begins_a_day_earlier_gives_the_posterior_of_its_own_rows(float64):
    days = {"time": [f"2024-01-{14 + k // 24} {k % 24:02d}:00" for k in range(48)]}
    weather = np.concatenate([OUTDOOR[:24] - 9.0, OUTDOOR[:24]])
    rest = {"tariff": np.full(48, 0.3), "people": np.concatenate([PEOPLE[:24], PEOPLE[:24]])}
    system = Flat(flat().prior, read_recording({**days, "outdoor": weather, **rest}).series())
    indoor, power = lived(12, OUTDOOR[6:18], PEOPLE[6:18])
    found = read_recording({"time": CLOCK, "indoor": indoor, "power": power}, system)
    assert any("by date and time; they run from 2024-01-14 00:00:00 to" in note for note in found.notes)
    expected = posterior(indoor, power, OUTDOOR[6:18], PEOPLE[6:18], slice(None))
    np.testing.assert_allclose(veil.measure(system, found).masses, expected, atol=1e-6)
    shifted = posterior(indoor, power, weather[6:18], PEOPLE[6:18], slice(None))
    assert np.abs(shifted - expected).max() > 0.1, "by the time of day it would be another one"


@pytest.mark.parametrize("begin", [-1, 60])
def test_series_that_do_not_cover_a_recording_are_refused_with_both_spans(begin):
    system = weather_from(FIRST, 96, "alone")
    found = recorded(system, FIRST + begin * HOUR, 40, "alone")
    first, last = FIRST + begin * HOUR, FIRST + (begin + 39) * HOUR
    spans = (
        f"runs from {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S}, and the series of the system "
        r"\(outdoor, people\) from 2024-03-30 00:00:00 to 2024-04-02 23:00:00, so that they do not cover it"
    )
    with pytest.raises(RecordingError, match=spans):
        bind(system, found)
    assert bind(system, recorded(system, FIRST + 56 * HOUR, 40, "alone")).steps == 40, "up to the last row"
    assert bind(system, recorded(system, FIRST, 40, "alone")).steps == 40, "from the first row on"


def test_dates_that_cannot_be_compared_are_refused_and_missing_ones_are_told():
    zoned, alone = weather_from(FIRST, 96, "utc"), weather_from(FIRST, 96, "alone")
    with pytest.raises(RecordingError, match=r"the other has none. Name the zone with --time-zone"):
        bind(zoned, recorded(zoned, FIRST, 40, "alone"))
    with pytest.raises(RecordingError, match=r"Name the zone where you read the series"):
        bind(alone, recorded(alone, FIRST, 40, "utc"))
    with pytest.raises(RecordingError, match=r"lies between two rows of the series .* every 3600 s"):
        bind(alone, recorded(alone, FIRST + 0.5 * HOUR, 40, "alone"))
    hours = {"time [h]": np.arange(40.0), "indoor": np.full(40, 20.0), "power": np.full(40, 2.0)}
    told = read_recording(hours, alone).notes
    assert any("the recording has no dates, so that both are taken to begin together" in one for one in told)
    told = read_recording(hours, flat(0)).notes
    assert any("the series have no dates, so that both are taken to begin together" in one for one in told)


def test_series_of_two_files_are_put_together_by_their_dates():
    def one(name, first, rows, start=0):
        file = {"time": written(first, rows, "alone"), name: hours_since(FIRST, first, rows)}
        return read_recording(file).series(name, start=start)

    both = one("a", FIRST, 30, start=8).beside(one("b", FIRST + 5 * HOUR, 40))
    assert both.names == ("a", "b") and both.rows == 25 and both.start == 3
    np.testing.assert_allclose(both.values[:, 0], both.values[:, 1])
    assert both.begins == (FIRST + 5 * HOUR).replace(tzinfo=None) and both.hour == 5.0
    turned = one("b", FIRST + 5 * HOUR, 40).beside(one("a", FIRST, 30))
    np.testing.assert_allclose(turned.values, np.asarray(both.values)[:, ::-1])
    assert both.starting(datetime(2024, 3, 30, 9)).start == 4
    for other, message in (
        (one("a", FIRST, 30), "a series is in both"),
        (one("b", FIRST + 30 * HOUR, 9), "no row is in both"),
        (Series({"b": np.zeros(30)}), "one has dates and the other has none"),
        (Series({"b": np.zeros(9)}, begins=datetime(2024, 3, 30), seconds=900.0), "every 900 s. Resample"),
    ):
        with pytest.raises(ValueError, match=message):
            one("a", FIRST, 30).beside(other)
    with pytest.raises(ValueError, match="is not there"):
        both.starting(datetime(2024, 3, 30))
    with pytest.raises(ValueError, match="have a row every 900 s, and a step of this system takes 3600 s"):
        Flat(flat().prior, Series(flat().series._columns(0, 30), seconds=900.0))


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
