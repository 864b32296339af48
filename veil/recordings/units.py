"""Units of columns: found in a header, compared with those of a system, and converted."""

import math
import re
from dataclasses import dataclass

Dimensions = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Unit:
    """A unit by its SI value: x in this unit is `factor` x + `offset` in SI.

    Attributes:
        factor: of the conversion into SI.
        offset: of the conversion, for temperatures.
        dimensions: exponents of the base units, sorted by name; empty for a pure number.
    """

    factor: float
    offset: float
    dimensions: Dimensions


def _base(**powers: int) -> Dimensions:
    return tuple(sorted(powers.items()))


ENERGY, POWER, CHARGE = _base(kg=1, m=2, s=-2), _base(kg=1, m=2, s=-3), _base(A=1, s=1)

VOLTAGE = _base(kg=1, m=2, s=-3, A=-1)

# Symbols that take a prefix such as k or m.
PREFIXED = {
    **{"m": (1.0, _base(m=1)), "s": (1.0, _base(s=1)), "g": (1e-3, _base(kg=1)), "A": (1.0, _base(A=1))},
    **{"K": (1.0, _base(K=1)), "W": (1.0, POWER), "J": (1.0, ENERGY), "Wh": (3600.0, ENERGY)},
    **{"N": (1.0, _base(kg=1, m=1, s=-2)), "Pa": (1.0, _base(kg=1, m=-1, s=-2)), "V": (1.0, VOLTAGE)},
    **{"bar": (1e5, _base(kg=1, m=-1, s=-2)), "Hz": (1.0, _base(s=-1)), "Ah": (3600.0, CHARGE)},
    **{"Ω": (1.0, _base(kg=1, m=2, s=-3, A=-2)), "ohm": (1.0, _base(kg=1, m=2, s=-3, A=-2))},
    **{"F": (1.0, _base(kg=-1, m=-2, s=4, A=2)), "C": (1.0, CHARGE)},
    **{"L": (1e-3, _base(m=3)), "l": (1e-3, _base(m=3))},
}

PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "c": 1e-2, "k": 1e3, "M": 1e6, "G": 1e9}

