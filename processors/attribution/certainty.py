"""How sure a verdict must be before it names a part, or a kind of fault.

Why: blaming a healthy component is far worse than saying that the evidence does not suffice; how
sure is enough is the operator's to say. How: a finding below the first limit keeps its class and
names nobody, one below the second says nothing but what to collect. Evidence that came late lowers
the confidence by a fifth: what happened in between was not read in its order.
"""

from typing import Final

from msgspec.structs import replace

from nemesis.processors.attribution.findings import Finding

NAMED_PPM_MIN: Final = 500_000
"""Below even odds a name does more harm than good."""
CLASS_PPM_MIN: Final = 300_000
"""The weakest class that the rules give is 400,000: ranks that called different operations."""
LATE_PPM: Final = 800_000


def as_certain(finding: Finding, *, named_ppm_min: int, class_ppm_min: int, late: bool) -> Finding:
    """The finding as far as its confidence carries it."""
    confidence_ppm = finding.confidence_ppm * (LATE_PPM if late else 1_000_000) // 1_000_000
    finding = replace(finding, confidence_ppm=confidence_ppm)
    if finding.verdict == "attributed" and confidence_ppm < named_ppm_min:
        suspected = " and ".join(finding.culprits[:2])
        finding = replace(
            finding,
            verdict="class-only",
            culprits=(),
            victims=(),
            reason=f"{finding.reason}; {_percent(confidence_ppm)} sure is too little to name"
            f" {suspected}, {_percent(named_ppm_min)} are wanted",
        )
    if finding.verdict == "class-only" and confidence_ppm < class_ppm_min:
        finding = replace(finding, verdict="insufficient", fault_class="unknown", confidence_ppm=0)
    return finding


def _percent(ppm: int) -> str:
    return f"{ppm // 10_000} %"
