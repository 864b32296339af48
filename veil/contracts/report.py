"""What an examination of a contract says, for programs and for people."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from veil.systems.report import Finding, Level, Support, raised

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
        verdict = "ready to use" if self.ok else "not ready, mend the errors below"
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
