"""A flat with weather, a tariff and people at home, and the same flat with the clock hidden in w by hand."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from veil.laws import diagonal_gaussian
from veil.systems import CostPart, Field, Nouns, Prior, Series, System, finite_prior

HOURS = np.arange(30)
OUTDOOR = 5.0 + 4.0 * np.sin(2 * np.pi * (HOURS - 9) / 24)
TARIFF = np.where((HOURS % 24 >= 17) & (HOURS % 24 < 21), 0.5, 0.25)
PEOPLE = np.where((HOURS % 24 >= 18) | (HOURS % 24 < 7), 2.0, 0.0)
CAPACITY, SD, BODY = 8.0, 0.1, 0.1
START = 6


class Flat(System):
    """C (T' − T) = power − loss (T − outdoor) + 0.1 people; power depends on the hour and on the release."""

    prior: Prior
    series: Series

    secret_fields = (Field("loss", "kW/K", 0.0, 1.0),)
    state_fields = (Field("indoor", "degC", -20.0, 60.0),)
    external_fields = (Field("power", "kW", -20.0, 20.0),)
    exogenous_fields = (
        Field("outdoor", "degC", -40.0, 40.0),
        Field("tariff", "EUR/kWh", 0.0, 2.0),
        Field("people", "", 0.0, 9.0, private=True),
    )
    shared_fields = (Field("indoor", "degC"),)
    cost_fields = (
        CostPart("energy", "kWh", 0.0),
        CostPart("bill", "EUR"),
        CostPart("discomfort", "K h", 2.0),
    )
    step_seconds = 3600.0
    nouns = Nouns("the flat", "its insulation", "flat")
    reaction_noise_size = 1

    def initial(self, secret):
        return diagonal_gaussian(jnp.array([20.0]), jnp.array([0.5]))

    def initial_external(self):
        return jnp.array([2.0])

    def transition(self, secret, state, external):
        now = self.inputs(external)
        heat = now.power - secret[0] * (state[0] - now.outdoor) + BODY * now.people
        return diagonal_gaussian(state + heat / CAPACITY, jnp.array([SD]))

    def react(self, external, shared, noise):
        now = self.inputs(external)
        wanted = jnp.where((now.hour >= 7.0) & (now.hour < 22.0), 21.0, 18.0)
        known = wanted if shared is None else shared[0]
        return (2.0 + 1.5 * (wanted - known))[None] + 0.1 * noise

    def cost(self, secret, state, after, shared, external):
        now = self.inputs(external)
        discomfort = jnp.abs(after[0] - 21.0)
        return {"discomfort": discomfort, "bill": now.power * now.tariff, "energy": now.power}

    def distortion(self, state, shared):
        return jnp.abs(state[0] - shared[0])

    def output(self, state):
        return state


class ByHand(System):
    """The same flat as it had to be written before: w = (power, outdoor, tariff, people, clock)."""

    prior: Prior
    table: Array

    secret_fields = Flat.secret_fields
    state_fields = Flat.state_fields
    external_fields = (*Flat.external_fields, *(Field(name) for name in ("o", "t", "p", "k")))
    shared_fields = Flat.shared_fields
    reaction_noise_size = 1

    def initial(self, secret):
        return diagonal_gaussian(jnp.array([20.0]), jnp.array([0.5]))

    def initial_external(self):
        return jnp.concatenate([jnp.array([2.0]), self.table[START], jnp.array([float(START)])])

    def transition(self, secret, state, external):
        heat = external[0] - secret[0] * (state[0] - external[1]) + BODY * external[3]
        return diagonal_gaussian(state + heat / CAPACITY, jnp.array([SD]))

    def react(self, external, shared, noise):
        hour = jnp.mod(external[4], 24.0)
        wanted = jnp.where((hour >= 7.0) & (hour < 22.0), 21.0, 18.0)
        assert shared is not None
        power = 2.0 + 1.5 * (wanted - shared[0]) + 0.1 * noise[0]
        after = external[4] + 1.0
        row = self.table[jnp.clip(after.astype(jnp.int32), 0, len(HOURS) - 1)]
        return jnp.concatenate([power[None], row, after[None]])

    def cost(self, secret, state, after, shared, external):
        return external[0] * external[2] + 2.0 * jnp.abs(after[0] - 21.0)

    def distortion(self, state, shared):
        return jnp.abs(state[0] - shared[0])

    def output(self, state):
        return state


def flat(start=START, **changes):
    columns = {"tariff": TARIFF, "outdoor": OUTDOOR, "people": PEOPLE} | changes
    return Flat(finite_prior([0.05, 0.1, 0.3]), Series(columns, start=start))


def by_hand():
    return ByHand(
        finite_prior([0.05, 0.1, 0.3]), jnp.asarray(np.stack([OUTDOOR, TARIFF, PEOPLE], axis=1), float)
    )


def log_likelihood(loss, states, power, start=START):
    """log p(x_2..x_T | x_1, θ) of a flat in numpy, for one path of temperatures and powers."""
    rows = np.arange(start, start + len(states) - 1)
    x, after = states[:-1], states[1:]
    mean = x + (power[: len(x)] - loss * (x - OUTDOOR[rows]) + BODY * PEOPLE[rows]) / CAPACITY
    return -0.5 * np.sum(((after - mean) / SD) ** 2)
