"""Commands that build, read and write as always, but do not train or audit for long."""

import contextlib
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.random as jr
import pytest

from tests.reports.made_folders import SCORE, leaking, metrics
from veil.cli import main
from veil.learners.design import initial_policy
from veil.learners.run import METRICS
from veil.learners.training import Trained
from veil.results import Audit


def judged(system, policy, extent, **_):
    """In place of an audit: what is there to be audited was built, and over how many steps is kept."""
    assert policy.system.state_fields == system.state_fields
    return replace(leaking(), horizon=extent.steps)


def learned(settings, system, folder, *_):
    """In place of a training: the policy that it would begin with."""
    (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in metrics()))
    begun = initial_policy(settings.design, system, settings.steps, key=jr.key(0))
    return Trained(begun, SCORE, 1, 1, "all updates made")


@contextlib.contextmanager
def short():
    """No training, no audit and no pictures of one; all that stands around them is as always."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("veil.evaluation.audit.audit", judged)
        patch.setattr("veil.learners.training.train_run", learned)
        patch.setattr(Audit, "save_pictures", lambda *_: [])
        yield


def streamed(words, source):
    """`veil share`, which reads and writes bytes: what it wrote, and what it told its owner.

    Args:
        words: of the command line, from "share" on.
        source: file of the lines that it reads.
    """
    written, err = Path("released.jsonl"), io.StringIO()
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(sys, "stdin", io.TextIOWrapper(stack.enter_context(Path(source).open("rb"))))
        out = stack.enter_context(written.open("w"))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(jax.enable_x64(True))
        with contextlib.suppress(SystemExit):
            main.main(words)
    return written.read_text(), err.getvalue()
