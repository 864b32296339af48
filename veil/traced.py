"""What a function does to its numbers, decided from its traced program and not from values at some points.

A program is walked operation by operation. What an operation is not known to do, it may do: answers err on
the side of "depends", "is not moved", "is not affine".
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import Array, Bool, Float, Int

MOVING = {
    *("slice", "dynamic_slice", "squeeze", "reshape", "broadcast_in_dim", "transpose", "rev", "gather"),
    *("concatenate", "stack", "unstack", "split", "expand_dims", "copy", "convert_element_type"),
}

ELEMENTWISE = {
    *("add", "sub", "mul", "div", "rem", "neg", "abs", "sign", "max", "min", "clamp", "select_n", "pow"),
    *("integer_pow", "sqrt", "rsqrt", "square", "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "tanh"),
    *("logistic", "erf", "floor", "ceil", "round", "and", "or", "not", "xor", "eq", "ne", "lt", "le"),
    *("gt", "ge", "is_finite", "add_any", "stop_gradient", "asin", "acos", "atan", "atan2", "sinh", "cosh"),
}

CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")

SUMS = ("add", "sub", "neg", "add_any", "reduce_sum", "cumsum")

# Marks say something about every number of an array; 0 always means that the argument has no part in it.
Marks = np.ndarray
Rule = Callable[[Any, list[Marks], list[Any]], list[Marks]]

MIXED = -1  # mark of a number that is more than one number of the argument moved to another place


def dependence(function: Callable[[Array], Any], argument: Float[Array, " n"]) -> Bool[np.ndarray, "n m"]:
    """Row i says which of the m numbers that the function returns may change with number i of the argument.

    Args:
        function: of one array, returning arrays; traced, never run.
        argument: an example, for its size and type.
    """
    program = jax.make_jaxpr(function)(argument)
    rows = [_flat(_walk(program, [one], _reached)) for one in np.eye(argument.shape[0], dtype=np.int64)]
    return np.stack(rows).astype(bool) if rows else np.zeros((0, 0), bool)


def moved_numbers(function: Callable[..., Any], argument: Array, *others: Any) -> Int[np.ndarray, " m"]:
    """For each number that the function returns, the place in the argument that it is copied from.

    0 to n − 1 is such a place. `MIXED` is any other number: computed from the argument or from the others, or
    rounded to a shorter type.

    Args:
        function: of the argument and the others, returning arrays; traced, never run.
        argument: an example, for its shape and type.
        others: further arguments, in which any part makes a number `MIXED`.
    """
    program = jax.make_jaxpr(function)(argument, *others)
    places = np.arange(1, argument.size + 1, dtype=np.int64).reshape(argument.shape)
    rest = [np.full(leaf.shape, MIXED, np.int64) for leaf in program.in_avals[1:]]
    found = _flat(_walk(program, [places, *rest], _moved))
    return np.where(found > 0, found - 1, MIXED)


def is_identity(function: Callable[..., Any], argument: Array, *others: Any) -> bool:
    """Whether the function returns its first argument, each number in its place, whatever the values."""
    found = moved_numbers(function, argument, *others)
    return found.shape == (argument.size,) and bool(np.all(found == np.arange(argument.size)))


def degrees(
    function: Callable[..., Any], argument: Array, *others: Any, fixed: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """For each array that the function returns: 0 if constant in the argument, 1 if affine, 2 otherwise.

    Affine means affine for any fixed value of the others. Rounding to floating point is not counted.

    Args:
        function: of the argument and the others, returning arrays; traced, never run.
        argument: an example, for its shape and type.
        others: further arguments, held fixed.
        fixed: places in a vector argument that are held fixed too.
    """
    program = jax.make_jaxpr(function)(argument, *others)
    own, rest = (
        np.ones(argument.shape, np.int64),
        [np.zeros(leaf.shape, np.int64) for leaf in program.in_avals[1:]],
    )
    own[list(fixed)] = 0
    found = _walk(program, [own, *rest], _degree)
    return tuple(int(np.max(one, initial=0)) for one in found)


def _flat(found: list[Marks]) -> Marks:
    return np.concatenate([out.ravel() for out in found]) if found else np.zeros(0, np.int64)


def _walk(program: ClosedJaxpr | Jaxpr, marks: list[Marks], rule: Rule) -> list[Marks]:
    """The marks of all results. Constants are kept by value: they say where a slice begins."""
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    constants = [_known(x) for x in program.consts] if isinstance(program, ClosedJaxpr) else []
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    reached: dict[Any, Marks] = dict(zip(jaxpr.invars, marks, strict=True))

    def mark(atom: Any) -> Marks:
        known = None if isinstance(atom, Literal) else reached.get(atom)
        return np.zeros(_shape(atom), np.int64) if known is None else known

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values.get(atom)

    for line in jaxpr.eqns:
        given, numbers = [mark(atom) for atom in line.invars], [value(atom) for atom in line.invars]
        if any(one.any() for one in given):
            reached.update(zip(line.outvars, _through(line, given, numbers, rule), strict=True))
        elif _plain(line) and all(number is not None for number in numbers):
            values.update(zip(line.outvars, _computed(line, numbers), strict=True))
    return [mark(atom) for atom in jaxpr.outvars]


def _through(line: Any, given: list[Marks], values: list[Any], rule: Rule) -> list[Marks]:
    """The marks behind one operation."""
    inner = next((x for x in line.params.values() if isinstance(x, ClosedJaxpr | Jaxpr)), None)
    if inner is not None and line.primitive.name in CALLS:
        return _walk(inner, given, rule)
    return rule(line, given, values)


def _reached(line: Any, given: list[Marks], values: list[Any]) -> list[Marks]:
    """1 for every number that the argument may have a part in."""
    if line.primitive.name in ELEMENTWISE:
        joined = np.zeros(line.outvars[0].aval.shape, np.int64)
        for one in given:
            joined = np.asarray(joined | one)
        return [joined]
    found = _carried(line, given, values)
    if found is None:
        return [np.ones(out.aval.shape, np.int64) for out in line.outvars]
    return [np.asarray(one != 0, np.int64) for one in found]


def _moved(line: Any, given: list[Marks], values: list[Any]) -> list[Marks]:
    """The place of every number that was copied and nothing else."""
    found = _carried(line, given, values) if _keeps_digits(line) else None
    if found is None:
        return [np.full(out.aval.shape, MIXED, np.int64) for out in line.outvars]
    return found


def _degree(line: Any, given: list[Marks], values: list[Any]) -> list[Marks]:
    """The degree of every number, or of an array as a whole where an operation mixes its numbers."""
    name, shapes = line.primitive.name, [out.aval.shape for out in line.outvars]
    if name == "convert_element_type" and not _keeps_digits(line):
        return [np.asarray(2 * np.minimum(given[0], 1))]
    if name in MOVING:
        found = _carried(line, given, values)
        if found is not None:
            return found
    if name not in ELEMENTWISE:
        given = [np.asarray(np.max(one, initial=0)) for one in given]
    ways, chosen = (given[:1], given[1:]) if name == "select_n" else (given[1:], given[:1])
    nonlinear = 2 * np.minimum(sum(given), 1)
    if name in SUMS or name in ("concatenate", "stack"):
        degree = np.maximum.reduce(np.broadcast_arrays(*given))
    elif name in ("mul", "dot_general"):
        degree = sum(given)
    elif name == "div":
        degree = np.where(given[1] == 0, given[0], nonlinear)
    elif name in MOVING or name == "select_n":  # the other operands say where from, or which
        degree = np.maximum.reduce(np.broadcast_arrays(*chosen))
        degree = np.where(np.asarray(sum(ways)) == 0, degree, nonlinear)
    else:
        degree = nonlinear
    return [np.broadcast_to(np.minimum(degree, 2), shape).astype(np.int64) for shape in shapes]


def _carried(line: Any, given: list[Marks], values: list[Any]) -> list[Marks] | None:
    """The marks where an operation puts the numbers, if it only moves them to places that are known."""
    name = line.primitive.name
    moved = len(given) if name in ("concatenate", "stack") else 1  # the other operands say where to
    if name not in MOVING or any(one.any() for one in given[moved:]):
        return None
    if any(x is None for x in values[moved:]):
        return None
    if name == "convert_element_type":
        return [given[0]]
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        return [np.asarray(out) for out in _computed(line, [*given[:moved], *values[moved:]])]


def _keeps_digits(line: Any) -> bool:
    """Whether a number in the result is the number it was: not rounded to a shorter type."""
    if line.primitive.name != "convert_element_type":
        return True
    before, after = line.invars[0].aval.dtype, line.outvars[0].aval.dtype
    return np.promote_types(before, after) == after


def _shape(atom: Any) -> tuple[int, ...]:
    return atom.aval.shape


def _plain(line: Any) -> bool:
    """Whether an operation computes whole numbers, as places of slices are, and calls no other program."""
    whole = all(not jnp.issubdtype(out.aval.dtype, jnp.inexact) for out in line.outvars)
    return whole and line.primitive.name in MOVING | ELEMENTWISE


def _known(value: Any) -> np.ndarray | None:
    """A constant by value; nothing where it is not known before the program runs."""
    return None if isinstance(value, Tracer) else np.asarray(value)


def _computed(line: Any, values: list[Any]) -> list[Any]:
    found = line.primitive.bind(*[jnp.asarray(x) for x in values], **line.params)
    return list(found) if line.primitive.multiple_results else [found]
