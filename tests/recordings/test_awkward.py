"""Awkward recordings are read as they are, or refused in one sentence; never misread."""

import sys

import numpy as np
import pytest

from tests.command_lines import quick
from tests.command_lines import veil as command
from tests.recordings.awkward import CASES, HEATING, INDOOR, OUTDOOR, PAGE, table, written
from veil.recordings import RecordingError, read_recording

TITLES = [f"{place} {case.title}" for place, case in enumerate(CASES)]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("case", CASES, ids=TITLES)
def test_an_awkward_recording_is_read_as_it_is_or_refused(case):
    if case.needs:
        pytest.importorskip(case.needs)
    if case.error is not None:
        with pytest.raises(RecordingError) as caught:
            case.read()
        message = str(caught.value)
        assert case.error in message
        assert "\n" not in message and message.endswith(".") and len(message) < 400
        return
    found = case.read()
    truth = {"indoor": INDOOR, "outdoor": OUTDOOR, "heating": HEATING, **case.truth}
    rows = np.array(case.rows)
    for name, values in truth.items():
        np.testing.assert_allclose(found[name], np.array(values)[rows], rtol=1e-6, atol=1e-9, err_msg=name)
    lengths = tuple(stop - start for start, stop in found.stretches)
    assert lengths == (case.stretches or (len(rows),))
    if found.times is not None:
        jitter = 0.05 * 3600 * (rows % 2) if "time_tolerance" in case.settings else 0.0
        np.testing.assert_allclose(found.times, 3600.0 * (rows - rows[0]) + jitter, atol=1e-3)
    assert (found.times is None) == ("no times" in case.title)
    assert any(case.note in note for note in (*found.notes, ""))
    assert not case.note or any(case.note in note for note in found.notes)
    remarks = [remark for one in found.signals.values() for remark in one.remarks]
    assert not case.remark or case.remark in remarks
    assert [one.unit for one in found.signals.values()] == ["degC", "degC", "kW"]


FILES = [case for case in CASES if case.error is not None and not case.needs and "unequal" not in case.title]


@pytest.mark.parametrize("case", FILES, ids=[case.title for case in FILES])
def test_from_the_command_line_a_refusal_is_one_sentence_and_exit_code_two(case):
    source = case.make()
    with quick():
        code, out, err = command(
            "measure", source, "--system", "tests.recordings.awkward:house", *case.flags()
        )
    assert code == 2 and out == ""
    assert case.error is not None and case.error in err and err.count("\n") == 1 and "Traceback" not in err


def test_the_page_says_what_the_reader_does():
    for library in ("pandas", "polars", "pyarrow"):
        pytest.importorskip(library)
    assert len(CASES) >= 25
    assert written(PAGE.read_text(encoding="utf-8")) == table(), "run `python -m tests.recordings.awkward`"


def test_parquet_without_a_library_says_what_to_install(monkeypatch, tmp_path):
    (tmp_path / "house.parquet").write_bytes(b"PAR1")
    for name in ("pyarrow", "pyarrow.parquet", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RecordingError, match=r"pip install 'veil\[tables\]'"):
        read_recording("house.parquet")
