"""What an examination found, for programs and for people."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing: how grave, which rule, and a sentence that says what to do."""

    level: Level
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.level} [{self.rule}] {self.message}"


@dataclass(frozen=True)
class Support:
    """Whether a method applies, and why; true in a condition if it does."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True)
class SystemReport:
    """Findings about a system, and which methods apply to it.

    Attributes:
        name: the system's class.
        findings: in the order of the examination.
        supports: verdict and reason per method.
    """

    name: str
    findings: tuple[Finding, ...]
    supports: Mapping[str, Support]

    @property
    def ok(self) -> bool:
        """No errors; warnings and notes may remain."""
        return not any(finding.level == "error" for finding in self.findings)

    def __str__(self) -> str:
        width = max(len(name) for name in self.supports)
        return "\n".join(
            [
                f"{self.name}: {'ready to use' if self.ok else 'not ready, correct the errors below'}",
                *(f"  {finding}" for finding in self.findings),
                "Methods",
                *(
                    f"  {name:<{width}}  {'yes' if it else 'no '}  {it.reason}"
                    for name, it in self.supports.items()
                ),
            ]
        )


def guarded(rule: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of one check; what it raises is a finding as well."""
    found: list[Finding] = []
    try:
        found.extend(check())
    except Exception as error:
        found.append(raised(rule, error))
    return found


def raised(rule: str, error: Exception) -> Finding:
    """An exception of the user's code, in one line."""
    text = (str(error).strip().splitlines() or ["no message"])[0][:200]
    advice = "Call the method on one unbatched example; under `jax.vmap`, values may not steer a Python `if`."
    return Finding("error", rule, f"`{rule}` raised {type(error).__name__}: {text} {advice}")


Check = Callable[[], Support]


@dataclass(frozen=True)
class Rule:
    """One sentence of a contract, and how to find out.

    Attributes:
        check: says whether the rule is kept, and what was seen.
        level: how grave it is if not.
    """

    check: Check
    level: Level = "error"


@dataclass(frozen=True)
class ContractReport:
    """Which rules of a contract something keeps.

    Attributes:
        name: of what was examined.
        contract: "policy", "measure", "attack" or "learner".
        rules: verdict and reason per rule, in the order of the examination.
        findings: one for each rule that is not kept.
    """

    name: str
    contract: str
    rules: Mapping[str, Support]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """No errors; warnings and notes may remain."""
        return not any(finding.level == "error" for finding in self.findings)

    def __str__(self) -> str:
        width = max(len(name) for name in self.rules)
        verdict = "ready to use" if self.ok else "not ready, correct the errors below"
        return "\n".join(
            [
                f"{self.name} ({self.contract}): {verdict}",
                *(f"  {finding}" for finding in self.findings),
                "Rules",
                *(
                    f"  {name:<{width}}  {'yes' if it else 'no '}  {it.reason}"
                    for name, it in self.rules.items()
                ),
            ]
        )


def examined(name: str, contract: str, rules: Mapping[str, Rule]) -> ContractReport:
    """Ask the rules in turn. What they raise is a finding; the first one is the ground of all others."""
    verdicts: dict[str, Support] = {}
    findings: list[Finding] = []
    for place, (title, rule) in enumerate(rules.items()):
        try:
            verdict, finding = rule.check(), None
        except Exception as error:
            finding = raised(title, error)
            verdict = Support(False, finding.message)
        verdicts[title] = verdict
        if not verdict:
            findings.append(finding or Finding(rule.level, title, verdict.reason))
            if place == 0:
                break
    return ContractReport(name, contract, verdicts, tuple(findings))
