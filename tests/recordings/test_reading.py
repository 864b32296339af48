"""Files as people have them: columns by other names, several recordings in one, and every kind of mistake."""

import numpy as np
import pytest

import veil
from tests.recordings import simulated as made
from veil.recordings.reader import LogError, read_recordings


@pytest.fixture
def drive():
    return made.drive(made.DRIVERS[0], 12, np.random.default_rng(0))


def columns(states, ahead, **changes):
    times = np.round(made.DT * np.arange(len(ahead)), 6)
    found = {"t": times, "v_lead": ahead, "v_fol": states[:, 0], "gap": states[:, 1]}
    return {name: value for name, value in {**found, **changes}.items() if value is not None}


def test_only_what_the_system_uses_is_read_and_the_rest_holds_public_values(tmp_path, drive):
    states, ahead = drive
    path = made.write(tmp_path / "drive.csv", columns(*drive))
    (log,) = read_recordings(path, veil.systems.Platoon(), made.COLUMNS)
    np.testing.assert_array_equal(log.states, states)
    np.testing.assert_array_equal(log.external[:, 1], ahead)
    assert np.all(log.external[:, [0, 2]] == (15.0, 20.0))
    assert (log.name, log.steps, log.seen, log.checked) == ("drive.csv", 12, (True, True), True)
    (coloured,) = read_recordings(path, veil.systems.ColouredPlatoon(), made.COLUMNS)
    assert coloured.seen == (True, True, False)


def test_columns_with_the_names_of_the_fields_need_no_mapping(tmp_path, drive):
    states, ahead = drive
    named = {
        "speed": states[:, 0],
        "spacing": states[:, 1],
        "automated_speed": ahead,
        "leader_speed": ahead + 1,
    }
    (log,) = read_recordings(made.write(tmp_path / "drive.csv", named), veil.systems.Platoon())
    np.testing.assert_array_equal(log.external[:, 0], ahead + 1)
    assert not log.checked


def test_rows_are_chosen_and_recordings_told_apart(tmp_path, drive):
    states, ahead = drive
    twice = {
        "pair": np.repeat([3, 7], 12),
        "kind": ["car"] * 24,
        **{name: np.tile(value, 2) for name, value in columns(states, ahead).items()},
    }
    path = made.write(tmp_path / "drives.csv", twice)
    (one,) = read_recordings(path, veil.systems.Platoon(), made.COLUMNS, where={"pair": "7.0", "kind": "car"})
    assert (one.name, one.steps) == ("pair=7.0, kind=car", 12)
    both = read_recordings(path, veil.systems.Platoon(), made.COLUMNS, each="pair")
    assert [log.name for log in both] == ["pair=3", "pair=7"]
    with pytest.raises(LogError, match="--where pair=7 or measure all with --each pair"):
        read_recordings(path, veil.systems.Platoon(), made.COLUMNS)


def test_semicolons_tabs_and_marks_of_editors_are_understood(tmp_path, drive):
    text = made.write(tmp_path / "drive.csv", columns(*drive)).read_text()
    (expected,) = read_recordings(tmp_path / "drive.csv", veil.systems.Platoon(), made.COLUMNS)
    for number, separator in enumerate(";\t"):
        path = tmp_path / f"{number}.csv"
        path.write_text("\ufeff" + text.replace(",", separator) + "\n\n", encoding="utf-8")
        (found,) = read_recordings(path, veil.systems.Platoon(), made.COLUMNS)
        np.testing.assert_array_equal(found.states, expected.states)


def test_mistakes_in_the_columns_are_told_with_a_guess(tmp_path, drive):
    path = made.write(tmp_path / "drive.csv", columns(*drive))
    platoon = veil.systems.Platoon()
    with pytest.raises(LogError, match=r"no column 'v_foll' for speed in m/s.*Did you mean 'v_fol'\?"):
        read_recordings(path, platoon, {**made.COLUMNS, "speed": "v_foll"})
    with pytest.raises(LogError, match=r"no column 'automated_speed'.*--columns automated_speed=COLUMN"):
        read_recordings(path, platoon, {"speed": "v_fol", "spacing": "gap"})
    with pytest.raises(LogError, match=r"no field 'sped'. Did you mean 'speed'\?"):
        read_recordings(path, platoon, {"sped": "v_fol"})
    with pytest.raises(LogError, match="no column 'pair' to choose rows by"):
        read_recordings(path, platoon, made.COLUMNS, where={"pair": "3"})
    with pytest.raises(LogError, match="no row with t=77"):
        read_recordings(path, platoon, made.COLUMNS, where={"t": "77"})
    with pytest.raises(LogError, match="no column 'stamp' for the time"):
        read_recordings(path, platoon, made.COLUMNS, time="stamp")


def words(values, place, word):
    found = [str(value) for value in values]
    found[place] = word
    return found


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        (lambda s, a: {"gap": words(s[:, 1], 4, "n/a")}, r"line 6: 'gap' is 'n/a', not a number"),
        (lambda s, a: {"gap": words(s[:, 1], 4, "")}, r"line 6: 'gap' is empty"),
        (lambda s, a: {"v_fol": words(s[:, 0], 2, "nan")}, r"line 4: 'v_fol' is 'nan'"),
        (lambda s, a: {"v_fol": 3.6 * s[:, 0] + 60}, r"lies between -1 and 60. Is the unit right"),
        (
            lambda s, a: {"t": 0.1 * np.arange(12)},
            r"step of 0.1 in 't', and the system's is 0.2. Keep one row in 2",
        ),
        (lambda s, a: {"t": 200.0 * np.arange(12)}, r"look like milliseconds"),
        (lambda s, a: {"t": 0.3 * np.arange(12)}, r"Resample"),
        (
            lambda s, a: {"t": np.r_[0.2 * np.arange(6), 2 + 0.2 * np.arange(6)]},
            r"line 8: 1 after the row before",
        ),
        (lambda s, a: {"t": np.zeros(12)}, r"line 3: the time 't' does not grow"),
    ],
    ids=["word", "empty", "nan", "unit", "half step", "milliseconds", "odd step", "gap", "still"],
)
def test_mistakes_in_the_numbers_are_told_with_their_line(tmp_path, drive, changes, hint):
    path = made.write(tmp_path / "drive.csv", columns(*drive, **changes(*drive)))
    with pytest.raises(LogError, match=hint):
        read_recordings(path, veil.systems.Platoon(), made.COLUMNS)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "holds no rows"),
        ("t,v_lead,v_fol,gap\n", "holds no rows"),
        ("t,v_lead,v_fol,gap\n0,1,1,9\n", "one row is no recording"),
        ("t,gap,v_fol,gap\n0,1,1,9\n0.2,1,1,9\n", "two columns 'gap'"),
        ("t,v_lead,v_fol,gap\n0,1,1,9\n0.2,1,1\n", "line 3: 3 values for 4 columns"),
    ],
)
def test_files_that_are_no_recordings_are_refused(tmp_path, text, hint):
    path = tmp_path / "drive.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LogError, match=hint):
        read_recordings(path, veil.systems.Platoon(), made.COLUMNS)


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(LogError, match="no such file"):
        read_recordings(tmp_path / "drive.csv", veil.systems.Platoon())
    with pytest.raises(LogError, match="cannot be read"):
        read_recordings(tmp_path, veil.systems.Platoon())
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(LogError, match="cannot be read"):
        read_recordings(tmp_path / "binary.csv", veil.systems.Platoon())
