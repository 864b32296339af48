import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special

from tests.policies.policy_truths import play, rig
from tests.policies.round_units import finite, gain_units, platoon_units, rig_units, wild
from veil.beliefs import ParticleSpec
from veil.policies import Limits, neural_policy
from veil.policies.networks import Summary
from veil.policies.neural import limited
from veil.policies.scaling import correlation_factor
from veil.step import first_features
from veil.systems import Gain, Platoon

LOW, HIGH, OFFSET, SLOPE = 0.05, 4.0, 4.0, 0.9
UNITS = {"platoon": platoon_units, "gain": gain_units, "rig": rig_units}
SYSTEMS = {"platoon": Platoon, "gain": Gain, "rig": lambda: rig(3)}


@functools.cache
def policy(system, parts=1, encoder: Summary = "moments"):
    return neural_policy(
        SYSTEMS[system](), UNITS[system](), parts=parts, encoder=encoder, width=8, key=jr.key(0)
    )


@eqx.filter_jit
def laws(policy, time, states):
    """Means, factors and log-weights at a batch of states for every secret, as arrays [K, B, parts, ...]."""
    features = first_features(policy)
    kernel = policy.kernel(features, policy.system.initial_external(), time)
    law = jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(policy.system.prior.secrets, states)
    if policy.parts == 1:
        return law.mean[:, :, None], law.scale[:, :, None], jnp.zeros((*law.mean.shape[:2], 1))
    return law.parts.mean, law.parts.scale, law.log_weights


def asked(policy, states):
    return [np.asarray(leaf, float) for leaf in laws(policy, jnp.asarray(3, jnp.int32), jnp.asarray(states))]


def steep(policy):
    """Only the way of the state is wild: offsets are not held at their limits by everything else."""
    storm = wild(policy, 100.0).network
    return eqx.tree_at(
        lambda whole: (whole.network.inlet, whole.network.bent), policy, (storm.inlet, storm.bent)
    )


def cloud(system, count=40, spread=3.0):
    unit = UNITS[system]().state
    noise = np.random.default_rng(1).normal(size=(count, unit.centre.shape[0]))
    return np.asarray(unit.centre) + spread * np.asarray(unit.spread) * noise.astype(np.float32)


@pytest.mark.parametrize("system", ["platoon", "gain", "rig"])
@pytest.mark.parametrize("parts", [1, 3])
def test_no_weights_lead_beyond_the_limits(system, parts):
    """A storm of weights; offsets, sds, correlations and the slope of the offset stay within."""
    spread = np.asarray(UNITS[system]().output.spread, float)
    states = cloud(system)
    outputs = np.asarray(jax.vmap(policy(system).system.output)(jnp.asarray(states)), float)
    steepest = 0.0
    chosen = policy(system, parts)
    for one in (wild(chosen, 1.0), wild(chosen, 100.0), steep(chosen)):
        means, scales, log_weights = asked(one, states)
        offsets = (means - outputs[None, :, None]) / spread
        assert np.max(np.abs(offsets)) <= OFFSET * (1 + 1e-5)
        covariances = scales @ np.swapaxes(scales, -1, -2)
        sds = np.sqrt(np.diagonal(covariances, axis1=-2, axis2=-1))
        assert np.all(sds / spread > LOW * (1 - 1e-5)) and np.all(sds / spread < HIGH * (1 + 1e-5))
        correlations = covariances / sds[..., :, None] / sds[..., None, :]
        assert np.max(np.abs(np.tril(correlations, -1))) < 0.99
        assert np.all(np.triu(scales, 1) == 0.0) and np.all(np.linalg.eigvalsh(correlations) > 1e-3)
        assert np.allclose(np.sum(np.exp(log_weights), axis=-1), 1.0, atol=1e-5)
        units = (states - np.asarray(UNITS[system]().state.centre)) / np.asarray(UNITS[system]().state.spread)
        far = np.linalg.norm(units[:, None] - units[None, :], axis=-1)
        moved = np.linalg.norm(offsets[:, :, None] - offsets[:, None, :], axis=-1)
        slopes = (moved - 1e-4) / (far + np.eye(len(far)))[None, :, :, None]
        steepest = max(steepest, np.max(slopes))
    assert 0.03 < steepest <= SLOPE  # the state does matter


def test_the_mean_of_a_scalar_release_increases_with_the_state():
    states = np.linspace(-4.0, 4.0, 40, dtype=np.float32)[:, None]
    for one in (wild(policy("gain", 3), 100.0), steep(policy("gain", 3))):
        rises = np.diff(asked(one, states)[0][:, :, :, 0], axis=1) / np.diff(states[:, 0])[None, :, None]
        assert np.all(rises > 1.0 - SLOPE - 1e-3)


