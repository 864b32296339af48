"""The check of a leakage method: is it an upper bound, a lower bound or unbiased, as it claims?"""

from collections.abc import Callable
from functools import cached_property
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from veil.checks.findings import ContractReport, Rule, Support, examined
from veil.laws import Components, Gaussian
from veil.leakage.quadrature import quadrature
from veil.systems.probes import evaluate
from veil.types import Scalar

LeakageMethod = Callable[..., Scalar]

Side = Literal["upper", "lower", "estimate"]

SECRETS, EACH, SIZE = 3, 2, 2  # of the mixtures that are measured

KEYS = 64  # per mixture, for an estimate

ERRORS = 5.0  # standard errors that an estimate may be off, for the worst of all mixtures

ROUNDING = 1e-6


def check_measure(measure: LeakageMethod, side: Side = "upper") -> ContractReport:
    """Check a leakage method on labelled Gaussian mixtures whose information is known by quadrature.

    The check never raises; it reports faults as findings. Everything runs in double precision.

    Args:
        measure: called as `measure(components, key=key)`, returns nats; it may ignore the key.
        side: what the method claims to be: an "upper" or "lower" bound, or an unbiased "estimate".
    """
    name = getattr(measure, "__name__", type(measure).__name__)
    with jax.enable_x64(True):
        return examined(name, "measure", _rules(_Exam(measure, side)))


class _Exam:
    """A measure on all mixtures, computed once."""

    def __init__(self, measure: LeakageMethod, side: Side):
        self.measure, self.side = measure, side
        self.mixtures, self.silent = _mixtures(), _silent()

    @cached_property
    def found(self) -> np.ndarray:
        """(mixtures, the same in another order, the silent one; keys) nats."""
        places = np.arange(SECRETS * EACH).reshape(SECRETS, EACH)[::-1, ::-1].reshape(-1)
        turned = jax.tree.map(lambda leaf: leaf[:, places], self.mixtures)
        turned = eqx.tree_at(lambda one: one.labels, turned, self.mixtures.labels)
        single = jax.tree.map(lambda leaf: leaf[None], self.silent)
        given = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), self.mixtures, turned, single)
        keys = jr.split(jr.key(3), KEYS if self.side == "estimate" else 1)
        return evaluate(jax.vmap(lambda one: jax.vmap(lambda key: self.measure(one, key=key))(keys)), given)

    @property
    def values(self) -> np.ndarray:
        """Nats of shape (mixtures, keys)."""
        return self.found[: len(self.truth)]

    @cached_property
    def truth(self) -> np.ndarray:
        """Their information, each on a grid of its own."""
        weights, parts = np.exp(np.asarray(self.mixtures.log_weights)), self.mixtures.parts
        rows = zip(np.asarray(self.mixtures.labels), weights, parts.mean, parts.covariance, strict=True)
        return np.array([quadrature(*(np.asarray(part) for part in row)).value for row in rows])


def _rules(exam: _Exam) -> dict[str, Rule]:
    rules = {
        "number": Rule(lambda: _number(exam)),
        exam.side: Rule(lambda: _sided(exam)),
        "nothing": Rule(lambda: _nothing(exam), "warning"),
        "entropy": Rule(lambda: _entropy(exam), "warning"),
        "gradient": Rule(lambda: _gradient(exam), "warning"),
    }
    if exam.side != "estimate":  # draws follow the order of the components
        rules["order"] = Rule(lambda: _order(exam))
    return rules


def _mixtures() -> Components:
    """Batched: from secrets that nearly agree to secrets that are plain to see, and a rare one."""
    draws, count = np.random.default_rng(4), SECRETS * EACH
    apart = np.array([0.05, 0.3, 1.0, 3.0, 8.0, 1.0])[:, None, None, None]
    within = np.array([0.2, 0.2, 0.2, 1.0, 1.0, 0.2])[:, None, None, None]
    number, rare = len(apart), np.array([0.98, 0.01, 0.01])
    means = apart * draws.standard_normal((number, SECRETS, 1, SIZE))
    means = means + within * draws.standard_normal((number, SECRETS, EACH, SIZE))
    means = means.reshape(number, count, SIZE)
    scales = 0.7 * np.eye(SIZE) + 0.15 * np.tril(draws.standard_normal((number, count, SIZE, SIZE)))
    weights = draws.dirichlet(np.full(count, 3.0), number)
    weights[-1] = np.repeat(rare, EACH) / EACH
    made = [_components(*row) for row in zip(weights, means, scales, strict=True)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *made)


