"""Examine a policy before sharing by it: does it keep the contract, and can it be audited?"""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from veil.checks.findings import ContractReport, Rule, Support, examined
from veil.evaluation.bounds import bounder_candidates, told_bounders
from veil.laws import Finite, Gaussian, GridGaussian, Law, MemoryKernel, Mixture
from veil.learners.pathwise import surrogate
from veil.policies.base import LearnedPolicy, Policy
from veil.policies.counterfactual import recovers_noise
from veil.policies.twin import twin_of
from veil.problem import problem
from veil.rollout import replay, rollout
from veil.step import Record, begin, first_features, first_law
from veil.systems.base import System, state_grid
from veil.systems.probes import degenerate, evaluate, law_fault
from veil.types import as_float64


def density(laws: Law) -> Support:
    """Compare draw and density of these laws, batched: filters weigh releases by `log_prob`."""
    laws = laws.fresh_law()
    if isinstance(laws, GridGaussian):
        return _grid_gaussian(laws)
    if isinstance(laws, Gaussian):
        return _gaussian(laws)
    if isinstance(laws, Finite):
        total = np.asarray(logsumexp(np.asarray(laws.log_masses, float), axis=-1))
        return _support(np.all(np.abs(total) < 1e-6), "The masses of a finite law must sum to one.")
    if isinstance(laws, Mixture):
        return _mixture(laws)
    return Support(True, f"A {type(laws).__name__} law has no density to compare.")


def _support(right: bool | np.bool, fault: str) -> Support:
    return Support(bool(right), "Draws and densities belong together." if right else fault)


def _gaussian(laws: Gaussian) -> Support:
    if degenerate(np.asarray(laws.scale)):
        return Support(False, "A Gaussian release without noise has no density; use Point or add noise.")
    noise = np.random.default_rng(1).standard_normal(laws.mean.shape)
    fault = law_fault(laws, jnp.asarray(noise, laws.mean.dtype))
    return _support(fault is None, f"{fault}.")


GRID_DRAWS, GRID_ERRORS = 4096, 6.0  # per law, and standard errors by which their moments may be off


def _grid_gaussian(laws: GridGaussian) -> Support:
    """On a public grid a Gaussian is discrete: draws are points of the grid and have its moments.

    Their derivative says nothing: it is taken to be that of the Gaussian before it was put on the grid.
    """
    size = laws.mean.shape[-1]
    plain = _gaussian(Gaussian(laws.mean, laws.scale))
    if not plain.ok:
        return plain
    noise = jnp.asarray(np.random.default_rng(2).standard_normal((GRID_DRAWS, laws.noise_size)))

    def draws(law: GridGaussian) -> tuple[Array, Array]:
        values = jax.vmap(law.sample)(noise)
        return values, jax.vmap(Gaussian(law.mean, law.scale).recover)(values)

    values, found = (np.asarray(one) for one in evaluate(jax.vmap(draws), laws))
    steps = np.asarray(laws.grid)
    off = np.where(steps > 0, values / np.where(steps > 0, steps, 1.0), 0.0)
    if not np.allclose(off, np.round(off), atol=1e-6):
        return Support(False, "A release is drawn beside the points of the public grid.")
    means, squares = found.mean(axis=1), np.einsum("bni,bnj->bij", found, found) / GRID_DRAWS
    error = GRID_ERRORS / np.sqrt(GRID_DRAWS)
    right = np.all(np.abs(means) < error) and np.all(np.abs(squares - np.eye(size)) < 2.0 * error)
    return _support(right, "On the public grid, draws do not have the mean and the covariance of the law.")


def _mixture(laws: Mixture) -> Support:
    """By the formula of a mixture, in scipy."""
    points = jnp.mean(laws.parts.mean, axis=-2) + 0.3
    found = np.asarray(jax.vmap(lambda law, point: law.log_prob(point))(laws, points))
    means, covariances = np.asarray(laws.parts.mean), np.asarray(laws.parts.covariance)
    wanted = [
        np.logaddexp.reduce([w + multivariate_normal(m, c).logpdf(y) for w, m, c in zip(*own, strict=True)])
        for y, own in zip(
            np.asarray(points),
            zip(np.asarray(laws.log_weights), means, covariances, strict=True),
            strict=True,
        )
    ]
    return _support(np.allclose(found, wanted, rtol=1e-6, atol=1e-6), "Weights must sum to one per release.")


