"""What the adversary is taken to know, and what the numbers do not cover."""

from veil.report.blocks import Bullets, Section, Text
from veil.report.gather import Material

LEAD = "A statement about privacy is worth as much as the adversary that it is made against."

PLAIN = (
    "The adversary of this report is a strong one: it knows the model, the way of sharing and the list of "
    "possible secrets with their probabilities, and it reads everything that is shared. All that is kept "
    "from it is which secret is the true one, the true states, and the owner's private random numbers."
)


def section(material: Material) -> Section | None:
    """What all audits grant is said once, what only one of them says in its own column."""
    lists = [found.threat_model for _, found in material.audited]
    if not lists:
        return None
    common = tuple(line for line in lists[0] if all(line in other for other in lists))
    own = {name: tuple(x for x in found.threat_model if x not in common) for name, found in material.audited}
    columns = material.columns(lambda source: (Bullets(own[source.name]),) if own.get(source.name) else ())
    kept = tuple(column for column in columns if column.blocks)
    return Section("threat", "Who is kept from knowing what", LEAD, (Text(PLAIN), Bullets(common)), kept)