def test_the_slope_is_nearly_reached_and_small_weights_are_left_alone(float64):
    """One unit at the steepest place of silu, 2.3994, with huge weights."""
    network = neural_policy(Gain(), gain_units(), width=1, key=jr.key(0)).network
    small = limited(network, 1, 1, jnp.asarray(2.0))
    assert np.allclose(small.bent, network.bent, rtol=1e-12)
    large = eqx.tree_at(
        lambda net: (net.inlet, net.bent), network, (1e4 * jnp.ones((1, 1)), 1e4 * jnp.ones((3, 1)))
    )
    tamed = limited(large, 1, 1, jnp.asarray(0.7))
    ends = [
        float((tamed.bent @ jax.nn.silu(tamed.inlet @ jnp.full(1, x) + 2.3994))[0]) for x in (1e-4, -1e-4)
    ]
    assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(0.7 * 1.0998 / 1.1, rel=1e-4)
    assert np.all(tamed.bent[1:] == 1e4)  # the noise may depend on the state as it likes


def test_factors_of_correlations_have_rows_of_length_one_and_use_every_number():
    """Four axes take six numbers, row by row."""
    raw = np.asarray([0.5, -1.0, 2.0, 40.0, 0.3, -0.7], np.float32)
    rows = np.eye(4)
    rows[np.tril_indices(4, -1)] = 3.0 * np.tanh(raw / 3.0)
    found = jax.jit(correlation_factor, static_argnums=1)(jnp.asarray(raw)[None, :], 4)[0]
    assert np.allclose(found, rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-6)


def test_a_fresh_policy_shares_the_output_with_the_noise_asked_for():
    for parts in (1, 3):
        means, scales, _ = asked(policy("platoon", parts), cloud("platoon"))
        offsets = (means - cloud("platoon")[None, :, None]) / [0.5, 2.0]
        sds = np.sqrt(np.sum(scales**2, axis=-1)) / [0.5, 2.0]
        assert np.max(np.abs(offsets)) < 0.2 and np.allclose(sds, 0.3, rtol=0.2)
        assert parts == 1 or np.max(np.abs(np.diff(means, axis=2))) > 1e-4  # the parts are not one


def by_hand(policy, features, external, time, secret, state):
    """The law in plain numpy, from the weights."""
    net, units = policy.network, policy.scaling

    def weights(leaf):
        return np.asarray(leaf, float)

    def silu(x):
        return x * special.expit(x)

    def unit(of, value):
        return (np.asarray(value, float) - np.asarray(of.centre)) / np.asarray(of.spread)

    merged = np.maximum(weights(net.merge.weight) @ features + weights(net.merge.bias), 0.0)
    row = [
        *merged,
        *unit(units.external, external),
        min(time / float(units.steps), 1.0),
        *unit(units.secret, secret),
        *(features[6:8] - features[:4] @ features[4:12].reshape(4, 2)),  # (0.7, 0.8) is the second secret
        *features[15:18],
    ]
    hidden = np.asarray(row)
    for i, layer in enumerate(net.trunk.layers):
        hidden = weights(layer.weight) @ hidden + weights(layer.bias)
        hidden = silu(hidden) if i < 2 else hidden
    root, blocks = np.sqrt(SLOPE / 1.1), weights(net.bent).copy()
    for part in (slice(0, 2), slice(2, 4)):
        blocks[part] *= min(1.0, root / np.linalg.norm(blocks[part]))
    inlet = weights(net.inlet) * min(1.0, root / np.linalg.norm(weights(net.inlet)))
    raw = blocks @ silu(inlet @ unit(units.state, state) + hidden)
    raw = raw + weights(net.straight) @ hidden + weights(net.bias)
    means, factors = [], []
    for part in range(2):
        sd = LOW * (HIGH / LOW) ** special.expit(raw[4 + 2 * part : 6 + 2 * part]) * [0.5, 2.0]
        lean = 3.0 * np.tanh(raw[8 + part] / 3.0)
        row = np.asarray([lean, 1.0]) / np.hypot(lean, 1.0)
        factors.append([[sd[0], 0.0], sd[1] * row])
        means.append(state + OFFSET * np.tanh(raw[2 * part : 2 * part + 2] / OFFSET) * [0.5, 2.0])
    return np.asarray(means), np.asarray(factors), special.log_softmax(raw[10:])


