"""Which coordinates of a recording the transition of a system needs, read off the traced program."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike

from veil.laws import Gaussian
from veil.systems.base import System

_MOVING = {
    *("slice", "dynamic_slice", "squeeze", "reshape", "broadcast_in_dim", "transpose", "rev", "gather"),
    *("concatenate", "stack", "unstack", "split", "expand_dims", "copy", "convert_element_type"),
}

_ELEMENTWISE = {
    *("add", "sub", "mul", "div", "rem", "neg", "abs", "sign", "max", "min", "clamp", "select_n", "pow"),
    *("integer_pow", "sqrt", "rsqrt", "square", "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "tanh"),
    *("logistic", "erf", "floor", "ceil", "round", "and", "or", "not", "xor", "eq", "ne", "lt", "le"),
    *("gt", "ge", "is_finite", "add_any", "stop_gradient", "asin", "acos", "atan", "atan2", "sinh", "cosh"),
}

Marks = Bool[np.ndarray, "..."]


def dependence(function: Callable[[Array], Any], argument: Float[Array, " n"]) -> Bool[np.ndarray, "n m"]:
    """Row i says which of the m numbers that the function returns may change with number i of the argument.

    Args:
        function: of one array, returning arrays; traced, never run.
        argument: an example, for its size and type.
    """
    program = jax.make_jaxpr(function)(argument)
    rows = [_reach(program, one) for one in np.eye(argument.shape[0], dtype=bool)]
    return np.stack(rows) if rows else np.zeros((0, 0), bool)


def _reach(program: ClosedJaxpr, marks: Marks) -> Bool[np.ndarray, " m"]:
    found = _walk(program.jaxpr, [np.asarray(x) for x in program.consts], [marks])
    return np.concatenate([out.ravel() for out in found]) if found else np.zeros(0, bool)


def _walk(jaxpr: Jaxpr, constants: list[np.ndarray], marks: list[Marks]) -> list[Marks]:
    """The marks of all results. Constants are kept by value: they say where a slice begins."""
    values: dict[Any, np.ndarray] = dict(zip(jaxpr.constvars, constants, strict=True))
    reached: dict[Any, Marks] = dict(zip(jaxpr.invars, marks, strict=True))

    def mark(atom: Any) -> Marks:
        known = None if isinstance(atom, Literal) else reached.get(atom)
        return np.zeros(_shape(atom), bool) if known is None else known

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values.get(atom)

    for line in jaxpr.eqns:
        given, numbers = [mark(atom) for atom in line.invars], [value(atom) for atom in line.invars]
        if any(one.any() for one in given):
            reached.update(zip(line.outvars, _through(line, given, numbers), strict=True))
        elif _plain(line) and all(number is not None for number in numbers):
            values.update(zip(line.outvars, _computed(line, numbers), strict=True))
    return [mark(atom) for atom in jaxpr.outvars]


def _through(line: Any, given: list[Marks], values: list[Any]) -> list[Marks]:
    """The marks behind one operation."""
    name, shapes = line.primitive.name, [out.aval.shape for out in line.outvars]
    inner = next((x for x in line.params.values() if isinstance(x, ClosedJaxpr | Jaxpr)), None)
    if inner is not None and name in ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call"):
        body = inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner
        constants = [np.asarray(x) for x in inner.consts] if isinstance(inner, ClosedJaxpr) else []
        return _walk(body, constants, given)
    if name in _ELEMENTWISE:
        joined = np.zeros(shapes[0], bool)
        for one in given:
            joined = np.asarray(joined | one)
        return [joined]
    moved = len(given) if name in ("concatenate", "stack") else 1  # the other operands say where to
    if name in _MOVING and not any(one.any() for one in given[moved:]):
        operands = [jnp.asarray(one, atom.aval.dtype) for one, atom in zip(given, line.invars, strict=True)]
        if all(x is not None for x in values[moved:]):
            found = _computed(line, [*operands[:moved], *values[moved:]])
            return [np.asarray(out).astype(bool) for out in found]
    return [np.ones(shape, bool) for shape in shapes]


def _shape(atom: Any) -> tuple[int, ...]:
    return atom.aval.shape


def _plain(line: Any) -> bool:
    """Whether an operation computes whole numbers, as places of slices are, and calls no other program."""
    whole = all(not jnp.issubdtype(out.aval.dtype, jnp.inexact) for out in line.outvars)
    return whole and line.primitive.name in _MOVING | _ELEMENTWISE


def _computed(line: Any, values: list[Any]) -> list[Any]:
    found = line.primitive.bind(*[jnp.asarray(x) for x in values], **line.params)
    return list(found) if line.primitive.multiple_results else [found]


@dataclass(frozen=True)
class Needs:
    """What is used of a system's numbers.

    Attributes:
        state: coordinates of the state that the output shows; the others need not be recorded.
        external: inputs that the law of the next state uses; what the others were does not matter.
        telling: coordinates of the next state whose law uses the secret.
    """

    state: tuple[bool, ...]
    external: tuple[bool, ...]
    telling: tuple[bool, ...]


def needs(system: System) -> Needs:
    """Find out by tracing; nothing is simulated."""
    secret, external = system.prior.secrets[0], system.initial_external()
    state = system.initial(secret).mean
    size = state.shape[0]

    def parts(law: Gaussian):
        return law.mean, law.scale

    shown = dependence(system.output, state)
    used = dependence(lambda w: parts(system.transition(secret, state, w)), external)
    by_secret = dependence(lambda theta: parts(system.transition(theta, state, external)), secret)
    by_axis = np.asarray(np.any(by_secret, axis=0))
    telling = by_axis[:size] | np.any(by_axis[size:].reshape(size, size), axis=1)
    return Needs(_flags(np.any(shown, axis=1)), _flags(np.any(used, axis=1)), _flags(telling))


def _flags(found: ArrayLike) -> tuple[bool, ...]:
    return tuple(bool(x) for x in np.asarray(found))