STEPS, ROUNDS = 4, 2  # of the episodes that are played, and per secret

ROUNDING = 1e-9  # two programs round the last bits differently, and a few steps make more of it


def check_policy(policy: Policy | object, system: System | None = None) -> ContractReport:
    """Examine a policy on a few short episodes, in double precision. Never raises: faults become findings.

    Args:
        policy: any.
        system: the world to play in; the policy's own model if not given.
    """
    name = type(policy).__name__
    with jax.enable_x64(True):
        if not isinstance(policy, Policy):
            wrong = Support(False, f"{name} is not a policy; subclass veil.policies.Policy.")
            return examined(name, "policy", {"kind": Rule(lambda: wrong)})
        policy = as_float64(policy)
        world = policy.system if system is None else as_float64(system)
        return examined(name, "policy", _rules(policy, world))


def _rules(policy: Policy, world: System) -> dict[str, Rule]:
    """Those for every policy, then those of its kind."""
    played = cache(lambda: _played(policy, world))
    rules = {
        "law": Rule(lambda: _law(policy, world)),
        "pure": Rule(lambda: _pure(policy, world, played())),
        "density": Rule(lambda: density(_laws(policy, world))),
        "replay": Rule(lambda: _replayed(policy, played())),
    }
    if policy.has_memory:
        return rules | {"coupled": Rule(lambda: _coupled(policy, world, played()), "warning")}
    rules |= {"audit": Rule(lambda: _auditable(policy, world), "warning")}
    if isinstance(policy, LearnedPolicy):
        rules |= {"gradient": Rule(lambda: _gradient(policy, world), "warning")}
    return rules


def _first_law(policy: Policy, world: System) -> Law:
    """The law of the first release of the first secret, at the middle of the start."""
    secret = world.prior.secrets[0]
    state = world.initial(secret).mean[: len(policy.system.state_fields)]
    return first_law(policy, secret, state)


def _law(policy: Policy, world: System) -> Support:
    """A kernel gives a law of the release, of the size that the system shares, from what it may read."""
    time = jnp.asarray(1, jnp.int32)
    kernel = eqx.filter_eval_shape(
        lambda: policy.decide(first_features(policy), world.first_external(), time).opened()
    )
    if isinstance(kernel, MemoryKernel) and not policy.has_memory:
        return Support(False, "The kernel reads a private memory; say `has_memory = True` in the class.")
    law = eqx.filter_eval_shape(lambda: _first_law(policy, world))
    if not isinstance(law, Law):
        return Support(False, f"The kernel must return a law (veil.laws); got {type(law).__name__}.")
    noise = jax.ShapeDtypeStruct((law.noise_size,), world.prior.secrets.dtype)
    release = eqx.filter_eval_shape(lambda law, noise: law.sample(noise), law, noise)
    size = len(world.shared_fields)
    if release.shape != (size,):
        return Support(False, f"A release has shape {release.shape}; the system shares {size} numbers.")
    return Support(True, f"{type(law).__name__} releases of {size} numbers.")


