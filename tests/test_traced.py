"""What a program does to its numbers: never taken for less than it does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veil.beliefs import ObservedBelief
from veil.policies import GaussianNoise, Subsampled, Truth
from veil.policies.plain import TruthKernel
from veil.sharing.budget import budgeted
from veil.step import sees_state
from veil.systems import Gain, Platoon
from veil.traced import MIXED, degrees, is_identity, moved_numbers

MOVES = {  # what only moves numbers, and where each comes from
    "as it is": (lambda x: x, [0, 1, 2, 3]),
    "taken apart": (lambda x: jnp.stack([x[0], x[1], x[2], x[3]]), [0, 1, 2, 3]),
    "reshaped": (jax.jit(lambda x: x.reshape(2, 2).ravel()), [0, 1, 2, 3]),
    "a part": (lambda x: x[1:3], [1, 2]),
    "by places": (lambda x: x[jnp.array([3, 0])], [3, 0]),
    "reversed": (lambda x: x[::-1], [3, 2, 1, 0]),
    "with a constant": (lambda x: jnp.concatenate([x[:1], jnp.ones(1)]), [0, MIXED]),
}

SENSORS = {  # the identity at most points, or to most digits, and yet not the identity
    "absolute": jnp.abs,
    "rectified": jax.nn.relu,
    "softly rectified": jax.nn.leaky_relu,
    "saturated": lambda x: jnp.clip(x, -1e3, 1e3),
    "by a condition": lambda x: jnp.where(x > 100.0, 0.0, x),
    "in the ninth digit": lambda x: x * (1.0 + 1e-9),
    "beyond the digits": lambda x: x + 1e-30,
    "in half precision": lambda x: x.astype(jnp.float16).astype(x.dtype),
    "rounded": lambda x: jnp.round(x, 6),
    "wrapped": lambda x: jnp.mod(x + 1e6, 2e6) - 1e6,
    "by a called program": lambda x: jax.pure_callback(
        lambda y: y, jax.ShapeDtypeStruct(x.shape, x.dtype), x
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_numbers_that_are_only_moved_are_followed(name):
    function, places = MOVES[name]
    example = jnp.asarray([5.0, 6.0, 7.0, 8.0])
    found = moved_numbers(function, example)
    assert found.tolist() == places
    known = found >= 0
    np.testing.assert_array_equal(np.asarray(function(example))[known], np.asarray(example)[found[known]])
    assert is_identity(function, example) == (places == [0, 1, 2, 3])


@pytest.mark.parametrize("name", SENSORS)
def test_a_sensor_that_is_nearly_the_identity_is_not(name):
    """Each gives back what it is given at the point where it used to be tested, to seven digits."""
    function, point = SENSORS[name], jnp.full(4, 1.25)
    np.testing.assert_allclose(function(point), point, rtol=1e-5)
    assert not is_identity(function, point)
    if name != "by a called program":
        assert not is_identity(jax.jit(function), point)


def test_another_argument_has_no_part_in_the_identity():
    x, k = jnp.ones(2), jnp.asarray(1)
    assert is_identity(lambda x, k: x, x, k)
    assert not is_identity(lambda x, k: jnp.where(k > 3, 0.0, x), x, k)
    assert not is_identity(lambda x, other: other, x, x)


AFFINE = {
    "constant": (lambda x, p: p * 2.0, 0),
    "moved": (lambda x, p: x[1:], 1),
    "a product": (lambda x, p: jnp.ones((3, 2)) @ x + p, 1),
    "a gain": (lambda x, p: p * x - x / jnp.exp(p), 1),
    "chosen by another": (lambda x, p: jnp.where(p > 0, x, -x), 1),
    "mean": (lambda x, p: jnp.mean(x), 1),
    "chosen by itself": (lambda x, p: jnp.where(x > 0, x, x), 2),
    "clipped": (lambda x, p: jnp.clip(x, -9.0, 9.0), 2),
    "a square": (lambda x, p: x[0] * x[1], 2),
    "divided by": (lambda x, p: p / x, 2),
    "sine": (lambda x, p: jnp.sin(x), 2),
    "by its own place": (lambda x, p: x[jnp.argmax(x)], 2),
}


@pytest.mark.parametrize("name", AFFINE)
def test_affine_programs_have_degree_one(name):
    """Of a program called affine, the second difference must vanish; of a constant one, the first."""
    function, degree = AFFINE[name]
    x, p = jnp.asarray([0.3, -0.7]), jnp.asarray(0.4)
    assert degrees(function, x, p) == (degree,)
    step = jnp.asarray([0.9, 1.7])
    first, middle, last = (np.asarray(function(x + i * step, p)) for i in (0, 1, 2))
    if degree <= 1:
        np.testing.assert_allclose(first + last, 2 * middle, atol=1e-5)
    if degree == 0:
        np.testing.assert_array_equal(first, last)


HALF = {  # affine in the first number, whatever the second does
    "a limit": (lambda x: jnp.stack([x[0] + jnp.clip(x[1], 0.0, 1.0), x[1] ** 2]), 1),
    "a gain": (lambda x: x[0] * jnp.exp(x[1]), 1),
    "chosen": (lambda x: jnp.where(x[1] > 0, x, -x)[0], 1),
    "unpacked": (lambda x: (lambda a, b: a / b + jnp.sin(b))(*x), 1),
    "left out": (lambda x: jnp.tanh(x[1:]), 0),
    "limited itself": (lambda x: jnp.clip(x, 0.0, 1.0), 2),
    "limited together": (lambda x: jnp.maximum(x[0], x[1]), 2),
    "chooses": (lambda x: jnp.where(x[0] > 0, x[1], 0.0), 2),
    "divides": (lambda x: x[1] / x[0], 2),
    "mixed first": (lambda x: jnp.sin(jnp.ones((2, 2)) @ x), 2),
}


@pytest.mark.parametrize("name", HALF)
def test_a_number_that_is_held_fixed_may_enter_in_any_way(name):
    function, degree = HALF[name]
    assert degrees(function, jnp.asarray([0.3, 0.7]), fixed=(1,)) == (degree,)


def absolute_gain():
    """The gain loop, seen through a sensor that shows |x|."""

    class Sensed(Gain):
        def output(self, state):
            return jnp.abs(state)

    return Sensed()


def test_whether_the_state_is_released_is_decided_from_the_program():
    for system in (Gain(), Platoon()):
        truth = Truth(system)
        assert sees_state(system, truth) and sees_state(system, budgeted(truth, 0.1))
        assert not sees_state(system, GaussianNoise(system, jnp.ones(len(system.shared_fields))))
        assert not sees_state(system, Subsampled(truth, 3))
    sensed = absolute_gain()
    assert not sees_state(sensed, Truth(sensed))


def test_nothing_else_than_the_state_is_charged_by_transition_densities():
    """A budget over |x| was exceeded thirteenfold: charged as x, whose law |x| does not have."""
    sensed = absolute_gain()
    with pytest.raises(ValueError, match="whole state"):
        budgeted(Truth(sensed), 0.01)
    with pytest.raises(TypeError, match="whole state"):
        ObservedBelief.start(sensed).components(TruthKernel(sensed))
    whole = jax.jit(lambda: ObservedBelief.start(Gain()).components(TruthKernel(Gain())).parts.mean)()
    assert whole.shape[-1] == 1
