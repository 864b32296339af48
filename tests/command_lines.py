"""Command lines inside the process of the tests: quick, and with everything that they print."""

import contextlib
import io

import jax
import pytest

from veil.cli import main


def veil(*arguments):
    """Exit code and output of a command line, in double precision as the program has it."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), jax.enable_x64(True):
        try:
            main.main([*map(str, arguments)])
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def quick():
    """Nothing is set for the other tests of the process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "prepare", lambda: None)
        yield
