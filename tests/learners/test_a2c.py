"""A Dirichlet actor and its critic against enumeration, quadrature and scipy."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import optimize, special

from tests.learners.learner_truths import Split, dial
from veil.beliefs import KalmanSpec, ParticleSpec
from veil.beliefs.particles import Scheme
from veil.leakage.per_step import Measure
from veil.learners import A2c, Progress, initial_policy
from veil.learners.lookahead import Critic, charged, followed, staged
from veil.policies import Scaling, Unit, discrete_policy
from veil.problem import Objective, Problem, problem
from veil.settings import PolicyDesign
from veil.step import first_features, public_key
from veil.systems import Gain, finite_prior

RHO, PRICE, LIMIT = 3.0, 0.7, 0.5
OBJECTIVE = Objective(privacy_weight=RHO, distortion_price=PRICE, distortion_limit=LIMIT)
MASSES = np.asarray([0.4, 0.6])


def units(steps, secret=1):
    one = Unit((0.0,), (1.0,))
    return Scaling(Unit((0.0,) * secret, (1.0,) * secret), one, one, one, jnp.asarray(float(steps)))


def split():
    """One step; x is near −1 under one secret and near 1 under the other, well inside a cell each."""
    return problem(Split(finite_prior([(-1.0, 0.01), (1.0, 0.01)], MASSES)), 1, OBJECTIVE)


def starting(system, count, *, secret=2, steps=1, sd=1.0):
    return discrete_policy(
        system, units(steps, secret), counts=count, half_width=1.0, particles=2, width=4, sd=sd, key=jr.key(0)
    )


def begun(learner, made, policy, seed):
    """Where a learner begins, and its critic there."""
    progress: Any = learner.begin((made,), policy, key=jr.key(seed))
    return progress, progress.memory.critic


def information(masses, rows):
    """I(Θ; Y) in nats; the last two axes of the rows run over secrets and values."""
    return np.sum(masses[:, None] * special.rel_entr(rows, (masses @ rows)[..., None, :]), axis=(-2, -1))


def paid(rows, atoms):
    """Priced distortion of sharing these from −1 and 1."""
    apart = np.abs(np.asarray([-1.0, 1.0])[:, None] - atoms)
    return np.sum(MASSES[:, None] * rows * PRICE * (apart - LIMIT), axis=(-2, -1))


@eqx.filter_jit
def rows_of(policy):
    """Of the first kernel, [2, J]: the row of each secret in the cell where it is."""
    features = first_features(policy)
    log_rows = policy.table(features, policy.system.initial_external(), jnp.asarray(1, jnp.int32)).log_rows
    return jnp.exp(jnp.stack([log_rows[0, 0], log_rows[1, -1]]))


def drawn_objective(shares, total):
    """E of what a step is charged, over the two Beta rows of a kernel on two atoms, by Gauss–Jacobi."""
    nodes, weights = [], []
    for share in shares:
        places, heights = special.roots_jacobi(60, total * (1 - share) - 1, total * share - 1)
        nodes.append((1 + places) / 2)
        weights.append(heights / heights.sum())
    first, second = (grid.ravel() for grid in np.meshgrid(*nodes, indexing="ij"))
    rows = np.stack([np.stack([p, 1 - p], axis=-1) for p in (first, second)], axis=-2)
    values = RHO * information(MASSES, rows) + paid(rows, np.asarray([-1.0, 1.0]))
    return np.outer(*weights).ravel() @ values


@functools.cache
def gradients(credit, keys=1500, total=6.0):
    """Gradients in the last layer, one per key, and the true ones by quadrature and the chain rule."""
    made, learner = split(), A2c(episodes=2, concentration=total, credit=credit, width=2)
    policy = starting(made.scenario.plant, 2)
    critic = begun(learner, made, policy, 3)[1]

    def last(network):
        return jnp.concatenate([network.straight.ravel(), network.bias])

    @jax.jit
    def estimates(keys):
        def one(key):
            scored, weights = learner.play(made, policy, critic, jnp.asarray(0, jnp.int32), key=key)
            parts = policy.network, critic
            return last(eqx.filter_grad(learner.loss, has_aux=True)(parts, policy, scored, weights)[0][0])

        return jax.lax.map(one, keys, batch_size=250)

    def shares(network):
        return rows_of(eqx.tree_at(lambda one: one.network, policy, network))[:, 0]

    @eqx.filter_jit
    def chained(slopes):
        return last(eqx.filter_vjp(shares, policy.network)[1](slopes)[0])

    start = np.asarray(shares(policy.network), float)
    slopes = [
        (drawn_objective(start + step, total) - drawn_objective(start - step, total)) / 2e-5
        for step in 1e-5 * np.eye(2)
    ]
    truth = chained(jnp.asarray(slopes, start.dtype))
    return np.asarray(estimates(jr.split(jr.key(0), keys)), float), np.asarray(truth, float)


@pytest.mark.parametrize("credit", [pytest.param("plain", marks=pytest.mark.study), "taylor"])
def test_the_gradient_is_that_of_the_objective_expected_over_drawn_kernels(credit, float64):
    """Total concentration 6: the slope at the mean kernel alone would be wrong by a good part."""
    found, truth = gradients(credit)
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0) - truth) < 4.5 * error + 1e-9)
    assert np.linalg.norm(error) < (0.25 if credit == "plain" else 0.05) * np.linalg.norm(truth)


@pytest.mark.study
def test_crediting_against_the_mean_kernel_saves_most_of_the_noise(float64):
    plain, taylor = (np.sum(gradients(credit)[0].var(axis=0)) for credit in ("plain", "taylor"))
    assert taylor < 0.2 * plain


@pytest.mark.study
@pytest.mark.study
def test_learning_comes_to_the_best_kernel():
    """Three atoms, one step: the objective is convex in the rows, so scipy finds its least value."""
    made, atoms = split(), np.linspace(-1, 1, 3)

    def value(rows):
        return float(RHO * information(MASSES, rows) + paid(rows, atoms))

    def cost(scores):
        return value(special.softmax(scores.reshape(2, 3), axis=1))

    best = min(
        optimize.minimize(cost, start, tol=1e-12).fun
        for start in np.random.default_rng(0).normal(size=(4, 6))
    )
    learner = A2c(episodes=4, updates=150, learning_rate=0.05, concentration=1e4, width=2)
    progress = learner.begin((made,), starting(made.scenario.plant, 3), key=jr.key(0))
    update, begun = eqx.filter_jit(learner.update), value(np.asarray(rows_of(progress.policy), float))
    for i in range(150):
        progress, _ = update((made,), progress, key=jr.key(i))
    found = value(np.asarray(rows_of(progress.policy), float))
    # A thousandth of every row is spread over the atoms: at most 2 · PRICE a piece, and information of a row.
    assert best - 1e-6 < found < best + 0.01 and begun > best + 0.2


# A chain without noise: x_1 = 0, x' = θ x + w, w' = y.
GAINS, CHAIN = np.asarray([0.3, 0.9]), 3


@functools.cache
def chain():
    system = Gain(prior=finite_prior(GAINS, MASSES), sd=0.0, initial_sd=0.0, reply=1.0, reaction_sd=0.0)
    policy = starting(system, 2, secret=1, steps=CHAIN)
    shut = [jnp.zeros_like(policy.network.bent), jnp.zeros_like(policy.network.straight)]
    network = eqx.tree_at(lambda one: (one.bent, one.straight), policy.network, shut)
    return problem(system, CHAIN, OBJECTIVE), eqx.tree_at(lambda one: one.network, policy, network)


def chances(x):
    """The rows of a silent network: e^(−½ d²) from the cell ±1 of x, but for a thousandth."""
    apart = np.asarray([-1.0, 1.0]) - np.where(np.asarray(x) > 0, 1.0, -1.0)[:, None]
    return 0.999 * special.softmax(-0.5 * apart**2, axis=1) + 0.0005


def to_go(mass, x, w, left, discount):
    """Cost to go from a belief: masses and levels per secret."""
    if left == 0:
        return 0.0
    rows, after = chances(x), GAINS * x + w
    apart = np.abs(x[:, None] - np.asarray([-1.0, 1.0])) - LIMIT
    now = RHO * information(mass, rows) + mass @ np.sum(rows * (after[:, None] ** 2 + PRICE * apart), axis=1)
    for y, likely in zip((-1.0, 1.0), rows.T, strict=True):
        whole = mass @ likely
        now += discount * whole * to_go(mass * likely / whole, after, y, left - 1, discount)
    return now


# The policy stays as it is; half of a target is one step of the critic's own, half is what comes later.
WATCHER = A2c(
    episodes=8,
    updates=400,
    learning_rate=0.0,
    critic_rate=0.02,
    concentration=1e6,
    trace=0.5,
    discount=0.9,
    width=16,
)
watch = eqx.filter_jit(WATCHER.update)


@pytest.mark.study
def test_the_critic_comes_to_the_exact_cost_to_go_of_a_policy_that_stays():
    (made, policy), discount = chain(), 0.9
    progress, _ = begun(WATCHER, made, policy, 0)
    for i in range(400):
        progress, _ = watch((made,), progress, key=jr.key(i))
    memory: Any = progress.memory
    number = jnp.asarray(999, jnp.int32)
    scored, _ = eqx.filter_jit(WATCHER.play)(made, policy, memory.critic, number, key=jr.key(7))
    belief, w = scored.transition.belief, np.asarray(scored.transition.external)[..., 0]
    masses, levels = np.exp(np.asarray(belief.log_masses)), np.asarray(belief.states)[..., 0, 0]
    truth = np.asarray(
        [
            [to_go(masses[b, t], levels[b, t], w[b, t], CHAIN - t, discount) for t in range(CHAIN)]
            for b in range(8)
        ]
    )
    assert np.allclose(scored.value, truth, atol=0.03 * truth[:, 0].mean())
    assert np.ptp(truth[:, 1:], axis=0).min() > 0.3  # states differ by more than the tolerance
    assert eqx.tree_equal(progress.policy, policy)


@eqx.filter_jit
def foreseen_and_found(made, policy, critic, seed):
    """Charge and value at the second step: by the learner's eyes, and by the owner's step and the measure."""
    system, play = policy.system, made.reset(policy, seed, key=jr.key(0))
    play, *_ = made.step(policy, play, seed=seed, key=jr.key(1))  # masses and weights are not even any more
    belief, now, external = play.belief, play.situation, play.situation.external
    kernel = policy.table(policy.features(belief, external, now.time), external, now.time)
    transition = staged(policy, OBJECTIVE, play, kernel, seed=seed, key=jr.key(3))
    weights = jnp.exp(belief.log_masses[:, None] + belief.log_weights)

    def after(atom):
        """Mass of a release, what is paid for it, and the value that it leads to."""
        law = jax.vmap(jax.vmap(lambda s, x: kernel(s, x).log_prob(atom), (None, 0)))
        rows = weights * jnp.exp(law(belief.secrets, belief.states))
        following, _ = belief.update(system, kernel, external, atom, key=public_key(seed, now.time))
        apart = jnp.abs(belief.states[..., 0] - atom[0])
        cost = following.states[..., 0] ** 2 + OBJECTIVE.distortion_price * (apart - LIMIT)
        answer = system.react(external, atom, transition.noise)
        value = critic(policy.features(following, answer, now.time + 1), answer, now.time + 1, policy.scaling)
        return jnp.sum(rows * cost), jnp.sum(rows) * value

    paid, values = jax.vmap(after)(policy.atoms)
    charge = RHO * Measure()(belief, kernel, key=jr.key(0)) + jnp.sum(paid)
    table, last = (
        jnp.exp(kernel.log_rows),
        eqx.tree_at(lambda one: one.time, transition, jnp.asarray(4, jnp.int32)),
    )
    seen = (
        charged(OBJECTIVE, transition, table),
        *(followed(policy, critic, one, table) for one in (transition, last)),
    )
    return seen, (charge, jnp.sum(values), jnp.zeros_like(charge))


@pytest.mark.study
def test_what_is_foreseen_is_what_the_owners_step_brings(float64):
    """Every release, against the belief that takes it in; nothing follows the fourth and last."""
    system = Gain(prior=finite_prior(GAINS, MASSES))
    policy = starting(system, 3, secret=1, steps=4)
    policy = eqx.tree_at(lambda one: one.tracker, policy, ParticleSpec(6, Scheme(threshold=0.0)))
    critic = Critic(eqx.nn.MLP(policy.network.encoder.size + 2, 1, 8, 1, key=jr.key(2)), 4)
    made, seed = problem(system, 4, OBJECTIVE), jnp.asarray(5, jnp.int32)
    seen, found = foreseen_and_found(made, policy, critic, seed)
    assert (
        np.allclose(seen, found, rtol=1e-7, atol=1e-12)
        and min(abs(float(seen[0])), abs(float(seen[1]))) > 1e-3
    )


@pytest.mark.study
@pytest.mark.study
def test_progress_is_all_in_its_arrays():
    """What is saved, put into the skeleton of another beginning, goes on with the same bits."""
    made, policy = chain()
    progress, other = (WATCHER.begin((made,), policy, key=jr.key(i)) for i in (0, 1))
    progress, _ = watch((made,), progress, key=jr.key(0))
    copy = eqx.combine(eqx.filter(progress, eqx.is_array), eqx.filter(other, eqx.is_array, inverse=True))
    assert isinstance(copy, Progress) and not eqx.tree_equal(copy, other)
    onwards, again = (watch((made,), one, key=jr.key(1))[0] for one in (progress, copy))
    assert eqx.tree_equal(onwards, again) and not eqx.tree_equal(onwards.memory, progress.memory)
    assert int(onwards.updates) == 2 and float(onwards.price) == np.float32(PRICE)


def test_plain_credit_looks_at_the_states_that_were_reached_and_computes_nothing_else(float64):
    """δ and the critic's targets by hand; neither slopes nor values of other releases are there."""
    made, policy = chain()
    learner = A2c(episodes=4, concentration=50.0, credit="plain", trace=0.25, discount=0.9, width=4)
    _, critic = begun(learner, made, policy, 3)
    scored, _ = eqx.filter_jit(learner.play)(made, policy, critic, jnp.asarray(0, jnp.int32), key=jr.key(1))
    value, charge = np.asarray(scored.value), np.asarray(scored.charge)
    reached = np.concatenate([value[:, 1:], np.zeros((len(value), 1))], axis=1)
    np.testing.assert_allclose(learner._temporal(scored), charge + 0.9 * reached - value, rtol=1e-9)
    later, wanted = np.zeros(len(value)), np.zeros_like(value)
    for t in reversed(range(CHAIN)):
        later = wanted[:, t] = charge[:, t] + 0.9 * (0.75 * reached[:, t] + 0.25 * later)
    np.testing.assert_allclose(learner._targets(scored), wanted, rtol=1e-9)
    assert not np.any(scored.slope) and not np.any(scored.surplus) and np.ptp(value) > 0.0


