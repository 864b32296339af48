"""Each fault a contributor can make is planted, and must be found by the rule that is about it."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veil.attacks import Attack, Evidence
from veil.beliefs import KalmanBelief
from veil.checks.attack import check_attack
from veil.checks.findings import Rule, Support, examined
from veil.checks.learner import check_learner
from veil.checks.measure import check_measure
from veil.checks.policy import check_policy, density
from veil.laws import Finite, Gaussian, GridGaussian, Kernel, MemoryKernel, Mixture, Point
from veil.leakage import estimate_per_component
from veil.learners import Learner, Progress
from veil.policies import PlainPolicy, Policy, Transport
from veil.systems import Gain, System, with_resolution

COUNT = itertools.count()


def rules(report, level="error"):
    return {finding.rule for finding in report.findings if finding.level == level}


class Made(Kernel):
    law: Any = eqx.field(static=True)

    def __call__(self, secret, state):
        return self.law(state)


class Plain(PlainPolicy):
    """Any law of the state."""

    system: System
    law: Any = eqx.field(static=True)

    def kernel(self, features, external, time):
        return Made(self.law)


class Counting(Policy):
    """Its features depend on how often it was traced: nobody can compute them again."""

    system: System

    def start(self, *, key):
        return KalmanBelief.start(self.system)

    def features(self, belief, external, time):
        return belief.log_masses + float(next(COUNT))

    def kernel(self, features, external, time):
        return Made(lambda state: Gaussian(state, jnp.ones((1, 1), state.dtype)))


class Remembered(MemoryKernel):
    def release_law(self, secret, state, memory):
        return Point(memory)


class Blurting(PlainPolicy):
    """Remembers its own state and shares it."""

    system: System

    has_memory = True

    def init_memory(self, secret, state, *, key):
        return state

    def kernel(self, features, external, time):
        return Remembered()

    def update_memory(self, memory, secret, state, external, after, *, key):
        return after

    def coast_memory(self, memory, external):
        return memory


def test_a_release_of_the_wrong_size_or_kind_is_found():
    wide = check_policy(Plain(Gain(), lambda state: Point(jnp.concatenate([state, state]))))
    assert rules(wide) == {"law"} and len(wide.rules) == 1  # nothing else is looked at
    assert rules(check_policy(Plain(Gain(), lambda state: state))) == {"law"}
    assert not check_policy("transport").ok


def test_what_cannot_be_computed_again_is_found():
    report = check_policy(Counting(Gain()))
    assert {"pure", "replay"} <= rules(report), str(report)


def test_a_memory_that_tells_the_secret_is_told():
    report = check_policy(Blurting(Gain()))
    assert report.ok and rules(report, "warning") == {"coupled"}, str(report)


class Forgetful(PlainPolicy):
    """Releases from a memory, and does not say so: audits would take it for public."""

    system: System

    def init_memory(self, secret, state, *, key):
        return state

    def kernel(self, features, external, time):
        return Remembered()


def test_a_memory_that_is_not_declared_is_found():
    report = check_policy(Forgetful(Gain()))
    assert rules(report) == {"law"} and "has_memory" in str(report)
    with pytest.raises(TypeError, match="private memory"):
        Remembered()(jnp.zeros(1), jnp.zeros(1))


def test_a_density_that_is_not_that_of_the_draws_is_found():
    unit, half = np.eye(2)[None], np.log([[0.5, 0.5]])
    full = Gaussian(jnp.zeros((1, 2)), jnp.asarray(unit + 0.5))
    assert not density(full) and not density(Gaussian(jnp.zeros((1, 2)), jnp.zeros((1, 2, 2))))
    assert density(Gaussian(jnp.zeros((1, 2)), jnp.asarray(unit)))
    atoms = jnp.zeros((1, 2, 1))
    assert density(Finite(atoms, jnp.asarray(half))) and not density(Finite(atoms, jnp.asarray(half + 0.1)))
    parts = Gaussian(jnp.asarray([[[0.0, 1.0], [2.0, 0.5]]]), jnp.asarray(np.stack([unit, 2.0 * unit], 1)))
    assert density(Mixture(jnp.asarray(half), parts))
    assert not density(
        Mixture(jnp.asarray(half), eqx.tree_at(lambda law: law.scale, parts, parts.scale + 0.5))
    )


class OffGrid(GridGaussian):
    """Draws a third of a step beside the points of the grid."""

    def sample(self, noise):
        return super().sample(noise) + self.grid[0] / 3.0


class Wider(GridGaussian):
    """Draws points of the grid, one and a half times as wide as it says."""

    def sample(self, noise):
        return GridGaussian(self.mean, 1.5 * self.scale, self.grid).sample(noise)


def test_draws_on_a_public_grid_are_compared_with_their_law(float64):
    """What is drawn is discrete: it has the moments of the law, not its slope."""
    mean, scale = jnp.asarray([[0.03, 1.0]]), jnp.asarray([[[0.3, 0.0], [0.1, 0.2]]])
    right = GridGaussian(mean, scale, (0.1, 0.2))
    assert density(right), density(right).reason
    assert "beside" in density(OffGrid(mean, scale, (0.1, 0.2))).reason
    for law in (Wider(mean, scale, (0.1, 0.2)), GridGaussian(mean, 0.1 * scale, (0.1, 0.2))):
        assert "mean and the covariance" in density(law).reason
    assert not density(GridGaussian(mean, jnp.swapaxes(scale, 1, 2), (0.1, 0.2)))


def test_a_policy_behind_a_sensor_keeps_the_contract():
    system = with_resolution(Gain(), 0.1)
    report = check_policy(Transport(system, jnp.asarray([0.2])))
    assert report.ok and not report.findings, str(report)


def test_an_exception_is_a_finding():
    def complain():
        raise KeyError("no such car")

    report = examined("it", "policy", {"fine": Rule(lambda: Support(True, "yes")), "bad": Rule(complain)})
    assert rules(report) == {"bad"} and "no such car" in str(report)


def tilted(components, *, key):
    """Depends on which component is the first."""
    return estimate_per_component(components, 4, key=key) + 0.1 * jnp.exp(components.log_weights[0])


def rooted(components, *, key):
    """An upper bound whose slope is not finite where nothing leaks."""
    apart = components.parts.mean - components.parts.mean[:1]
    return components.entropy + 0.0 * jnp.sqrt(jnp.sum(apart**2))


MEASURES = {
    "upper": (lambda given, key: 0.8 * estimate_per_component(given, 8, key=key), "upper"),
    "lower": (lambda given, key: 0.1 + estimate_per_component(given, 8, key=key), "lower"),
    "estimate": (lambda given, key: 1.05 * estimate_per_component(given, 8, key=key), "estimate"),
    "order": (tilted, "lower"),
    "number": (lambda given, key: given.log_weights, "upper"),
}


@pytest.mark.parametrize("rule", MEASURES)
def test_a_measure_on_the_wrong_side_is_found(rule):
    report = check_measure(*MEASURES[rule])
    assert rule in rules(report), str(report)


def test_what_is_only_a_pity_is_a_warning():
    report = check_measure(rooted)
    assert report.ok and rules(report, "warning") == {"nothing", "gradient"}, str(report)
    above = check_measure(lambda given, key: given.entropy + 1.0)
    assert above.ok and rules(above, "warning") == {"nothing", "entropy", "gradient"}


class Reading(Attack):
    """Any evidence of a transcript."""

    function: Any = eqx.field(static=True)

    def __call__(self, transcript, *, key):
        found = self.function(transcript)
        return Evidence(found, jnp.ones_like(found[0]), jnp.asarray(False))


def knows(transcript):
    """The secrets of the examination take turns by the seed."""
    turn = jnp.arange(3, dtype=jnp.int32) == transcript.public_seed % 3
    return 9.0 * turn.astype(transcript.shared.dtype)


def mean_level(transcript):
    return jnp.mean(transcript.shared) * jnp.arange(3, dtype=transcript.shared.dtype)


ATTACKS = {
    "bounded": knows,
    "broken data": mean_level,
    "evidence": lambda transcript: transcript.shared[:2, 0],
    "pure": lambda transcript: 0.0 * mean_level(transcript) + np.random.default_rng().standard_normal(3),
}


@pytest.mark.parametrize("rule", ATTACKS)
def test_an_attack_that_cheats_or_breaks_is_found(rule):
    report = check_attack(lambda system, policy: Reading(ATTACKS[rule]))
    assert rule in rules(report), str(report)


def test_an_attack_that_cannot_be_made_is_told():
    def refuse(system, policy):
        raise TypeError("needs a platoon")

    assert "needs a platoon" in str(check_attack(refuse))


class Idle(Learner):
    """Does nothing, in several wrong ways."""

    faults: tuple[str, ...] = eqx.field(static=True, default=())

    def begin(self, family, policy, *, key):
        return Progress(policy, jnp.asarray(1.0), jnp.asarray(0, jnp.int32), jnp.zeros(()))

    def update(self, family, progress: Any, *, key):
        policy, memory, updates = progress.policy, progress.memory, progress.updates + 1
        if "limits" in self.faults:
            policy = eqx.tree_at(lambda one: one.system.sd, policy, 2.0 * policy.system.sd)
        if "progress" in self.faults:
            updates = progress.updates
        if "seeds" in self.faults:
            memory = jax.pure_callback(lambda: np.float32(next(COUNT)), memory)
        return Progress(policy, progress.price, updates, memory), {"one": jnp.asarray(1.0)}


def test_a_learner_that_breaks_its_contract_is_found():
    """What never comes out the same twice cannot be resumed either."""
    report = check_learner(Idle(("limits", "seeds")), updates=3)
    assert rules(report) == {"limits", "seeds", "resumes"}, str(report)
    assert rules(check_learner(Idle(("progress",)), updates=3)) == {"progress"}


def test_a_learner_that_learns_nothing_is_told():
    report = check_learner(Idle(), updates=3)
    assert report.ok and rules(report, "warning") == {"learns"}, str(report)
    assert not check_learner("pathwise").ok
