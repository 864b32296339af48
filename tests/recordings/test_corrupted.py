"""A CSV file that is damaged at random is read line by line as it stands, or refused in one sentence."""

import csv
import random
import re
from datetime import datetime, timedelta

import numpy as np
import pytest

import veil
from tests.recordings.awkward import HEATING, INDOOR, MONDAY, OUTDOOR
from veil.recordings import RecordingError, read_recording

HEADER = ("time", "indoor", "outdoor", "heating")
COLUMNS = {name: name for name in HEADER[1:]}
SIGNS = "0123456789.,;-+eE \"'\t\n#xN:TZ/[]°\r_"
WORDS = (
    "",
    "NaN",
    "n/a",
    "-",
    "?",
    "true",
    "-999",
    "inf",
    "1e300",
    "1_0",
    "12,5",
    '"3.5"',
    "0x10",
    "٣",
    "1.2.3",
)
ROUNDS = 120  # per seed
LINE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def original():
    rows = zip(INDOOR, OUTDOOR, HEATING, strict=True)
    lines = [",".join(HEADER)]
    for k, row in enumerate(rows):
        lines.append(",".join([(MONDAY + timedelta(hours=k)).isoformat(), *map(str, row)]))
    return "\n".join(lines) + "\n"


def damaged(text, rng):
    """One to three random accidents."""
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(text))
        lines = text.split("\n")
        row = rng.randrange(len(lines))
        kind = rng.randrange(9)
        if kind == 0:
            text = text[:place] + rng.choice(SIGNS) + text[place + 1 :]
        elif kind == 1:
            text = text[:place] + rng.choice(SIGNS) + text[place:]
        elif kind == 2:
            text = text[:place] + text[place + rng.randint(1, 3) :]
        elif kind == 3:
            text = text[: max(place, 1)]
        elif kind == 4:
            text = "\n".join(lines[:row] + lines[row + 1 :])
        elif kind == 5:
            text = "\n".join([*lines[: row + 1], lines[row], *lines[row + 1 :]])
        elif kind == 6:
            other = rng.randrange(len(lines))
            text = "\n".join(lines[{row: other, other: row}.get(k, k)] for k in range(len(lines)))
        else:
            words = lines[row].split(",")
            words[rng.randrange(len(words))] = rng.choice(WORDS)
            text = "\n".join([*lines[:row], ",".join(words), *lines[row + 1 :]])
        text = text or "\n"
    return text


def stands(line):
    """What a line of the file says: the words in it, by the rules of CSV and nothing else."""
    return next(csv.reader([line]), [])


def moment(word):
    """Seconds of an ISO time after the first row."""
    when = datetime.fromisoformat(word.strip())
    return (when.replace(tzinfo=None) - MONDAY).total_seconds() - (
        when.utcoffset() or timedelta()
    ).total_seconds()


@pytest.mark.parametrize("seed", range(4))
def test_every_row_that_is_read_stands_in_the_file_and_nothing_else_is_read(tmp_path, seed):
    rng, read, refused = random.Random(seed), 0, 0
    path = tmp_path / "house.csv"
    for _ in range(ROUNDS):
        text = damaged(original(), rng)
        path.write_text(text, encoding="utf-8", newline="")
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        try:
            found = read_recording(path, columns=COLUMNS)
        except RecordingError as error:
            refused += 1
            message = str(error)
            assert "\n" not in message and message.endswith((".", "?")), text
            continue
        read += 1
        header = stands(lines[int(np.argmax([bool(line.strip()) and line[0] != "#" for line in lines]))])
        places = {
            name: [word.strip() for word in header].index(one.header) for name, one in found.signals.items()
        }
        assert found.times is not None or "no column of times" in " ".join(found.notes), text
        for row, line in enumerate(found.lines):
            words = stands(lines[line - 1])
            for name, place in places.items():
                word = words[place].strip()
                assert LINE.fullmatch(word) or word.lower() in ("true", "false"), text
                assert found[name][row] == (
                    float(word) if LINE.fullmatch(word) else word.lower() == "true"
                ), text
            if found.times is not None:
                start = moment(stands(lines[found.lines[0] - 1])[header.index(found.time_header)])
                assert found.times[row] == moment(words[header.index(found.time_header)]) - start, text
        for begin, end in found.stretches:
            assert end - begin >= 2
            if found.times is not None and found.step is not None:
                np.testing.assert_allclose(np.diff(found.times[begin:end]), found.step, rtol=0.02)
        # A good line is left out only if the notes say so.
        body = [number for number, line in enumerate(lines, 1) if len(stands(line)) == 4][1:]
        assert set(body) <= set(found.lines.tolist()) or len(found.notes) > 0, text
    assert read > 10 and refused > 10


def test_the_file_itself_is_read_as_it_is(tmp_path):
    path = tmp_path / "house.csv"
    path.write_text(original(), encoding="utf-8")
    found = veil.read_recording(path)
    assert [found[name].tolist() for name in COLUMNS] == [INDOOR, OUTDOOR, HEATING] and not found.notes
