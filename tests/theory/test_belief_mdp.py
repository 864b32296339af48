"""A finite problem of two releases, solved exactly twice: over beliefs, and over whole histories.

Secret, state, input and release take two values each. At step 2 a history-dependent policy may look at both
states, a simplified one at the last. Given what is public, the objective is convex in the rows of the kernel,
so scipy finds its least value; kernels of step 1 come from a menu that both solutions share.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from veil.leakage.finite import finite_information

RNG = np.random.default_rng(7)
RHO, PRICE = 0.6, 0.4
PRIOR = np.asarray([0.35, 0.65])
FIRST = np.asarray([[0.8, 0.2], [0.4, 0.6]])  # p(x₁ | θ)
MOVE = RNG.dirichlet((1.0, 1.0), (2, 2, 2))  # p(x' | θ, x, w)
REPLY = RNG.dirichlet((1.0, 1.0), (2, 2))  # p(w' | w, y)
COST = RNG.uniform(0.0, 1.0, (2, 2, 2, 2))  # r(θ, x, x', y)
APART = 1.0 - np.eye(2)  # d(x, y)
LEVELS = (0.15, 0.9)
MENU = [np.asarray(rows).reshape(2, 2) for rows in itertools.product(LEVELS, repeat=4)]  # P(y = 1 | θ, x)

leakage = jax.jit(finite_information)


def log(values):
    return np.log(np.maximum(values, 1e-300))


def information(joint):
    """I of a table p(θ, public), by its definition."""
    joint = joint.reshape(2, -1)
    apart = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    return float(np.sum(joint * (log(joint) - log(apart))))


def least(mass, charge):
    """min over P(y=1 | row) of ρ·I(Θ; Y) + E[charge] given mass [θ, row] ∝ p; charge [θ, row, y]."""
    mass = mass / mass.sum()
    secret = mass.sum(1)

    def value(flat):
        one = np.sum(mass * flat.reshape(mass.shape), axis=1)
        table = np.stack([secret - one, one], axis=1)  # p(θ, y)
        scores = log(table) - log(secret)[:, None] - log(table.sum(0))
        paid = mass * (charge[..., 0] + flat.reshape(mass.shape) * (charge[..., 1] - charge[..., 0]))
        slope = mass * (RHO * (scores[:, 1] - scores[:, 0])[:, None] + charge[..., 1] - charge[..., 0])
        return RHO * np.sum(table * scores) + paid.sum(), slope.ravel()

    fine, box = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 2000}, [(1e-9, 1.0 - 1e-9)] * mass.size
    start = np.full(mass.size, 0.4)
    best = minimize(value, start, jac=True, method="L-BFGS-B", bounds=box, options=fine)
    return float(best.fun), best.x.reshape(mass.shape)


def stage(w):
    """Charges but leakage of a release, [θ, x, y]: the expected cost by the move, and the distortion."""
    return np.einsum("kxn,kxny->kxy", MOVE[:, :, w, :], COST) + PRICE * APART[None]


def last_value(belief, w):
    """V₂(β, w), β [θ, x] of mass one."""
    return least(belief, stage(w))[0]


def over_beliefs(kernel):
    """ρ·I + charges of step 1 under this kernel, and what the beliefs after it are worth."""
    belief = PRIOR[:, None] * FIRST
    release = np.stack([1.0 - kernel, kernel], axis=-1)  # K(y | θ, x)
    marginal = np.einsum("kx,kxy->ky", FIRST, release)
    total = RHO * float(leakage(jnp.asarray(log(PRIOR)), jnp.asarray(log(marginal))))
    total += float(np.sum(belief[..., None] * release * stage(0)))
    for y, w in itertools.product((0, 1), repeat=2):
        after = np.einsum("kx,kxn->kn", belief * release[..., y], MOVE[:, :, 0, :])
        reached = after.sum()
        total += reached * REPLY[0, y, w] * last_value(after / reached, w)
    return total


def over_histories(kernel):
    """The same objective from the joint law of everything, policies of step 2 free to look at x₁ and x₂."""
    release = np.stack([1.0 - kernel, kernel], axis=-1)
    joint = PRIOR[:, None, None] * FIRST[..., None] * release  # θ, x₁, y₁
    paid = float(np.sum(joint * stage(0)))
    final, seen = np.zeros((2, 2, 2, 2)), 0.0  # θ, y₁, w₂, y₂
    for y, w in itertools.product((0, 1), repeat=2):
        mass = joint[..., y, None] * MOVE[:, :, 0, :] * REPLY[0, y, w]  # θ, x₁, x₂
        charge = np.broadcast_to(stage(w)[:, None], (2, 2, 2, 2))  # θ, x₁, x₂, y₂
        _, rows = least(mass.reshape(2, 4), charge.reshape(2, 4, 2))
        rows = rows.reshape(2, 2, 2)
        second = np.stack([1.0 - rows, rows], axis=-1)
        final[:, y, w] = np.einsum("kab,kabz->kz", mass, second)
        paid += float(np.sum(mass[..., None] * second * charge))
        table = final[:, y, w]
        seen += table.sum() * information(table / table.sum())
    chained = information(joint.sum(1)) + seen
    assert information(final) == pytest.approx(chained, abs=1e-12)  # the chain rule, inputs included
    return RHO * information(final) + paid


def test_beliefs_lose_nothing_and_old_states_win_nothing(float64):
    """The optimum over beliefs equals the optimum over histories, kernel by kernel of step 1 and in all."""
    beliefs, histories = ([way(kernel) for kernel in MENU] for way in (over_beliefs, over_histories))
    assert np.max(np.abs(np.subtract(beliefs, histories))) < 1e-6
    assert np.ptp(beliefs) > 0.1 and np.argmin(beliefs) == np.argmin(histories)


def test_the_belief_alone_is_not_the_state():
    """The value depends on the external input too, which the paper's V(β) leaves out."""
    belief = PRIOR[:, None] * FIRST
    assert abs(last_value(belief, 0) - last_value(belief, 1)) > 0.01


def test_averaging_over_old_states_is_the_simplified_policy():
    """The proof's construction, K(y | θ, x₂) = E[K(y | θ, x₁, x₂)], keeps the law of (θ, x₂, y)."""
    mass, rows = RNG.dirichlet(np.ones(8)).reshape(2, 2, 2), RNG.uniform(size=(2, 2, 2))
    simple = np.sum(mass * rows, axis=1) / mass.sum(1)
    wide, narrow = np.sum(mass * rows, axis=1), mass.sum(1) * simple
    assert wide == pytest.approx(narrow)
    laws = [np.stack([mass.sum((1, 2)) - ones.sum(1), ones.sum(1)], axis=1) for ones in (wide, narrow)]
    assert information(laws[0]) == pytest.approx(information(laws[1]), abs=1e-14)