def _played(policy: Policy, world: System) -> Record:
    """A few episodes, one by one, the same ones every time; traced anew at every call."""
    secrets = world.prior.secrets.shape[0]

    def one(number: Int[Array, ""]) -> Record:
        key = jr.fold_in(jr.key(11), number // secrets)  # episodes of a round share their noise
        index = number % secrets
        return rollout(world, policy, STEPS, public_seed=number // secrets, key=key, index=index)

    numbers = jnp.arange(ROUNDS * secrets, dtype=jnp.int32)
    return evaluate(lambda numbers: jax.lax.map(one, numbers), numbers)


def _pure(policy: Policy, world: System, first: Record) -> Support:
    """The same keys give the same releases, and all of them are numbers."""
    second = _played(policy, world)
    if not np.all(np.isfinite(first.public.shared)) or not np.all(np.isfinite(first.public.features)):
        return Support(False, "A release or a feature is not finite; guard divisions and logarithms.")
    same = all(
        np.array_equal(one, other)
        for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    )
    if not same:
        return Support(False, "Two runs with the same keys differ; draw nothing outside the law's noise.")
    return Support(True, f"{len(first.index)} episodes of {STEPS} steps, twice the same.")


def _laws(policy: Policy, world: System) -> Law:
    """The first release's law at a few secrets and states, batched."""
    secrets = world.prior.secrets
    numbers = np.random.default_rng(0).standard_normal((secrets.shape[0], len(world.state_fields)))

    def one(secret: Array, noise: Array) -> Law:
        state = world.initial(secret).sample(noise)[: len(policy.system.state_fields)]
        return first_law(policy, secret, state)

    return eqx.filter_jit(jax.vmap(one))(secrets, jnp.asarray(numbers))


def _replayed(policy: Policy, record: Record) -> Support:
    """Everybody can compute the features again from the transcript and the public seed."""
    public = record.public
    if not public.features.shape[-1]:
        return Support(True, "No features: the kernel depends on the input and the time alone.")
    found = evaluate(lambda given: jax.lax.map(lambda one: replay(policy, one), given), public)
    if not np.allclose(found, public.features, rtol=ROUNDING, atol=ROUNDING):
        return Support(False, "Features cannot be replayed; they must follow from what is public.")
    return Support(True, f"{public.features.shape[-1]} features per step, replayed from what is public.")


def _auditable(policy: Policy, world: System) -> Support:
    """The audit has a method that bounds the leakage from above."""
    candidates = bounder_candidates(world, policy) or told_bounders(world, policy)
    if not candidates:
        return Support(False, "No method bounds these releases from above; add a floor of noise.")
    return Support(True, f"Bounded from above by {candidates[0].name}.")


def _coupled(policy: Policy, world: System, record: Record) -> Support:
    """The same noise gives the same releases whatever the secret: how the audit bounds private memories."""
    secrets = world.prior.secrets.shape[0]
    shared = np.asarray(record.public.shared).reshape(ROUNDS, secrets, -1)
    memory = eqx.filter_eval_shape(lambda: begin(world, policy, world.prior.secrets[0], key=jr.key(0)).memory)
    coasted = eqx.filter_eval_shape(policy.coast_memory, memory, world.first_external())
    if (coasted.shape, coasted.dtype) != (memory.shape, memory.dtype):
        return Support(
            False, f"`coast_memory` must return a memory of shape {memory.shape}; got {coasted.shape}."
        )
    if twin_of(policy) is not None:
        return Support(True, "Releases are a public function of the noise that the self-model leaves.")
    if any(state_grid(policy.system)):  # the same noise is read otherwise under every secret
        decided = recovers_noise(policy)
        told = (
            "Releases depend on recovered noise alone."
            if decided
            else (
                "Readings are not turned into noise by the methods of `Counterfactual`, or a release depends "
                "on more than its copies; the audit has no bound from above behind a sensor."
            )
        )
        return Support(decided, told)
    gap = np.max(np.abs(shared - shared[:, :1]))
    if gap != 0.0:
        return Support(
            False,
            f"Releases of two secrets differ by {gap:.2g}; the audit will not certify. Where this is "
            "round-off, give the shared fields a resolution, or the policy a `finest` step.",
        )
    return Support(True, "All secrets release the same, given the same noise.")


def _gradient(policy: LearnedPolicy, world: System) -> Support:
    """The objective has a usable derivative in the network."""
    task, numbers = problem(world, 2), jnp.arange(2 * world.prior.secrets.shape[0], dtype=jnp.int32)
    kept, rest = eqx.partition(policy.network, eqx.is_inexact_array)

    def loss(weights: object) -> Array:
        whole = eqx.tree_at(lambda one: one.network, policy, eqx.combine(weights, rest))
        outcome = task.episodes(whole, numbers, key=jr.key(5))
        return surrogate(task, outcome, task.objective.distortion_price)

    slopes = [np.asarray(leaf) for leaf in jax.tree.leaves(evaluate(jax.grad(loss), kept))]
    if not all(np.all(np.isfinite(leaf)) for leaf in slopes):
        return Support(False, "The gradient of the objective is not finite; guard roots and logarithms.")
    if not any(np.any(leaf != 0.0) for leaf in slopes):
        return Support(False, "The gradient of the objective is zero everywhere; nothing can be learnt.")
    return Support(True, f"Finite in {sum(leaf.size for leaf in slopes)} weights, and not zero.")