def on_a_grid(system, **given) -> Any:
    design = PolicyDesign("grid", "mgf", particles=4, proposal="bootstrap", **given)
    return initial_policy(design, system, 3, key=jr.key(0))


def test_a_grid_reaches_as_far_as_it_is_told():
    system = Gain()
    near, far = on_a_grid(system), on_a_grid(system, reach=(9.0,), points=3)
    centre, spread = (float(part[0]) for part in (near.scaling.output.centre, near.scaling.output.spread))
    np.testing.assert_allclose(np.ptp(np.asarray(near.atoms)), 24.0 * spread, rtol=1e-5)
    wanted = [centre - 9.0, centre, centre + 9.0]
    np.testing.assert_allclose(np.asarray(far.atoms)[:, 0], wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(near.cells.min(), far.cells.min())  # the states' grid stays
    log_rows = eqx.filter_jit(
        lambda one: one.table(first_features(one), system.initial_external(), jnp.asarray(1)).log_rows
    )(far)
    assert np.abs(np.exp(np.asarray(log_rows)) - 1.0 / 3.0).max() < 0.12  # nearly a blind uniform draw
    with pytest.raises(ValueError, match="one number per shared axis"):
        on_a_grid(system, reach=(1.0, 2.0))


def test_what_it_cannot_learn_on_is_refused():
    made, policy = chain()
    with pytest.raises(ValueError, match="discrete_policy"):
        A2c().begin((split(),), dial(split().scenario.plant), key=jr.key(0))
    with pytest.raises(ValueError, match="one problem"):
        A2c().begin((made, made), policy, key=jr.key(0))
    with pytest.raises(ValueError, match="one problem"):
        A2c().begin((Problem(made.scenario, leakage_belief=KalmanSpec()),), policy, key=jr.key(0))
