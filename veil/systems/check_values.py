"""The second part of an examination: values, gradients, densities and structure at the probes."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from veil.laws import Gaussian
from veil.systems import probes as probing
from veil.systems.base import Field, System
from veil.systems.probes import Probes
from veil.systems.report import Finding


def check_finite(system: System, points: Probes) -> Iterator[Finding]:
    """No NaN, no infinity, release withheld or not."""

    def values(at: Probes):
        return {
            "initial": system.initial(at.secrets),
            "transition": system.transition(at.secrets, at.states, at.externals),
            "output": at.shared,
            "react": at.externals,
            "react without a release": system.react(at.externals, None, at.reaction_noise),
            "cost": system.cost(at.secrets, at.states, at.after, at.shared),
            "distortion": system.distortion(at.states, at.shared),
        }

    for name, value in probing.evaluate(jax.vmap(values), points).items():
        if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(value)):
            message = f"`{name}` is not finite within a few steps; guard divisions and roots."
            yield Finding("error", "finite", message)


def check_ranges(system: System, points: Probes) -> Iterator[Finding]:
    """Values within the ranges that the fields state."""
    reached = {"secret": system.prior.secrets, "state": points.states}
    reached |= {"external": points.externals, "shared": points.shared}
    for kind, values in reached.items():
        fields: tuple[Field, ...] = getattr(system, f"{kind}_fields")
        for field, column in zip(fields, np.asarray(values).T, strict=True):
            if column.min() < field.low or column.max() > field.high:
                span = f"[{column.min():.4g}, {column.max():.4g}] leaves [{field.low:g}, {field.high:g}]"
                message = f"{kind} {field.name!r}: {span}; widen the Field's range or mend the dynamics."
                yield Finding("warning", "range", message)


def check_secret(system: System, points: Probes) -> Iterator[Finding]:
    """The transition should depend on the secret, the start should not."""
    secrets = probing.some_secrets(system, 32)

    def laws(secret: jax.Array) -> tuple[Gaussian, Gaussian]:
        return system.initial(secret), jax.vmap(system.transition, (None, 0, 0))(
            secret, points.states, points.externals
        )

    def alike(law: Gaussian) -> bool:
        return all(np.allclose(leaf, leaf[:1], rtol=1e-6, atol=1e-9) for leaf in jax.tree.leaves(law))

    starts, moves = probing.evaluate(jax.vmap(laws), secrets)
    if len(secrets) > 1 and alike(moves):
        message = "`transition` does not depend on the secret, so nothing can leak; is the secret used?"
        yield Finding("warning", "nothing-to-hide", message)
    if not alike(starts):
        message = "`initial` depends on the secret, so the first release already tells; start all alike."
        yield Finding("warning", "initial-secret", message)


def check_gradients(system: System, points: Probes) -> Iterator[Finding]:
    """Gradients that learning follows: present, finite, right."""
    slopes = {}
    for (method, name), case in _gradient_cases(system, points).items():
        try:
            jax.eval_shape(lambda case=case: probing.slope(case[0], points, case[1]))
            slopes[method, name] = case
        except Exception as error:
            message = (
                f"{name} cannot be differentiated ({type(error).__name__}); use differentiable operations."
            )
            yield Finding("warning", f"gradient-{method}", f"The gradient of {message}")
    found = probing.evaluate(
        lambda at: {key: probing.slope(f, at, where) for key, (f, where) in slopes.items()}, points
    )
    for (method, name), slope in found.items():
        if name.endswith("truth"):  # a kink is allowed here, NaN is not
            fault = None if np.all(np.isfinite(slope.gradients)) else "is not finite"
            advice = "Write jnp.where(q > 0, jnp.sqrt(jnp.where(q > 0, q, 1.0)), 0.0) instead of jnp.sqrt(q)."
        else:
            fault = slope.fault()
            advice = "Look for rounding, comparisons, stop_gradient, and roots or divisions at zero."
        if fault:
            yield Finding("warning", f"gradient-{method}", f"The gradient of {name} {fault}. {advice}")


def _gradient_cases(system: System, points: Probes) -> dict[tuple[str, str], tuple[Callable, jax.Array]]:
    """Method and argument, the function of (probe, argument), and where to look."""
    size = points.states.shape[1]
    both = jnp.concatenate([points.states, points.after], axis=1)
    apart = points.shared + probing.stride(points.shared, 1.0)[None, :]

    def move(at, x):
        return system.transition(at.secrets, x, at.externals).mean

    def pay(at, x):
        return system.cost(at.secrets, x[:size], x[size:], at.shared)

    def push(at, w):
        return system.react(w, at.shared, at.reaction_noise)

    def answer(at, y):
        return system.react(at.externals, y, at.reaction_noise)

    def distort(at, y):
        return system.distortion(at.states, y)

    return {
        ("transition", "the mean of `transition` in the state"): (move, points.states),
        ("react", "`react` in the external input"): (push, points.externals),
        ("react", "`react` in the release"): (answer, apart),
        ("distortion", "`distortion` in the release"): (distort, apart),
        ("distortion", "`distortion` in a release that is the truth"): (distort, points.shared),
        ("cost", "`cost` in the states"): (pay, both),
    }


def check_density(system: System, points: Probes) -> Iterator[Finding]:
    """Draw, density and recovered noise of both laws agree."""
    laws = probing.evaluate(
        jax.vmap(
            lambda at: {
                "initial": system.initial(at.secrets),
                "transition": system.transition(at.secrets, at.states, at.externals),
            }
        ),
        points,
    )
    for name, law in laws.items():
        if not probing.degenerate(law.scale):
            if fault := probing.law_fault(law, points.noise):
                yield Finding("error", "density", f"In the law of `{name}`, {fault}.")
        elif name == "initial":
            message = "The initial law has no density: the start is known, exactly or in some direction."
            yield Finding("note", "degenerate-initial", message)
        else:
            message = "The transition has no density: some direction has no noise; add a little."
            yield Finding("warning", "degenerate-transition", message)


def check_structure(system: System, points: Probes) -> Iterator[Finding]:
    """Facts that decide which methods apply; none is a fault."""

    def move(at: Probes, state: jax.Array) -> tuple[Gaussian, jax.Array]:
        return system.transition(at.secrets, state, at.externals), system.output(state)

    laws, outputs = zip(*probing.along(move, points), strict=True)
    if probing.bent(*(law.mean for law in laws)):
        yield Finding("note", "nonlinear", "The mean of `transition` is not linear in the state.")
    if not np.allclose(laws[0].scale, laws[1].scale, rtol=1e-5, atol=1e-9):
        yield Finding("note", "noise-varies", "The noise of `transition` depends on the state.")
    if points.shared.shape != points.states.shape or not np.array_equal(points.shared, points.states):
        yield Finding(
            "note", "partial-output", "`output` is not the state itself: part of it is never shared."
        )
    if probing.bent(*outputs):
        yield Finding("note", "bent-output", "`output` is not linear in the state.")