def _silent() -> Components:
    """One mixture whose law does not depend on the secret."""
    draws = np.random.default_rng(5)
    mean = np.tile(draws.standard_normal((EACH, SIZE)), (SECRETS, 1))
    scale = np.tile(np.array([[[0.8, 0.0], [0.2, 0.5]], [[0.4, 0.0], [-0.1, 0.9]]]), (SECRETS, 1, 1))
    weights = np.outer([0.5, 0.3, 0.2], [0.6, 0.4]).reshape(-1)
    return _components(weights, mean, scale)


def _components(weights: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> Components:
    labels = np.repeat(np.arange(SECRETS, dtype=np.int32), EACH)
    parts = Gaussian(jnp.asarray(mean), jnp.asarray(scale))
    return Components(jnp.asarray(labels), jnp.asarray(np.log(weights)), parts, SECRETS, EACH)


def _number(exam: _Exam) -> Support:
    """One finite number for one mixture."""
    found = jax.eval_shape(lambda one: exam.measure(one, key=jr.key(0)), exam.silent)
    if getattr(found, "shape", None) != () or not jnp.issubdtype(found.dtype, jnp.floating):
        return Support(False, f"A measure returns one number of nats; got {found}.")
    if not np.all(np.isfinite(exam.found)):
        return Support(False, "A number is not finite; guard logarithms, and fall back on the entropy.")
    return Support(True, "One finite number per mixture.")


def _sided(exam: _Exam) -> Support:
    """On the side of the quadrature that it claims."""
    truth, found, side = exam.truth, exam.values, exam.side
    above, error = found.mean(axis=1) - truth, found.std(axis=1) / np.sqrt(found.shape[1])
    worst = float(np.min(above)) if side == "upper" else float(np.max(above))
    if side == "upper" and worst < -ROUNDING:
        return Support(False, f"It is {-worst:.3g} nats below the truth of {truth[above.argmin()]:.3g}.")
    if side == "lower" and worst > ROUNDING:
        return Support(False, f"It is {worst:.3g} nats above the truth of {truth[above.argmax()]:.3g}.")
    off = float(np.max(np.abs(above) / (error + ROUNDING)))
    if side == "estimate" and off > ERRORS:
        return Support(False, f"Its mean is {off:.1f} standard errors off the truth.")
    return Support(True, f"{len(truth)} mixtures, at most {np.max(np.abs(above)):.2g} nats off the truth.")


def _nothing(exam: _Exam) -> Support:
    """Zero where the release does not depend on the secret."""
    found = float(np.max(np.abs(exam.found[-1])))
    if found > ROUNDING:
        return Support(False, f"{found:.3g} nats where nothing leaks; a learner would pay for that.")
    return Support(True, "Zero where nothing leaks.")


def _entropy(exam: _Exam) -> Support:
    """At most H(q), at least on average."""
    entropies = np.asarray(jax.vmap(lambda one: one.entropy)(exam.mixtures))
    over = float(np.max(exam.values.mean(axis=1) - entropies))
    if over > ROUNDING:
        return Support(False, f"{over:.3g} nats more than H(q); take the minimum with components.entropy.")
    return Support(True, "Never more than H(q).")


def _order(exam: _Exam) -> Support:
    """The same whatever the order of the secrets, and of the components of each."""
    count = len(exam.truth)
    apart = float(np.max(np.abs(exam.values - exam.found[count : 2 * count])))
    if apart > ROUNDING:
        return Support(False, f"Another order of the same components changes it by {apart:.3g} nats.")
    return Support(True, "Order does not matter.")


def _gradient(exam: _Exam) -> Support:
    """Finite derivatives in means and factors, also where nothing leaks."""
    given = jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), exam.mixtures, exam.silent)

    def slope(one: Components) -> Gaussian:
        def value(parts: Gaussian) -> Scalar:
            whole = Components(one.labels, one.log_weights, parts, SECRETS, EACH)
            return exam.measure(whole, key=jr.key(0))

        return jax.grad(value)(one.parts)

    leaves = jax.tree.leaves(evaluate(jax.vmap(slope), given))
    if not all(np.all(np.isfinite(leaf)) for leaf in leaves):
        return Support(False, "A derivative is not finite; learners cannot follow it.")
    if not any(np.any(leaf != 0.0) for leaf in leaves):
        return Support(False, "All derivatives are zero; learners cannot follow it.")
    return Support(True, "Finite derivatives in means and factors.")
