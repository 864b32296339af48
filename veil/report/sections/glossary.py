"""The words that a newcomer stumbles over."""

from veil.report.blocks import Section, Table
from veil.report.gather import Material

LEAD = "Five words carry most of this page."

ROWS = (
    (
        "nat, bit",
        "Units of information. One bit is the answer to a fair yes-or-no question, and 0.693 nats. Four "
        "equally likely secrets are worth 2 bits, or 1.386 nats, to whoever finds out which one is true.",
    ),
    (
        "leakage",
        "How many nats about the secret the releases of a whole run carry, on average over secrets and runs "
        "(mutual information). Zero: an adversary is as wise as before. All of H(q): it knows.",
    ),
    (
        "belief",
        "The probability that a rational reader gives to each secret after what it has read (posterior). It "
        "starts at the prior, the probabilities that everybody knows.",
    ),
    (
        "interval",
        "The leakage is bounded from below by attacks and from above by a proof; both are averages over "
        "simulated runs, and three standard errors are added to each.",
    ),
    (
        "distortion",
        "How far what is shared is from what is true, in the system's own distance.",
    ),
)


def section(material: Material) -> Section:
    """The same for every report."""
    del material
    return Section("words", "Words used here", LEAD, (Table("", ("word", "meaning"), ROWS),))
