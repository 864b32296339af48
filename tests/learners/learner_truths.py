"""Small problems with known answers, and the plain numpy that knows them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, special

from veil.beliefs import KalmanSpec
from veil.laws import Gaussian, Kernel, diagonal_gaussian
from veil.learners import Pathwise, SelectionScore
from veil.policies import LearnedPolicy
from veil.problem import Objective, problem
from veil.stats import Leakage, Mean
from veil.step import first_features
from veil.systems import Field, Prior, System, finite_prior

NODES, HEIGHTS = np.polynomial.hermite_e.hermegauss(121)
HEIGHTS = HEIGHTS / HEIGHTS.sum()


class Split(System):
    """One step counts: x_1 ~ N(θ_1, θ_2²), distortion |y − x| in some unit, no cost."""

    prior: Prior
    unit: Any = eqx.field(default=1.0, converter=jnp.asarray)

    secret_fields = (Field("mean"), Field("sd"))
    state_fields = (Field("x"),)
    external_fields = (Field("w"),)
    shared_fields = (Field("y"),)
    reaction_noise_size = 1

    def initial(self, secret):
        return diagonal_gaussian(secret[:1], secret[1:])

    def initial_external(self):
        return jnp.zeros_like(self.unit)[None]

    def transition(self, secret, state, external):
        return diagonal_gaussian(state, jnp.ones_like(state))

    def react(self, external, shared, noise):
        return external

    def cost(self, secret, state, after, shared, external):
        return jnp.zeros_like(state[0])

    def distortion(self, state, shared):
        return self.unit * jnp.abs(state[0] - shared[0])

    def output(self, state):
        return state


def halves(unit=1.0):
    """Two secrets one step apart: at the floor of the price the best policy is far above the limit."""
    system = Split(finite_prior([(-1.0, 1.0), (1.0, 1.0)]), unit)
    return problem(system, 1, Objective(privacy_weight=8.0, distortion_price=0.2, distortion_limit=0.3))


# One learner for all tests on `halves`, so that its update is compiled once.
LEARNER = Pathwise(episodes=32, updates=150, learning_rate=0.05, dual_rate=4.0)


class Knobs(eqx.Module):
    """Six numbers that are learned."""

    offset: Any
    slope: Any
    pull: Any  # towards the belief's mean given the secret
    push: Any  # by the external input
    log_sd: Any
    fear: Any  # more noise where the first secret is likely


class Dial(LearnedPolicy):
    """Gaussian around an affine function of the level; it looks at a Kalman belief, input and time."""

    system: System
    network: Knobs
    tracker: KalmanSpec = KalmanSpec()

    def start(self, *, key):
        return self.tracker.start(self.system, key=key)

    def features(self, belief, external, time):
        return jnp.concatenate([belief.log_masses, belief.moments().mean[:, 0]])

    def kernel(self, features, external, time):
        return DialKernel(self.system, self.network, features, external, time.astype(external.dtype))


class DialKernel(Kernel):
    system: System
    knobs: Knobs
    features: Any
    external: Any
    time: Any

    def __call__(self, secret, state):
        knobs, (log_masses, means) = self.knobs, jnp.split(self.features, 2)
        index = jnp.argmin(jnp.abs(self.system.prior.secrets[:, 0] - secret[0]))
        mean = state + knobs.offset * secret[:1] + knobs.slope * state * self.time
        mean = mean + knobs.pull * means[index][None] + knobs.push * self.external
        sd = jnp.exp(knobs.log_sd + knobs.fear * jnp.exp(log_masses[0]))
        return Gaussian(mean, sd[None, None])


def dial(system, numbers=(0.1, -0.05, 0.2, 0.15, -0.7, 0.3)):
    return Dial(system, Knobs(*(jnp.asarray(number) for number in numbers)))


def information(masses, means, sds):
    """I(Θ; Y) of Gaussians on a line by quadrature, in nats; the last axis runs over the secrets."""
    masses, means, sds = (np.asarray(a, float) for a in (masses, means, sds))
    points = means[..., :, None] + sds[..., :, None] * NODES  # drawn under k
    apart = (points[..., None, :, :] - means[..., :, None, None]) / sds[..., :, None, None]
    logs = -0.5 * apart**2 - np.log(sds)[..., :, None, None]  # density under j
    whole = special.logsumexp(logs + np.log(masses)[..., :, None, None], axis=-3)
    own = np.moveaxis(np.diagonal(logs, axis1=-3, axis2=-2), -1, -2)
    return np.sum(masses[..., None] * HEIGHTS * (own - whole), axis=(-2, -1))


def folded(mean, sd):
    """E|N(mean, sd²)|."""
    ratio = mean / sd
    return sd * np.sqrt(2 / np.pi) * np.exp(-0.5 * ratio**2) + mean * special.erf(ratio / np.sqrt(2))


class Truth:
    """What affine Gaussian releases y = c_k + a_k (x − m_k) + n_k ε of a `Split` are worth, exactly."""

    def __init__(self, secrets, masses, rho, floor):
        self.means, self.sds = np.asarray(secrets, float).T
        self.masses, self.rho, self.floor = np.asarray(masses, float), rho, floor

    def parts(self, centres, slopes, noises):
        """Leakage and mean distortion."""
        spread = np.sqrt((slopes * self.sds) ** 2 + noises**2)
        off = np.sqrt(((slopes - 1.0) * self.sds) ** 2 + noises**2)
        return (
            float(information(self.masses, centres, spread)),
            float(self.masses @ folded(centres - self.means, off)),
        )

    def value(self, *kernel):
        leakage, distortion = self.parts(*kernel)
        return self.rho * leakage + distortion

    def displaced(self, share, noise):
        """The kernel that goes this share of the way to the barycentre."""
        middle, narrow = self.masses @ self.means, self.masses @ self.sds
        centres = (1 - share) * self.means + share * middle
        return centres, (1 - share) + share * narrow / self.sds, noise * np.ones_like(self.means)

    def best_displaced(self):
        """The best share of the way at the least noise: its value, and the share."""
        found = optimize.minimize_scalar(
            lambda share: self.value(*self.displaced(share, self.floor)), bounds=(0.0, 1.0), method="bounded"
        )
        return found.fun, found.x

    def best(self):
        """The least value of all affine kernels: descents from several starts, the best of them refined."""
        count = len(self.means)

        def unpack(x):
            centres, slopes, extra = x.reshape(3, count)
            return centres, slopes, self.floor + extra**2

        def cost(x):
            return self.value(*unpack(x))

        found = []
        for share in (0.05, 0.5, 0.95):
            for noise in (0.01, 0.5, 1.2):
                centres, slopes, _ = self.displaced(share, 0.0)
                start = np.concatenate([centres, slopes, noise * np.ones(count)])
                found.append(optimize.minimize(cost, start, method="BFGS", options={"gtol": 1e-7}))
        best = min(found, key=lambda one: one.fun)
        best = optimize.minimize(cost, best.x, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10})
        return float(best.fun), unpack(best.x)


@eqx.filter_jit
def affine_parts(policy):
    """Centres, slopes and noises of a policy's kernel at t = 1, by asking it; one output."""
    system = policy.system
    kernel = policy.kernel(first_features(policy), system.initial_external(), jnp.asarray(1, jnp.int32))

    def one(secret):
        start = system.initial(secret).mean
        here, there = kernel(secret, start), kernel(secret, start + 1.0)
        return here.mean[0], there.mean[0] - here.mean[0], here.scale[0, 0]

    return jax.vmap(one)(system.prior.secrets)


def kernel_of(policy):
    return tuple(np.asarray(part, float) for part in affine_parts(policy))


def seen(total, distortion=0.0, limit=1.0):
    """An evaluation that found these."""
    none = Mean(0.0, 0.0)
    return SelectionScore(Leakage(none, none, 1.0), none, Mean(distortion, 0.0), limit, 0.0, total)


def by_rounds(values, masses):
    """Mean over the secrets, which take turns, by their masses, and its standard error.

    The episodes of one round share their noise: only rounds are independent.
    """
    rounds = np.asarray(values, float).reshape(-1, len(masses)) @ np.asarray(masses, float)
    return rounds.mean(), rounds.std(ddof=1) / np.sqrt(len(rounds))