def test_the_law_is_the_one_worked_out_by_hand_and_follows_from_public_numbers_alone():
    chosen = wild(policy("platoon", 2), 0.5)
    law = jax.jit(lambda *public, secret, state: chosen.kernel(*public)(secret, state))
    rng = np.random.default_rng(3)
    secret, state = jnp.asarray([0.7, 0.8]), jnp.asarray([15.3, 18.5])
    features, external = rng.normal(size=24).astype(np.float32), jnp.asarray([15.5, 14.0, 21.0])
    found = []
    for time in (7, 60, 50):
        public = (jnp.asarray(features), external, jnp.asarray(time, jnp.int32))
        made = law(*public, secret=secret, state=state)
        again = law(*public, secret=secret, state=state)
        assert all(
            np.array_equal(a, b) for a, b in zip(jax.tree.leaves(made), jax.tree.leaves(again), strict=True)
        )
        truth = by_hand(chosen, features, external, time, secret, np.asarray(state, float))
        for value, expected in zip((made.parts.mean, made.parts.scale, made.log_weights), truth, strict=True):
            assert np.allclose(value, expected, rtol=2e-4, atol=2e-4)
        found.append(made.log_weights)
    assert np.array_equal(found[1], found[2]) and not np.array_equal(found[0], found[1])


@pytest.mark.parametrize("encoder", ["moments", "mgf"])
def test_all_of_the_network_is_learned_and_nothing_else(encoder):
    """Every array of the network has a gradient, a number even at zero weights in and out."""
    start = policy("platoon", 2, encoder)
    assert len(jax.tree.leaves(eqx.filter(start.network, eqx.is_inexact_array))) == 12 + (encoder == "mgf")

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def value(network, policy, noise):
        policy = eqx.tree_at(lambda whole: whole.network, policy, network)
        features = first_features(policy)
        kernel = policy.kernel(features, policy.system.initial_external(), jnp.asarray(1, jnp.int32))
        law = kernel(policy.system.prior.secrets[1], policy.system.equilibrium + 0.3)
        return law.log_prob(jax.lax.stop_gradient(law.sample(noise))) + law.log_choice(noise)

    noise = jnp.asarray([0.2, -1.0, 0.5])
    none = jax.tree.map(lambda leaf: 0.0 * leaf if eqx.is_inexact_array(leaf) else leaf, start.network)
    shut = eqx.tree_at(lambda net: net.inlet, start.network, none.inlet)
    huge = wild(start, 100.0).network
    for network in (start.network, shut, none, huge):
        number, slopes = value(network, start, noise)
        assert finite(number) and finite(slopes)
        if network is start.network:
            assert all(np.any(np.asarray(leaf) != 0.0) for leaf in jax.tree.leaves(slopes))


def test_the_trunk_is_run_once_per_secret_and_not_per_particle():
    chosen = policy("platoon", 2)
    kernel = chosen.kernel(jnp.zeros(24), jnp.zeros(3), jnp.asarray(1, jnp.int32))
    program = jax.make_jaxpr(lambda secret, states: jax.vmap(lambda x: kernel(secret, x))(states))
    text = str(program(jnp.zeros(2), jnp.zeros((77, 2))))
    products = [line for line in text.splitlines() if "dot_general" in line]
    # Two of the products find the secret in the prior.
    assert len(products) == 8 and sum("77" in line.split("=")[0] for line in products) == 2


def test_a_mixture_policy_plays_an_episode_with_particles():
    made = eqx.tree_at(lambda whole: whole.tracker, policy("gain", 2), ParticleSpec(8))
    record, distances = play(Gain(), made, 4, jr.split(jr.key(0), 2), jnp.asarray([0, 2], jnp.int32))
    assert record.public.features.shape == (2, 4, 3 * 3) and finite(record) and np.all(distances < 3.0)


def test_bad_policies_cannot_be_built():
    system, units = Gain(), gain_units()
    with pytest.raises(ValueError, match="number of Gaussians"):
        neural_policy(system, units, parts=0, key=jr.key(0))
    with pytest.raises(ValueError, match="between limits"):
        neural_policy(system, units, limits=Limits(low=0.5), key=jr.key(0))
    with pytest.raises(ValueError, match="hidden units"):
        neural_policy(system, units, width=0, key=jr.key(0))
    with pytest.raises((TypeError, ValueError), match="moments"):
        neural_policy(system, units, encoder="sums", key=jr.key(0))  # pyright: ignore[reportArgumentType]
