"""Each fault a user can make is planted in a small sound system, and must be found."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from veil.checks.system import check_system
from veil.laws import Gaussian, diagonal_gaussian
from veil.systems import ColouredPlatoon, Field, Platoon, Prior, System, finite_prior

SOUND: dict[str, Callable] = {
    "initial": lambda secret: diagonal_gaussian(jnp.ones(2), jnp.array([0.5, 0.3])),
    "transition": lambda secret, state, external: diagonal_gaussian(
        secret[0] * state + external[0], jnp.array([0.1, 0.2])
    ),
    "react": lambda external, shared, noise: (
        0.1 * noise if shared is None else 0.1 * noise + 0.2 * shared[:1] + 0.3 * external
    ),
    "cost": lambda secret, state, after, shared: after @ after,
    "distortion": lambda state, shared: jnp.sum((state - shared) ** 2),
    "output": lambda state: state,
}


class Toy(System):
    """A sound system of which any part can be replaced."""

    prior: Prior = eqx.field(default_factory=lambda: finite_prior([0.3, 0.8]))
    parts: tuple = eqx.field(static=True, default=())

    state_fields = (Field("a"), Field("b"))
    secret_fields = (Field("rate", low=0.0, high=1.0),)
    external_fields = (Field("push"),)
    shared_fields = (Field("a"), Field("b"))
    reaction_noise_size = 1

    def _part(self, name: str) -> Callable:
        return {**SOUND, **dict(self.parts)}[name]

    def initial(self, secret):
        return self._part("initial")(secret)

    def initial_external(self):
        return jnp.zeros(1)

    def transition(self, secret, state, external):
        return self._part("transition")(secret, state, external)

    def react(self, external, shared, noise):
        return self._part("react")(external, shared, noise)

    def cost(self, secret, state, after, shared, external):
        return self._part("cost")(secret, state, after, shared)

    def distortion(self, state, shared):
        return self._part("distortion")(state, shared)

    def output(self, state):
        return self._part("output")(state)


def examine(**parts):
    return check_system(Toy(parts=tuple(parts.items())))


def named(*fields, **arguments):
    """The sound system under other names and ranges of its state."""

    class Named(Toy):
        state_fields = fields

    return check_system(Named(**arguments))


def rules(report, level):
    return {finding.rule for finding in report.findings if finding.level == level}


def complain(*_):
    raise KeyError("no such car")


class Shifted(Gaussian):
    """A law whose density is not that of its draws."""

    def log_prob(self, value):
        return -0.5 * jnp.sum((value - self.mean) ** 2)


def full_scale(secret, state, external):
    return Gaussian(secret[0] * state + external[0], jnp.array([[0.2, 0.1], [0.1, 0.2]]))


def misread(secret, state, external):
    return Shifted(secret[0] * state + external[0], 0.1 * jnp.eye(2))


def test_a_sound_system_passes_and_supports_every_method():
    report = check_system(Toy())
    assert report.ok and report.findings == ()
    assert all(report.supports.values())
    assert "ready to use" in str(report) and "counterfactual" in str(report)


@pytest.mark.parametrize(
    ("part", "value", "rule"),
    [
        ("initial", lambda secret: diagonal_gaussian(jnp.ones(3), jnp.ones(3)), "initial.mean"),
        ("initial", lambda secret: jnp.ones(2), "initial"),
        (
            "transition",
            lambda secret, state, external: diagonal_gaussian(state[:1], state[:1]),
            "transition.mean",
        ),
        ("output", lambda state: state[:1], "output"),
        ("cost", lambda secret, state, after, shared: after, "cost"),
        ("cost", lambda secret, state, after, shared: jnp.array(1), "cost"),
        ("distortion", lambda state, shared: 0, "distortion"),
        ("react", lambda external, shared, noise: jnp.zeros(4), "react"),
        ("react", lambda external, shared, noise: external + shared[:1], "react without a release"),
        ("transition", complain, "transition"),
        ("cost", lambda secret, state, after, shared: 1.0 * after[0] if after[0] > 0 else 0.0, "cost"),
    ],
)
def test_wrong_shapes_types_and_exceptions_are_found_where_they_are(part, value, rule):
    report = examine(**{part: value})
    assert not report.ok and rule in rules(report, "error")
    assert not any(report.supports.values())


def test_an_exception_is_told_with_its_words():
    assert "no such car" in str(examine(distortion=complain))


def test_something_else_is_not_a_system():
    assert not check_system("platoon").ok


@pytest.mark.parametrize(
    "prior",
    [
        Prior(jnp.array([[0.3], [0.8]]), jnp.array([-0.1, -0.2])),
        Prior(jnp.array([[0.3], [0.8]]), jnp.array([0.0, -jnp.inf])),
        Prior(jnp.array([[0.3], [jnp.nan]]), jnp.log(jnp.array([0.5, 0.5]))),
        Prior(jnp.array([[0.3], [0.3]]), jnp.log(jnp.array([0.5, 0.5]))),
    ],
    ids=["sum", "no mass", "nan", "twice"],
)
def test_a_bad_prior_is_an_error(prior):
    assert rules(check_system(Toy(prior=prior)), "error") == {"prior"}


def test_fields_that_do_not_match_are_errors():
    assert not named(Field("a")).ok
    assert "fields" in rules(named(Field("a"), Field("a")), "error")
    assert "fields" in rules(check_system(Toy(prior=finite_prior([[0.1, 0.2], [0.3, 0.4]]))), "error")


def test_values_out_of_range_are_told():
    report = named(Field("a", low=5.0), Field("b"), prior=finite_prior([0.5, 2.0]))
    messages = [finding.message for finding in report.findings if finding.rule == "range"]
    assert report.ok and len(messages) == 2
    assert "'rate'" in messages[0] and "'a'" in messages[1]


def test_nan_is_an_error():
    report = examine(cost=lambda secret, state, after, shared: jnp.log(-after @ after))
    assert "finite" in rules(report, "error")


@pytest.mark.parametrize("transition", [full_scale, misread])
def test_a_density_that_is_not_that_of_the_draws_is_an_error(transition):
    assert "density" in rules(examine(transition=transition), "error")


FLAT = {
    "distortion": lambda state, shared: jnp.sqrt(jnp.sum((state - shared) ** 2)),  # NaN at the truth
    "cost": lambda secret, state, after, shared: jnp.round(100.0 * after[0]),
    "react": lambda external, shared, noise: external if shared is None else jnp.floor(30.0 * shared[:1]),
}
STOPPED = {
    "distortion": lambda state, shared: jax.lax.stop_gradient(jnp.sum((state - shared) ** 2)),
    "cost": lambda secret, state, after, shared: after[0] + jax.lax.stop_gradient(5.0 * after[1]),
}


@pytest.mark.parametrize("parts", [FLAT, STOPPED], ids=["flat", "stopped"])
def test_missing_gradients_rule_out_pathwise_learning_only(parts):
    report = examine(**parts)
    assert report.ok and rules(report, "warning") == {f"gradient-{part}" for part in parts}
    assert not report.supports["pathwise learning"]
    assert report.supports["particle belief"] and report.supports["counterfactual"]


def test_a_secret_that_moves_only_the_start_is_told_twice():
    report = examine(
        initial=lambda secret: diagonal_gaussian(jnp.ones(2) * secret[0], jnp.ones(2)),
        transition=lambda secret, state, external: diagonal_gaussian(0.5 * state, jnp.ones(2)),
    )
    assert rules(report, "warning") == {"nothing-to-hide", "initial-secret"}
    assert not report.supports["counterfactual"] and report.supports["transport"]


def test_a_noise_free_direction_rules_out_densities():
    def half(secret, state, external):
        return diagonal_gaussian(secret[0] * state + external[0], jnp.array([0.1, 0.0]))

    report = examine(transition=half)
    assert report.ok and "degenerate-transition" in rules(report, "warning")
    for method in ("counterfactual", "observed likelihood", "guided proposals"):
        assert not report.supports[method]
    assert report.supports["particle belief"]


def test_a_known_start_is_only_noted():
    report = check_system(Platoon(initial_sd=0))
    assert report.ok and "degenerate-initial" in rules(report, "note")
    assert report.supports["counterfactual"]


def test_linearity_is_measured():
    def bent(secret, state, external):
        return diagonal_gaussian(secret[0] * jnp.tanh(state) + external[0], jnp.ones(2))

    def louder(secret, state, external):
        return diagonal_gaussian(secret[0] * state + external[0], 0.1 + state**2)

    report = examine(transition=bent, output=lambda state: state**2)
    assert rules(report, "note") == {"nonlinear", "partial-output", "bent-output"}
    assert "linearisation" in report.supports["kalman belief"].reason and not report.supports["transport"]
    report = examine(transition=louder)
    assert rules(report, "note") == {"noise-varies"}
    assert "linearisation" in report.supports["kalman belief"].reason


def test_coloured_noise_hides_a_coordinate_from_the_observed_likelihood():
    report = check_system(ColouredPlatoon())
    assert report.ok and not report.supports["observed likelihood"]


def test_the_platoon_passes_in_double_precision(float64):
    assert check_system(Platoon()).ok