_TIMES = {"sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "min": 60.0, "mins": 60.0, "minute": 60.0}
_TIMES |= {"minutes": 60.0, "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0, "hours": 3600.0}
_TIMES |= {"d": 86400.0, "day": 86400.0, "days": 86400.0, "millisecond": 1e-3, "milliseconds": 1e-3}

PLAIN = {
    **{name: (size, _base(s=1)) for name, size in _TIMES.items()},
    **{"ft": (0.3048, _base(m=1)), "mi": (1609.344, _base(m=1)), "t": (1000.0, _base(kg=1))},
    **{name: (1 / 3.6, _base(m=1, s=-1)) for name in ("kmh", "kph", "kmph")},
    **{"mph": (0.44704, _base(m=1, s=-1)), "mps": (1.0, _base(m=1, s=-1))},
    **{"kn": (1852 / 3600, _base(m=1, s=-1)), "rpm": (1 / 60, _base(s=-1))},
    **{"%": (0.01, ()), "percent": (0.01, ()), "rad": (1.0, ()), "deg": (math.pi / 180, ())},
    **{"°": (math.pi / 180, ()), "kelvin": (1.0, _base(K=1)), "step": (1.0, _base(step=1))},
    **{"steps": (1.0, _base(step=1)), "EUR": (1.0, _base(EUR=1)), "€": (1.0, _base(EUR=1))},
    **{"ct": (0.01, _base(EUR=1)), "USD": (1.0, _base(USD=1)), "$": (1.0, _base(USD=1))},
}

# Temperatures on scales that do not begin at zero; inside a product they are differences.
CELSIUS, FAHRENHEIT = (1.0, 273.15), (5 / 9, 459.67 * 5 / 9)

SCALES = {
    **{name: CELSIUS for name in ("°C", "degC", "℃", "celsius", "Celsius", "deg C", "° C")},
    **{name: FAHRENHEIT for name in ("°F", "degF", "℉", "fahrenheit", "Fahrenheit", "deg F", "° F")},
}

# Single letters that are usual for temperatures and stand for something else in SI.
ALSO = {"C": CELSIUS, "F": FAHRENHEIT}

SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")

TOKEN = re.compile(r"\s*(?:(°[CF]|[A-Za-zµμΩ°℃℉€$%]+)(\^?-?\d+)?|(1)(?![\d.])|([*/·⋅()]))")


def units(text: str) -> tuple[Unit, ...]:
    """What a unit may mean, e.g. "km/h", "W/(m² K)" or "°C"; none where it is not known.

    A single "C" is a degree Celsius or a coulomb, "F" a degree Fahrenheit or a farad.
    """
    text = text.strip().translate(SUPERSCRIPTS)
    if text in SCALES:
        factor, offset = SCALES[text]
        return (Unit(factor, offset, _base(K=1)),)
    product = _product(text)
    also = (Unit(*ALSO[text], _base(K=1)),) if text in ALSO else ()
    return (*also, *(() if product is None else (product,)))


def _product(text: str) -> Unit | None:
    """A product of symbols with exponents; what follows a "/" divides, up to the next sign or bracket."""
    factor, powers, sign, outer = 1.0, dict[str, int](), 1, list[int]()
    place, found, waits = 0, False, False
    while place < len(text.rstrip()):
        token = TOKEN.match(text, place)
        if token is None:
            return None
        place = token.end()
        symbol, exponent, one, mark = token.groups()
        around = outer[-1] if outer else 1
        if mark and waits and mark != "(":
            return None  # a quotient without a divisor
        waits = mark == "/"
        if mark == "/":
            sign = -around
        elif mark == "(":
            outer.append(sign)
        elif mark == ")":
            if not outer:
                return None
            outer.pop()
            sign = outer[-1] if outer else 1
        elif symbol:
            atom = _atom(symbol)
            if atom is None:
                return None
            power = sign * int((exponent or "1").lstrip("^"))
            factor *= atom[0] ** power
            for name, count in atom[1]:
                powers[name] = powers.get(name, 0) + power * count
            sign = around  # a quotient such as W/m2 K is read as (W/m2) K
        found = found or bool(symbol or one)
    if outer or waits or not found:
        return None
    return Unit(factor, 0.0, tuple(sorted((name, power) for name, power in powers.items() if power)))


def _atom(symbol: str) -> tuple[float, Dimensions] | None:
    if symbol in PLAIN:
        return PLAIN[symbol]
    if symbol in PREFIXED:
        return PREFIXED[symbol]
    if symbol in SCALES:
        return SCALES[symbol][0], _base(K=1)
    if symbol[0] in PREFIXES and symbol[1:] in PREFIXED:
        factor, dimensions = PREFIXED[symbol[1:]]
        return PREFIXES[symbol[0]] * factor, dimensions
    return None


def conversion(source: str, target: str) -> tuple[float, float] | None:
    """Factor and offset from one unit to another; None if they measure different things or are not known."""
    if source.strip() == target.strip():
        return 1.0, 0.0
    for into in units(target):
        for unit in units(source):
            if unit.dimensions == into.dimensions:
                return unit.factor / into.factor, (unit.offset - into.offset) / into.factor
    return None


def seconds(unit: str) -> float | None:
    """The length of a unit of time; None for what is none."""
    found = conversion(unit, "s") if unit else None
    return found[0] if found else None


BRACKETS = re.compile(r"^(.*\S)\s*\[([^\[\]]*)\]\s*$", re.DOTALL)

LOOSE = re.compile(r"^(.*\S)(?:\s*\(([^()]*)\)|\s+/\s+(\S+)|,\s+(\S+)|\s+in\s+(\S+))\s*$", re.DOTALL)


def split_header(header: str) -> tuple[str, str]:
    """The name and the unit of a column: "Indoor Temp [°C]" is ("Indoor Temp", "°C").

    What stands in square brackets is a unit, known or not. What stands in parentheses, or behind " / ", a
    comma or "in", is one only if it is known.
    """
    sure = BRACKETS.match(header)
    if sure:
        return sure[1].strip(), sure[2].strip()
    maybe = LOOSE.match(header)
    if maybe:
        unit = next(part for part in maybe.groups()[1:] if part is not None)
        if units(unit):
            return maybe[1].strip(), unit.strip()
    return header.strip(), ""


def ending(header: str) -> str:
    """What stands behind the last underscore or space of a name, and may be a unit: "kmh" of "speed_kmh"."""
    parts = re.split(r"[_\s]+", header.strip())
    return parts[-1] if len(parts) > 1 else ""
