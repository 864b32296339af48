"""Attacks on rounding: each finds the fault that it was made for, and none finds the randomised transform."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.attacks.base import Attack, Attacker
from veil.attacks.rounding import (
    GridMembership,
    RoundedLikelihood,
    copies_readers,
    count_digits,
    fit_regressions,
)
from veil.evaluation.attackers import run_attack
from veil.evaluation.bounds import bounder_candidates
from veil.evaluation.episodes import play_episodes
from veil.laws import Kernel, MemoryKernel, Point, recovered
from veil.policies import Counterfactual, PlainPolicy, Truth
from veil.policies.base import sensed
from veil.policies.counterfactual import _transfer, recovers_noise, split_memory
from veil.systems import Gain, Platoon, System, WithResolution, nominal
from veil.types import as_float64

EPISODES = 240
STEP = 0.2  # two thirds of the noise of a step


class ReadAsExact(Counterfactual):
    """The counterfactual policy that takes its readings for states."""

    def init_memory(self, secret, state, *, key):
        laws = jax.vmap(self.system.initial)(self.system.prior.secrets)
        return _transfer(self.system.initial(secret), state, laws)

    def update_memory(self, memory, secret, state, external, after, *, key):
        laws = jax.vmap(self.system.transition, (0, 0, None))(self.system.prior.secrets, memory, external)
        return _transfer(self.system.transition(secret, state, external), after, laws)


class Dithered(Counterfactual):
    """The counterfactual policy that adds uniform noise of one cell to its readings; remembers the last."""

    def init_memory(self, secret, state, *, key):
        state = state + STEP * (jr.uniform(key, state.shape, state.dtype) - 0.5)
        laws = jax.vmap(self.system.initial)(self.system.prior.secrets)
        return jnp.concatenate([_transfer(self.system.initial(secret), state, laws).ravel(), state])

    def update_memory(self, memory, secret, state, external, after, *, key):
        copies, before = split_memory(self.system, memory)
        assert before is not None  # the last reading with its noise
        after = after + STEP * (jr.uniform(key, after.shape, after.dtype) - 0.5)
        laws = jax.vmap(self.system.transition, (0, 0, None))(self.system.prior.secrets, copies, external)
        own = self.system.transition(secret, before, external)
        return jnp.concatenate([_transfer(own, after, laws).ravel(), after])


def lower(system, policy, attack, steps=40, first=0):
    """What an attack gains, in nats, and its standard error."""
    with jax.enable_x64(True):
        records = play_episodes(nominal(system), policy, steps, first + np.arange(EPISODES), key=jr.key(11))
        log_prior = np.full(3, -np.log(3.0))
        made = attack if isinstance(attack, Attack) else attack(policy)
        found = run_attack(Attacker("one", "attack", lambda _: made), records, log_prior, key=jr.key(0))
        return found.lower


@pytest.fixture(scope="module")
def system():
    """A fine public grid, so that nothing but the transform protects the owner."""
    with jax.enable_x64(True):
        return WithResolution(as_float64(Gain()), [STEP], [1e-9])


def test_a_state_read_as_exact_stays_on_the_grid_for_the_true_secret_only(system):
    found = lower(system, ReadAsExact(system), GridMembership, steps=4)
    assert found.low(3.0) > 0.9  # of log 3 = 1.0986, after four releases
    for policy in (Dithered(system), Counterfactual(system)):
        assert lower(system, policy, GridMembership, steps=4).low(3.0) < 0.01


def test_uniform_noise_leaves_steps_in_the_density(system):
    """About T Δ²/(24 σ²) nats: 40 · 0.04 / (24 · 0.09) = 0.74, of 1.0986 at most."""
    found = lower(system, Dithered(system), RoundedLikelihood)
    assert found.low(3.0) > 0.3
    fair = lower(system, Counterfactual(system), RoundedLikelihood)
    assert fair.low(3.0) < 0.01 and fair.value < 0.02


def test_the_same_noise_is_recovered_by_the_reader_from_the_releases(system):
    """The paths that a reader computes are those of the owner's copies: the attacks see all there is."""
    policy = ReadAsExact(system)
    with jax.enable_x64(True):
        records = play_episodes(nominal(system), policy, 6, np.arange(3), key=jr.key(2))
        record = jax.tree.map(lambda leaf: jnp.asarray(leaf[1]), records)
        paths = eqx.filter_jit(GridMembership(policy).paths)(record.public)
        readings = jnp.round(record.states[:-1] / STEP) * STEP
        secret, update = record.secret, eqx.filter_jit(policy.update_memory)
        memory = eqx.filter_jit(policy.init_memory)(secret, readings[0], key=jr.key(0))
        for t in range(6):
            if t > 0:
                external = record.public.external[t - 1]
                memory = update(memory, secret, readings[t - 1], external, readings[t], key=jr.key(0))
            assert np.allclose(paths[t], memory, atol=1e-6)


