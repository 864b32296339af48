"""Files as people have them: columns by other names, several individuals, and every kind of mistake."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import veil
from tests.recordings import simulated as made
from veil.recordings import RecordingError, read_recording, read_recordings
from veil.recordings.recording import what_was_read


@pytest.fixture
def drive():
    return made.drive(made.DRIVERS[0], 12, np.random.default_rng(0))


def columns(states, ahead, **changes):
    times = np.round(made.DT * np.arange(len(ahead)), 6)
    found = {"t": times, "v_lead": ahead, "v_fol": states[:, 0], "gap": states[:, 1]}
    return {name: value for name, value in {**found, **changes}.items() if value is not None}


def test_only_what_the_system_uses_is_asked_for(tmp_path, drive):
    states, ahead = drive
    path = made.write(tmp_path / "drive.csv", columns(*drive))
    log = read_recording(path, veil.systems.Platoon(), made.COLUMNS)
    np.testing.assert_array_equal(np.stack([log["speed"], log["spacing"]], axis=1), states)
    np.testing.assert_array_equal(log["automated_speed"], ahead)
    assert (log.name, log.rows, log.stretches, log.clock) == ("drive.csv", 12, ((0, 12),), True)
    assert set(log.signals) == {"speed", "spacing", "automated_speed"} and log.step == pytest.approx(0.2)
    coloured = read_recording(path, veil.systems.ColouredPlatoon(), made.COLUMNS)
    assert "acceleration_error" not in coloured.signals


def test_columns_with_the_names_of_the_fields_need_no_mapping(tmp_path, drive):
    states, ahead = drive
    named = {
        "speed": states[:, 0],
        "Spacing [m]": states[:, 1],
        "automated speed": ahead,
        "leader_speed": ahead + 1,
    }
    log = read_recording(made.write(tmp_path / "drive.csv", named), veil.systems.Platoon())
    np.testing.assert_array_equal(log["leader_speed"], ahead + 1)
    np.testing.assert_array_equal(log["spacing"], states[:, 1])
    assert not log.clock and log.times is None


def test_rows_are_chosen_and_individuals_told_apart(tmp_path, drive):
    states, ahead = drive
    twice = {
        "pair": np.repeat([3, 7], 12),
        "kind": ["car"] * 24,
        **{name: np.tile(value, 2) for name, value in columns(states, ahead).items()},
    }
    path, platoon = made.write(tmp_path / "drives.csv", twice), veil.systems.Platoon()
    one = read_recording(path, platoon, made.COLUMNS, where={"pair": "7.0", "kind": "car"})
    assert (one.name, one.rows) == ("pair=7.0, kind=car", 12)
    both = read_recordings(path, platoon, made.COLUMNS, each="pair")
    assert [log.name for log in both] == ["pair=3", "pair=7"]
    assert both[1].lines.tolist() == list(range(14, 26))
    with pytest.raises(RecordingError, match="--where pair=7 or read all with --each pair"):
        read_recording(path, platoon, made.COLUMNS)
    interleaved = {name: np.asarray(value).reshape(2, 12).T.ravel() for name, value in twice.items()}
    mixed = made.write(tmp_path / "mixed.csv", interleaved)
    with pytest.raises(RecordingError, match="--each pair"):
        read_recording(mixed, platoon, made.COLUMNS)
    again = read_recordings(mixed, platoon, made.COLUMNS, each="pair")
    np.testing.assert_array_equal(again[0]["speed"], states[:, 0])


def test_an_individual_without_rows_is_left_out_and_named(drive):
    rows = columns(*drive)
    pairs = [7] * 11 + [8]
    found = read_recordings({"pair": pairs, **rows}, veil.systems.Platoon(), made.COLUMNS, each="pair")
    assert [(log.name, log.rows) for log in found] == [("pair=7", 11)]
    assert "1 individual with too few rows was left out (pair=8)." in found[0].notes
    with pytest.raises(RecordingError, match="no individual has two rows"):
        read_recordings({"pair": range(12), **rows}, veil.systems.Platoon(), made.COLUMNS, each="pair")


def test_mistakes_in_the_columns_are_told_with_a_guess(tmp_path, drive):
    path = made.write(tmp_path / "drive.csv", columns(*drive))
    platoon = veil.systems.Platoon()
    with pytest.raises(RecordingError, match=r"no column 'v_foll' for speed in m/s.*Did you mean 'v_fol'\?"):
        read_recording(path, platoon, {**made.COLUMNS, "speed": "v_foll"})
    with pytest.raises(
        RecordingError, match=r"no column 'automated_speed'.*--columns automated_speed=COLUMN"
    ):
        read_recording(path, platoon, {"speed": "v_fol", "spacing": "gap"})
    every = r"--columns speed=COLUMN spacing=COLUMN automated_speed=COLUMN"
    with pytest.raises(
        RecordingError,
        match=f"no column 'speed' for speed in m/s, nor for spacing, automated_speed;.*{every}",
    ):
        read_recording(path, platoon)
    with pytest.raises(RecordingError, match=r"no field 'sped'. Did you mean 'speed'\?"):
        read_recording(path, platoon, {"sped": "v_fol"})
    with pytest.raises(RecordingError, match="no column 'pair' to choose rows by"):
        read_recording(path, platoon, made.COLUMNS, where={"pair": "3"})
    with pytest.raises(RecordingError, match="no row with t=77"):
        read_recording(path, platoon, made.COLUMNS, where={"t": "77"})
    with pytest.raises(RecordingError, match="no column 'stamp' for the time"):
        read_recording(path, platoon, made.COLUMNS, settings=veil.ReadSettings(time="stamp"))


@pytest.mark.parametrize(
    ("times", "hint"),
    [
        (0.1 * np.arange(12), r"step of 0.1 s in 't', and the system's is 0.2 s. Keep one row in 2"),
        (200.0 * np.arange(12), r"If the times are in ms, say --time-unit ms"),
        (0.3 * np.arange(12), r"Resample"),
        (np.zeros(12), r"line 3: the time 't' is that of line 2, and other values differ"),
        (
            0.2 * np.arange(12) + 0.03 * (np.arange(12) % 2),
            r"line 4: the times are irregular: 5 of 11 steps",
        ),
        (0.2 * np.arange(12)[np.r_[:6, 5:11]], r"line 8: the time 't' is that of line 7, and other values"),
    ],
    ids=["half step", "milliseconds", "odd step", "still", "jitter", "twice"],
)
def test_times_that_do_not_fit_are_told_with_their_line(tmp_path, drive, times, hint):
    path = made.write(tmp_path / "drive.csv", columns(*drive, t=times))
    with pytest.raises(RecordingError, match=hint):
        read_recording(path, veil.systems.Platoon(), made.COLUMNS)


def test_a_recording_without_a_system_keeps_its_names_and_units_and_is_converted_when_it_is_used():
    rows = np.arange(30.0)
    file = {
        "t [s]": 0.2 * rows,
        "Speed [km/h]": 54.0 + rows,
        "spacing (m)": 20.0 + 0.1 * rows,
        "note": ["a"] * 30,
    }
    log = read_recording({**file, "automated_speed": np.full(30, 15.0)})
    assert set(log.signals) == {"Speed", "spacing", "automated_speed"}
    assert log.signals["Speed"].unit == "km/h" and log.step == pytest.approx(0.2)
    named = read_recording({**file, "automated_speed": np.full(30, 15.0)}, columns={"speed": "Speed"})
    assert set(named.signals) == {"speed"}
    with pytest.raises(RecordingError, match="no column for spacing"):
        veil.measure(veil.systems.Platoon(), named)


def test_a_drive_in_other_units_gives_the_posterior_of_the_same_drive(float64):
    """Converted once, whether it was read for the system or not."""
    states, ahead = made.drive(made.DRIVERS[1], 40, np.random.default_rng(1))
    rows = {
        "speed [km/h]": 3.6 * states[:, 0],
        "spacing [cm]": 100.0 * states[:, 1],
        "automated_speed_kmh": 3.6 * ahead,
    }
    columns = {"speed": "speed", "spacing": "spacing", "automated_speed": "automated_speed_kmh"}
    platoon = veil.systems.Platoon()
    expected = made.softmax(made.drive_log_likelihoods(states, ahead).sum(axis=0))
    for system in (platoon, None):
        found = veil.measure(platoon, read_recording(rows, system, columns))
        np.testing.assert_allclose(found.masses, expected, atol=1e-9)


def test_the_step_of_converted_values_is_converted_too():
    speeds = np.round(54.0 + np.random.default_rng(0).normal(0.0, 3.0, 60), 1)
    rows = {"speed [km/h]": speeds, "spacing": speeds, "automated_speed": speeds / 10.0}
    found = read_recording(rows, veil.systems.Platoon()).signals["speed"]
    assert found.step == pytest.approx(0.1 / 3.6) and (found.given, found.unit) == ("km/h", "m/s")
    np.testing.assert_allclose(found.values, speeds / 3.6, rtol=1e-12)


ZONES = ("Europe/Berlin", "America/New_York", "Australia/Sydney", "America/Santiago", "Asia/Jerusalem")


@pytest.mark.parametrize("zone", ZONES)
def test_every_change_of_a_clock_is_asked_for_and_understood_with_its_zone(zone):
    """Twelve hours around each change of two years, by the clock of the zone; the truth is UTC."""
    hours = [datetime(2023, 6, 1, tzinfo=UTC) + timedelta(hours=k) for k in range(2 * 365 * 24)]
    offsets = [hour.astimezone(ZoneInfo(zone)).utcoffset() for hour in hours]
    changes = [k for k in range(1, len(hours)) if offsets[k] != offsets[k - 1]]
    assert len(changes) == 4
    for change in changes:
        around = hours[change - 6 : change + 6]
        shown = [hour.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M") for hour in around]
        rows = {"time": shown, "level": np.arange(12.0)}
        with pytest.raises(RecordingError, match="may be daylight saving"):
            read_recording(rows)
        for order in (1, -1):  # the newest may come first
            turned = {name: list(values)[::order] for name, values in rows.items()}
            found = read_recording(turned, settings=veil.ReadSettings(time_zone=zone))
            assert found.stretches == ((0, 12),) and found["level"].tolist() == list(range(12))
            assert found.times is not None and found.times.tolist() == [3600.0 * k for k in range(12)]


def test_what_was_read_is_shown_with_units_and_ranges(tmp_path, drive):
    path = made.write(tmp_path / "drive.csv", columns(*drive))
    shown = str(read_recording(path, veil.systems.Platoon(), made.COLUMNS))
    assert "12 rows, 1 stretch, steps of 0.2 s" in shown
    assert f"{drive[0][:, 0].min():g}" in shown and "unit assumed" in shown and "v_fol" in shown


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(RecordingError, match="no such file"):
        read_recording(tmp_path / "drive.csv", veil.systems.Platoon())
    with pytest.raises(RecordingError, match="cannot be read"):
        read_recording(tmp_path, veil.systems.Platoon())
    (tmp_path / "binary.csv").write_bytes(b"\x81\x00\x8d\xff")
    with pytest.raises(RecordingError, match="cannot be read"):
        read_recording(tmp_path / "binary.csv", veil.systems.Platoon())
    with pytest.raises(RecordingError, match="a int is no recording"):
        read_recording(3)


def test_the_table_says_in_which_zone_times_are_shown_where_offsets_change():
    stamps = ["2025-10-26T02:00:00+02:00", "2025-10-26T02:00:00+01:00", "2025-10-26T03:00:00+01:00"]
    found = read_recording({"time": stamps, "indoor": [20.0, 20.5, 20.1]})
    (row,) = (row for row in what_was_read([found]).rows if row[0] == "time")
    assert row[4:6] == ("2025-10-26 02:00:00+02:00", "2025-10-26 04:00:00+02:00")
    assert row[-1] == "with their zones; shown in that of the first row"
    alike = read_recording({"time": ["2025-10-26T00:00Z", "2025-10-26T01:00Z"], "indoor": [20.0, 20.5]})
    assert what_was_read([alike]).rows[0][-1] == "with their zones"
