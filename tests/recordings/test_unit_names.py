"""Units: conversions against numbers worked out by hand, and headers as people write them."""

import pytest

from veil.recordings.units import conversion, seconds, split_header, units


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (54.0, "km/h", "m/s", 15.0),
        (100.0, "kph", "m/s", 27.7777777777778),
        (60.0, "mph", "m/s", 26.8224),
        (68.0, "°F", "degC", 20.0),
        (68.0, "F", "°C", 20.0),
        (20.0, "C", "K", 293.15),
        (300.0, "K", "degC", 26.85),
        (1500.0, "W", "kW", 1.5),
        (2.0, "kWh", "MJ", 7.2),
        (3.0, "W/(m² K)", "W/m2/K", 3.0),
        (3.0, "m s-2", "m/s^2", 3.0),
        (36.0, "km/h^2", "m/s²", 36.0 * 1000 / 3600**2),
        (2.0, "1/min", "Hz", 1 / 30),
        (5.0, "mV", "V", 0.005),
        (2.5, "Ah", "C", 9000.0),
        (30.0, "ct/kWh", "EUR/MWh", 300.0),
        (40.0, "%", "1", 0.4),
        (1.0, "degC/step", "K/step", 1.0),
        (3.0, "ft", "m", 0.9144),
    ],
)
def test_conversions(value, source, target, expected):
    found = conversion(source, target)
    assert found is not None
    assert found[0] * value + found[1] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("source", "target"),
    [("m", "m/s"), ("kW", "kWh"), ("people", "m"), ("°C", "kW"), ("m", "min"), ("clicks", "kW"), ("C", "V")],
)
def test_what_measures_something_else_has_no_conversion(source, target):
    assert conversion(source, target) is None


@pytest.mark.parametrize("text", ["", "off/on", "m//", "(m", "m)", "2", "m/0", "Off/Cooling/Heating", "--"])
def test_what_is_no_unit(text):
    assert not units(text)


@pytest.mark.parametrize(
    ("header", "name", "unit"),
    [
        ("Indoor Temp [°C]", "Indoor Temp", "°C"),
        ("Indoor Temperature (C)", "Indoor Temperature", "C"),
        ("HVAC Mode (Off/Cooling/Heating)", "HVAC Mode (Off/Cooling/Heating)", ""),
        ("Occupant Count (people)", "Occupant Count (people)", ""),
        ("T / °C", "T", "°C"),
        ("speed in km/h", "speed", "km/h"),
        ("U [W/(m² K)]", "U", "W/(m² K)"),
        ("speed [foo]", "speed", "foo"),
        ("v_fol", "v_fol", ""),
        ("[K]", "[K]", ""),
    ],
)
def test_headers_are_parted_into_name_and_unit(header, name, unit):
    assert split_header(header) == (name, unit)


def test_lengths_of_time():
    assert [seconds(unit) for unit in ("s", "ms", "min", "h", "hours", "d", "m", "")] == [
        *(1.0, 1e-3, 60.0, 3600.0, 3600.0, 86400.0),
        *(None, None),
    ]
