"""Examine a system of your own: prior, shapes, ranges, gradients, densities, supported methods."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from veil.checks.findings import Finding, Support, SystemReport, guarded, raised
from veil.laws import Gaussian, diagonal_gaussian
from veil.systems import probes as probing
from veil.systems.base import Field, Nouns, System, series_of
from veil.systems.probes import Probes, run_probes
from veil.systems.series import RESERVED
from veil.systems.variants import without_sensor


def check_prior(system: System) -> Iterator[Finding]:
    """Masses sum to one, secrets are finite and distinct."""
    secrets, log_masses = np.asarray(system.prior.secrets), np.asarray(system.prior.log_masses)
    if not np.all(np.isfinite(secrets)) or not np.all(np.isfinite(log_masses)):
        yield Finding(
            "error", "prior", "The prior has NaN or infinite entries; leave out secrets without mass."
        )
        return
    total = float(np.exp(log_masses.astype(float)).sum())
    if abs(total - 1.0) > 1e-4:
        message = f"The prior's masses sum to {total:.6g}, not to one; divide by the sum or use finite_prior."
        yield Finding("error", "prior", message)
    if len(np.unique(secrets, axis=0)) < len(secrets):
        yield Finding("error", "prior", "The prior lists a secret twice; merge the two and add their masses.")
    if len(secrets) < 2:
        yield Finding("warning", "nothing-to-hide", "The prior has one secret only; give at least two.")


def check_shapes(system: System) -> Iterator[Finding]:
    """Every method, traced without values, returns what the fields promise."""
    secret = jax.ShapeDtypeStruct(system.prior.secrets.shape[1:], system.prior.secrets.dtype)

    def vector(size: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((size,), secret.dtype)

    state, own = vector(len(system.state_fields)), vector(len(system.external_fields))
    external = vector(len(system.input_fields))
    shared, noise = vector(len(system.shared_fields)), vector(system.reaction_noise_size)
    scalar, law = jax.ShapeDtypeStruct((), secret.dtype), jax.eval_shape(diagonal_gaussian, state, state)
    calls = (
        ("initial", system.initial, (secret,), law),
        ("initial_external", system.initial_external, (), own),
        ("output", system.output, (state,), shared),
        ("transition", system.transition, (secret, state, external), law),
        ("react", system.react, (external, shared, noise), own),
        ("react without a release", lambda w, z: system.react(w, None, z), (external, noise), own),
        ("cost", system.total_cost, (secret, state, state, shared, external), scalar),
        ("distortion", system.distortion, (state, shared), scalar),
    )
    for name, method, arguments, wanted in calls:
        yield from guarded(
            name, lambda m=method, a=arguments, n=name, w=wanted: _compare(n, jax.eval_shape(m, *a), w)
        )


def _compare(name: str, found: object, wanted: object) -> Iterator[Finding]:
    """Whether what a method returns has the shape and the type of what it should."""
    if isinstance(wanted, Gaussian):
        if not isinstance(found, Gaussian):
            yield Finding("error", name, f"`{name}` must return a Gaussian; got {type(found).__name__}.")
            return
        yield from _compare(f"{name}.mean", found.mean, wanted.mean)
        yield from _compare(f"{name}.scale", found.scale, wanted.scale)
    elif not isinstance(found, jax.ShapeDtypeStruct) or not isinstance(wanted, jax.ShapeDtypeStruct):
        yield Finding("error", name, f"`{name}` must return one array; got {type(found).__name__}.")
    elif found.shape != wanted.shape:
        advice = "Correct the method, or the tuple of fields that states its size."
        yield Finding("error", name, f"`{name}` has shape {found.shape} instead of {wanted.shape}. {advice}")
    elif found.dtype != wanted.dtype:
        advice = f"Return the prior's type everywhere: `jnp.asarray(value, {wanted.dtype})`."
        yield Finding("error", name, f"`{name}` has type {found.dtype} instead of {wanted.dtype}. {advice}")


def check_fields(system: System) -> Iterator[Finding]:
    """One field per number of a secret, no name twice."""
    size = system.prior.secrets.shape[1]
    if len(system.secret_fields) != size:
        message = (
            f"secret_fields names {len(system.secret_fields)} numbers, but the prior's secrets have {size}."
        )
        yield Finding("error", "fields", f"{message} Give one Field each.")
    for kind in ("secret", "state", "input", "shared", "cost", "quantity"):
        names = [field.name for field in getattr(system, f"{kind}_fields")]
        if len(set(names)) < len(names):
            which = "external_fields and exogenous_fields use" if kind == "input" else f"{kind}_fields uses"
            yield Finding("error", "fields", f"{which} a name twice; values are looked up by name.")
    taken = [field.name for field in (*system.external_fields, *system.exogenous_fields)]
    for name in sorted(set(taken) & set(RESERVED)):
        message = f"{name!r} is what `inputs` calls the time; give that field of w another name."
        yield Finding("error", "fields", message)
    for kind in ("secret", "state", "external", "shared", "quantity"):
        for field in getattr(system, f"{kind}_fields"):
            if field.private:
                message = f"{field.name!r} in {kind}_fields cannot be private; only exogenous series can."
                yield Finding("error", "fields", message)
    yield from check_resolution(system)
    yield from check_step(system)


def check_step(system: System) -> Iterator[Finding]:
    """The length of a step, and the words for the system."""
    seconds, nouns = system.step_seconds, system.nouns
    if seconds is None:
        if system.has_clock:
            message = (
                "State step_seconds, the length of a step in seconds; without it there is no time of day."
            )
            yield Finding("warning", "step", message)
    elif not 0.0 < float(seconds) < np.inf:
        yield Finding(
            "error", "step", f"step_seconds is {float(seconds):g}; give a positive number of seconds."
        )
    if not isinstance(nouns, Nouns) or not all((nouns.owner, nouns.secret, nouns.candidate)):
        message = (
            "nouns must be a Nouns with three words, e.g. Nouns('the house', 'the insulation', 'house')."
        )
        yield Finding("error", "nouns", message)


def check_loop(system: System) -> Iterator[Finding]:
    """What the environment sees beside the releases."""
    if system.environment_sees_state:
        message = (
            "The environment sees the true state by other means than the releases, which `react` does not "
            "show: leakage is that of the releases only, and the policy twin is refused."
        )
        yield Finding("note", "environment", message)


def check_quantities(system: System, points: Probes) -> Iterator[Finding]:
    """One number for each of `quantity_fields`."""
    steps = 3
    states, rest = points.states[: steps + 1], (points.externals[:steps], points.shared[:steps])
    found = jax.eval_shape(system.quantities, states, *rest)
    if found.shape != (len(system.quantity_fields),):
        message = f"`quantities` has shape {found.shape} for {len(system.quantity_fields)} quantity_fields."
        yield Finding("error", "quantities", f"{message} Return one number each.")


def check_resolution(system: System) -> Iterator[Finding]:
    """A resolution for every state and shared field, or for none."""
    fields = [("state", field) for field in system.state_fields]
    fields += [("shared", field) for field in system.shared_fields]
    exact = [f"{kind} {field.name!r}" for kind, field in fields if field.resolution == 0]
    if exact and len(exact) < len(fields):
        advice = "Give every state and shared Field its step, or none of them."
        yield Finding(
            "error", "resolution", f"Some fields have a resolution, {', '.join(exact)} not. {advice}"
        )


def check_finite(system: System, points: Probes) -> Iterator[Finding]:
    """No NaN, no infinity, release withheld or not."""

    def values(at: Probes):
        return {
            "initial": system.initial(at.secrets),
            "transition": system.transition(at.secrets, at.states, at.externals),
            "output": at.shared,
            "react": at.externals,
            "react without a release": system.react(at.externals, None, at.reaction_noise),
            "cost": system.cost_parts(at.secrets, at.states, at.after, at.shared, at.externals),
            "distortion": system.distortion(at.states, at.shared),
        }

    for name, value in probing.evaluate(jax.vmap(values), points).items():
        if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(value)):
            message = f"`{name}` is not finite within a few steps; guard divisions and roots."
            yield Finding("error", "finite", message)


def check_ranges(system: System, points: Probes) -> Iterator[Finding]:
    """Values within the ranges that the fields state."""
    reached = {"secret": system.prior.secrets, "state": points.states}
    own = len(system.external_fields)
    reached |= {"external": points.externals[:, :own], "shared": points.shared}
    if (series := series_of(system)) is not None and series.names:
        places = [series.names.index(field.name) for field in system.exogenous_fields]
        reached |= {"exogenous": np.asarray(series.values)[:, places]}
    for kind, values in reached.items():
        fields: tuple[Field, ...] = getattr(system, f"{kind}_fields")
        for field, column in zip(fields, np.asarray(values).T, strict=True):
            if column.min() < field.low or column.max() > field.high:
                span = f"[{column.min():.4g}, {column.max():.4g}] leaves [{field.low:g}, {field.high:g}]"
                message = f"{kind} {field.name!r}: {span}; widen the Field's range or correct the dynamics."
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
        message = "`initial` depends on the secret, so that x_1 reveals it; start all alike."
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
        return system.total_cost(at.secrets, x[:size], x[size:], at.shared, at.externals)

    own = len(system.external_fields)  # no release changes the rest of w

    def push(at, w):
        return system.react(jnp.concatenate([w, at.externals[own:]]), at.shared, at.reaction_noise)

    def answer(at, y):
        return system.react(at.externals, y, at.reaction_noise)

    def distort(at, y):
        return system.distortion(at.states, y)

    return {
        ("transition", "the mean of `transition` in the state"): (move, points.states),
        **({("react", "`react` in the external input"): (push, points.externals[:, :own])} if own else {}),
        **({("react", "`react` in the release"): (answer, apart)} if own else {}),
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


_GRADIENTS = ("gradient-transition", "gradient-react", "gradient-distortion", "gradient-cost")

# What each method needs, and the rules whose findings rule it out.
METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "particle belief": ("Needs draws of the transition only.", ()),
    "guided proposals": ("The transition is Gaussian with a density.", ("degenerate-transition",)),
    "kalman belief": ("", ("gradient-transition",)),
    "observed likelihood": (
        "The output is the state and the transition has a density.",
        ("partial-output", "degenerate-transition"),
    ),
    "transport": (
        "The output is linear in the state, so its moments per secret are known.",
        ("bent-output",),
    ),
    "counterfactual": (
        "All secrets start alike and the transition's noise can be recovered.",
        ("initial-secret", "degenerate-transition"),
    ),
    "pathwise learning": ("Every function has usable gradients.", _GRADIENTS),
}

_KALMAN = {
    False: "Exact under linear Gaussian kernels: the transition is linear with constant noise.",
    True: "By linearisation only: the transition is not linear with constant noise.",
}

CHECKS = {
    "quantities": check_quantities,
    "finite": check_finite,
    "range": check_ranges,
    "secret": check_secret,
    "gradient": check_gradients,
    "density": check_density,
    "structure": check_structure,
}


def check_system(system: System | object) -> SystemReport:
    """Check a system at a few points of its own closed loop.

    The check never raises; it reports faults as findings. It examines shapes and types first, and values,
    gradients and densities only if those are right.
    """
    name = type(without_sensor(system) if isinstance(system, System) else system).__name__
    if not isinstance(system, System):
        message = f"{name} is not a System; subclass veil.systems.System and implement its methods."
        return _early(name, [Finding("error", "system", message)])
    findings = guarded("prior", lambda: check_prior(system))
    findings += guarded("shape", lambda: check_shapes(system))
    findings += guarded("fields", lambda: check_fields(system))
    findings += guarded("environment", lambda: check_loop(system))
    if any(finding.level == "error" for finding in findings):
        return _early(name, findings)
    try:
        points = run_probes(system)
    except Exception as error:
        return _early(name, [*findings, raised("run", error)])
    for rule, check in CHECKS.items():
        findings += guarded(rule, lambda check=check: check(system, points))
        if any(finding.rule == "finite" for finding in findings):
            return _early(name, findings)
    return SystemReport(name, tuple(findings), _supports(findings))


def _early(name: str, findings: list[Finding]) -> SystemReport:
    """A report that ends at faults which hide everything else."""
    return SystemReport(name, tuple(findings), _none())


def _supports(findings: list[Finding]) -> dict[str, Support]:
    """Verdicts from the rules that spoke."""
    if any(finding.level == "error" for finding in findings):
        return _none()
    spoken = {finding.rule: finding.message for finding in findings}
    bent = "nonlinear" in spoken or "noise-varies" in spoken
    verdicts = {}
    for method, (reason, hindrances) in METHODS.items():
        against = " ".join(spoken[rule] for rule in hindrances if rule in spoken)
        verdicts[method] = Support(not against, against or reason or _KALMAN[bent])
    return verdicts


def _none() -> dict[str, Support]:
    return {method: Support(False, "Correct the errors first.") for method in METHODS}
