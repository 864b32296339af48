"""The four walks of `make house` on this tree.

Each takes the trace, and is run in a process of its own.
"""

import sys

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr

import veil
from veil.cli.main import main
from veil.learners.design import initial_policy
from veil.problem import Problem
from veil.registry import LEARNERS
from veil.settings import AuditSettings, PolicyDesign, TrainSettings
from veil.systems.scenarios import nominal

SYSTEM = veil.systems.Gain()
POLICY = veil.policies.GaussianNoise(SYSTEM, jnp.array([0.2]))


def live(trace):
    """Reading to release: one step of an open stream, and what its compiled step consists of."""
    sharer = trace.run(
        lambda: veil.Sharer(
            POLICY, secret=1, budget=1.0, ledger=trace.folder / "ledger.jsonl", resolution=0.0
        ),
        compiled=True,
    )
    trace.run(lambda: sharer.share({"level": 0.4}, {"push": 0.0}))


def update(trace):
    """One pathwise update of the default policy."""
    training = TrainSettings(episodes=4, updates=1)
    policy, learner = (
        initial_policy(PolicyDesign(), SYSTEM, 3, key=jr.key(0)),
        LEARNERS[training.learner]().build(training),
    )
    family = (Problem(nominal(SYSTEM), 3),)
    progress = learner.begin(family, policy, key=jr.key(1))
    trace.run(lambda: eqx.filter_jit(learner.update)(family, progress, key=jr.key(2)))


def episode(trace):
    """One audit, of as few short episodes as its statistics allow."""
    options = AuditSettings(steps=4, episodes=30, scenarios="none")
    trace.run(lambda: veil.audit(SYSTEM, POLICY, options))


def csv(trace):
    """`veil measure log.csv --system gain --policy noise --sd 0.2`."""
    log = trace.folder / "log.csv"
    log.write_text("level,push\n" + "".join(f"{0.1 * (-1) ** step},0.0\n" for step in range(30)))
    command = ["veil", "measure", str(log), "--system", "gain", "--policy", "noise", "--sd", "0.2"]
    sys.argv = [*command, "--out", str(trace.folder / "out")]

    def run():
        try:
            main()
        except SystemExit as end:
            assert end.code in (0, 3), end.code

    trace.run(run)
