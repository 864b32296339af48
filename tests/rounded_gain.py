"""The `gain` loop behind a coarse sensor, solved on a fine grid of states.

Nothing is linearised and nothing is drawn: the law of the state given each secret and the releases so far is
kept on points that divide every cell of the sensor evenly.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from veil.laws import Gaussian
from veil.policies.base import sensed
from veil.systems import Gain
from veil.systems.variants import without_sensor

REACH = 7.0  # of the states, on both sides of zero


class Solved(NamedTuple):
    """What is exactly true of one transcript."""

    information: np.ndarray  # (T,) I(Θ; Y_t | h_t)
    log_likelihood: np.ndarray  # (K,) log-probability of all releases


class Solver:
    """The exact filter of a policy with Gaussian releases on `gain` with a resolution."""

    def __init__(self, system, policy):
        self.step, self.out = system.state_fields[0].resolution, system.shared_fields[0].resolution
        plain = without_sensor(system)
        assert isinstance(plain, Gain)
        self.gains, self.noise = np.asarray(system.prior.secrets)[:, 0], float(plain.sd)
        self.masses = np.exp(np.asarray(system.prior.log_masses))
        inside = max(8, int(np.ceil(10 * self.step / self.noise)))  # points per cell
        count = int(np.ceil(REACH / self.step))
        self.readings = self.step * np.arange(-count, count + 1)
        places = self.step * ((np.arange(inside) + 0.5) / inside - 0.5)
        self.states = (self.readings[:, None] + places[None]).ravel()
        self.cell, self.width = np.repeat(np.arange(len(self.readings)), inside), self.step / inside
        start = _normal(self.states, 0.0, float(plain.initial_sd)) * self.width
        self.start = start / start.sum()
        # N(x; a x' + w, sd²) is N(x; a x', sd²) times a factor of x and one of x', which an input tilts.
        self.moves = [
            self.width * _normal(self.states[:, None], gain * self.states[None], self.noise)
            for gain in self.gains
        ]
        secrets, readings = system.prior.secrets, jnp.asarray(self.readings)[:, None]

        def laws(features, external, time):
            kernel = sensed(policy).kernel(features, external, time)
            one = jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(secrets, readings)
            assert isinstance(one, Gaussian)
            return one.mean[..., 0], one.scale[..., 0, 0]

        self._laws = jax.jit(jax.vmap(laws))

    def __call__(self, public) -> Solved:
        """Follow one transcript."""
        times = jnp.arange(1, len(public.shared) + 1, dtype=jnp.int32)
        means, sds = map(np.asarray, self._laws(public.features, public.external, times))
        shared, external = np.asarray(public.shared)[:, 0], np.asarray(public.external)[:, 0]
        laws, masses = np.tile(self.start, (len(self.gains), 1)), self.masses
        found, total = [], np.zeros(len(self.gains))
        for t, y in enumerate(shared):
            reach = 9.0 * sds[t].max()
            first, last = (means[t].min() - reach) / self.out, (means[t].max() + reach) / self.out
            points = self.out * np.arange(np.floor(first), np.ceil(last) + 1)
            # (K, R, G): probability of each grid point given secret and reading
            kernel = _normal(points[None, None], means[t][:, :, None], sds[t][:, :, None])
            kernel = kernel / kernel.sum(axis=2, keepdims=True)
            cells = np.stack([np.bincount(self.cell, law, len(self.readings)) for law in laws])
            release = np.einsum("kr,krg->kg", cells, kernel)
            mixture = masses @ release
            ratio = np.log(np.maximum(release, 1e-300) / np.maximum(mixture, 1e-300))
            found.append(float(np.sum(masses @ (release * ratio))))
            place = int(np.argmin(np.abs(points - y)))
            assert abs(points[place] - y) < 1e-9
            laws = laws * kernel[:, self.cell, place]
            gained = laws.sum(axis=1)
            total, masses = total + np.log(gained), masses * gained / (masses @ gained)
            laws = np.stack(
                [self._moved(k, law, external[t]) for k, law in enumerate(laws / gained[:, None])]
            )
        return Solved(np.array(found), total)

    def _moved(self, k, law, shift):
        """The law of the next state: a law of this one through the transition of a secret."""
        tilt = shift / self.noise**2
        assert abs(tilt) * REACH < 300.0, "the factors must not overflow"
        moved = self.moves[k] @ (np.exp(-tilt * self.gains[k] * self.states) * law)
        return np.exp(tilt * self.states - 0.5 * tilt * shift) * moved


def _normal(value, mean, sd):
    return np.exp(-0.5 * ((value - mean) / sd) ** 2) / (sd * np.sqrt(2.0 * np.pi))