class DigitTeller(PlainPolicy):
    """Hides the index of the secret in the last digit, to the base 8, of a release on a grid of 0.01."""

    system: System

    def kernel(self, features, external, time):
        del features, external, time
        return DigitKernel(self.system)


class DigitKernel(Kernel):
    """The output to steps of 0.08, and the index of the secret in steps of 0.01."""

    system: System

    def __call__(self, secret, state):
        index = jnp.argmin(jnp.abs(self.system.prior.secrets[:, 0] - secret[0])).astype(state.dtype)
        return Point(0.08 * jnp.round(self.system.output(state) / 0.08) + 0.01 * index)


def trained(fit, system, policy, steps=10):
    with jax.enable_x64(True):
        made = play_episodes(nominal(system), policy, steps, 5000 + np.arange(EPISODES), key=jr.key(12))
        return fit(made.public, np.asarray(made.index))


def test_last_digits_that_tell_are_counted(system):
    fine = WithResolution(system.inner, [0.01], [0.01])
    digits = trained(lambda public, index: count_digits(fine, public, index, 3), fine, DigitTeller(fine))
    assert lower(fine, DigitTeller(fine), digits, 10).low(3.0) > 0.9
    digits = trained(lambda public, index: count_digits(fine, public, index, 3), fine, Counterfactual(fine))
    assert lower(fine, Counterfactual(fine), digits, 10).low(3.0) < 0.01


def test_regressions_find_the_gain_in_true_data_and_nothing_in_copies(system):
    rounded = WithResolution(system.inner, [STEP], [STEP])
    for policy, leaks in ((Truth(rounded), True), (Counterfactual(rounded), False)):
        bank = trained(lambda public, index: fit_regressions(public, index, 3), rounded, policy, 40)
        found = lower(rounded, policy, bank)
        assert found.low(3.0) > 0.4 if leaks else found.low(3.0) < 0.01


def test_the_platoon_at_two_decimals_is_known_after_two_releases_unless_transformed():
    with jax.enable_x64(True):
        system = WithResolution(as_float64(Platoon()), [0.01, 0.01], [1e-9, 1e-9])
        log_prior = np.full(4, -np.log(4.0))
        gains = {}
        for policy in (ReadAsExact(system), Counterfactual(system)):
            records = play_episodes(nominal(system), policy, 3, np.arange(64), key=jr.key(1))
            attacker = Attacker("one", "attack", lambda _, it=policy: GridMembership(it))
            gains[type(policy)] = run_attack(attacker, records, log_prior, key=jr.key(0)).lower
    assert gains[ReadAsExact].low(3.0) > 1.2
    assert gains[Counterfactual].low(3.0) < 0.01


class OwnCentre(Counterfactual):
    """Releases the first copy, by a kernel of its own."""

    def kernel(self, features, external, time) -> Any:
        return OwnKernel(self.system)


class OwnKernel(MemoryKernel):
    system: System

    def release_law(self, secret, state, memory):
        return Point(self.system.output(split_memory(self.system, memory)[0][0]))


class Telling(OwnCentre):
    """The same plus a hundredth of the secret."""

    def kernel(self, features, external, time):
        return TellingKernel(self.system)


class TellingKernel(OwnKernel):
    def release_law(self, secret, state, memory):
        return Point(super().release_law(secret, state, memory).value + 0.01 * secret)


class Peeping(OwnCentre):
    """The same plus something of where in its cell the state is."""

    def kernel(self, features, external, time):
        return PeepingKernel(self.system)


class PeepingKernel(OwnKernel):
    def release_law(self, secret, state, memory):
        return Point(super().release_law(secret, state, memory).value + 0.01 * memory[-1:])


@pytest.mark.parametrize(
    ("policy", "right"),
    [
        (Counterfactual, True),
        (lambda system: Counterfactual(system, jnp.asarray([0.2]), "mean"), True),
        (OwnCentre, True),
        *((one, False) for one in (ReadAsExact, Dithered, Telling, Peeping, Truth)),
    ],
)
def test_that_noise_is_recovered_is_decided_and_not_believed(system, policy, right):
    """A policy made from the counterfactual one may claim what it likes: the bound looks at its programs."""
    with jax.enable_x64(True):
        rounded = WithResolution(system.inner, [STEP], [STEP])
        made = policy(rounded)
        assert recovers_noise(made) == recovers_noise(sensed(made)) == right
        if made.has_memory:
            assert bool(bounder_candidates(rounded, made)) == right
            assert len(copies_readers(rounded, sensed(made), Point(jnp.zeros(1)))) == 2, "attacked anyway"


def test_recovered_numbers_of_a_rounded_state_are_not_normal(float64):
    """What the fault is made of: the noise of a state on a grid has atoms."""
    law = Gain().transition(jnp.asarray([0.6]), jnp.asarray([0.4]), jnp.zeros(1))
    values = {float(recovered(law, jnp.asarray([k * STEP]), jnp.zeros(1))[0]) for k in range(-3, 4)}
    assert len(values) == 7 and np.allclose(np.diff(sorted(values)), STEP / 0.3)
