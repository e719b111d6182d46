"""Whether the cluster has such a fabric at all, empty or full."""

from collections.abc import Iterator

from nemesis.processors.parallelism.case import Case, Finding, Severity
from nemesis.processors.parallelism.degrees import divisors, instead
from nemesis.processors.parallelism.fabric import (
    TRANSPORTS,
    degree_of,
    hard_unit,
    nvl_terms,
    tier_need,
    unit,
)
from nemesis.processors.parallelism.spec import Fabric
from nemesis.processors.topology.pool import TIER_NAMES, Pool, sums


def _pool(case: Case) -> Pool:
    assert case.pool is not None, "rules of this phase run where there is a pool"
    return case.pool


def severity(fabric: Fabric) -> Severity:
    """What is only wished for is a warning."""
    return "error" if fabric.force == "hard" else "warning"


def f1(case: Case) -> Iterator[Finding]:
    """A group that asks for NVL fits into an NVLink domain of the width that it names."""
    pool = _pool(case)
    widths = set(pool.domain_widths.values())
    inner = []
    for part, term, fabric in nvl_terms(case, hard_only=False):
        fitting = {width for width in widths if fabric.width in (0, width)}
        if not fitting:
            text = (
                f"no NVLink domain has {fabric.width} GPUs: there are domains of {_listed(widths)}"
            )
            legal = instead("/d", fabric.width, widths)
            yield Finding(code="F1", severity=severity(fabric), part=part, text=text, legal=legal)
            continue
        inner += [term]
        need = unit(case, inner)
        if need > max(fitting):
            names = " x ".join(f"{each.dim} {degree_of(case, each.dim)}" for each in inner)
            text = f"{names} = {need} GPUs of one NVLink domain, and the widest has {max(fitting)}"
            room = max(fitting) // max(1, need // degree_of(case, term.dim))
            options = [n for n in divisors(degree_of(case, term.dim)) if n <= room]
            legal = instead(term.dim, degree_of(case, term.dim), options)
            yield Finding(code="F1", severity=severity(fabric), part=part, text=text, legal=legal)
        if fabric.force == "soft":
            inner.pop()


def f2(case: Case) -> Iterator[Finding]:
    """GPUs have as many NVLinks as are asked for."""
    links = {each.nvlinks for each in case.classes} - {0}
    for part, _, fabric in nvl_terms(case, hard_only=False):
        if links and max(links) < fabric.link_count:
            best = max(links)
            names = _classes(case)
            text = f"{fabric.link_count} NVLinks a GPU, but {names} has {best}"
            legal = f"NVL{fabric.link_count} -> NVL{best}"
            yield Finding(code="F2", severity=severity(fabric), part=part, text=text, legal=legal)


def f3(case: Case) -> Iterator[Finding]:
    """Units fill a domain; what is left over strands."""
    pool = _pool(case)
    asked = nvl_terms(case, hard_only=True)
    wanted = {fabric.width for _, _, fabric in asked} - {0}
    need = hard_unit(case)
    widths = {w for w in pool.domain_widths.values() if w >= need and (not wanted or w in wanted)}
    for width in sorted(widths):
        if need > 1 and width % need:
            left = width % need
            share = f"{left} of {width} GPUs of a domain, {left / width:.0%}"
            text = f"units of {need} strand {share}"
            legal = instead("unit", need, divisors(width))
            yield Finding(code="F3", severity="warning", part=asked[-1][0], text=text, legal=legal)


def f4(case: Case) -> Iterator[Finding]:
    """The fabric is of that kind, with as many rails as are asked for."""
    pool = _pool(case)
    for part, term in case.wishes():
        fabric = term.fabric
        if not fabric or degree_of(case, term.dim) == 1:
            continue
        text = legal = ""
        if fabric.kind == "NVL" and not any(each.nvlinks for each in case.classes):
            if case.classes:
                text, legal = f"{_classes(case)} has no NVLink", "PCIE"
        elif fabric.kind == "PCIE" and degree_of(case, term.dim) > max(pool.node_sizes.values()):
            most = max(pool.node_sizes.values())
            text = f"{term.dim} {degree_of(case, term.dim)} over PCIe, and a node has {most} GPUs"
            legal = instead(
                term.dim,
                degree_of(case, term.dim),
                [n for n in divisors(degree_of(case, term.dim)) if n <= most],
            )
        elif fabric.kind in TRANSPORTS:
            text, legal = _network(pool, fabric)
        if text:
            yield Finding(code="F4", severity=severity(fabric), part=part, text=text, legal=legal)


def _network(pool: Pool, fabric: Fabric) -> tuple[str, str]:
    """(what is wrong, what would do) of a wish for the network."""
    if pool.transport not in ("", TRANSPORTS[fabric.kind]):
        own = next(kind for kind, name in TRANSPORTS.items() if name == pool.transport)
        return f"the network is {own}, not {fabric.kind}", f"{fabric.kind} -> {own}"
    most = max(pool.rail_counts)
    if most < fabric.link_count:
        text = f"{fabric.link_count} rails, but a node has {most}"
        return text, f"{fabric.kind}{fabric.link_count} -> {fabric.kind}{most}"
    return "", ""


def f5(case: Case) -> Iterator[Finding]:
    """Experts exchange tokens inside an NVLink domain."""
    ep, etp = case.layout.expert_parallel, case.layout.expert_tensor
    widest = max(_pool(case).domain_widths.values())
    if ep > 1 and ep * etp > widest:
        text = (
            f"EP {ep} x ETP {etp} = {ep * etp} ranks exchange tokens, an NVLink domain has {widest}"
        )
        options = [n for n in divisors(ep) if n * etp <= widest]
        legal = instead("EP", ep, options)
        yield Finding(code="F5", severity="warning", part=case.part("EP"), text=text, legal=legal)


def f6(case: Case) -> Iterator[Finding]:
    """There is such a tier, and its largest group can hold what must lie below it."""
    pool = _pool(case)
    for part, term in case.wishes():
        fabric = term.fabric
        if not fabric or not fabric.tier or degree_of(case, term.dim) == 1:
            continue
        if fabric.tier > pool.depth:
            text = f"tier {fabric.tier} of a fabric with {pool.depth}"
            legal = f"@{fabric.scope}{fabric.tier} -> @{fabric.scope}{pool.depth}"
            yield Finding(code="F6", severity=severity(fabric), part=part, text=text, legal=legal)
            continue
        need = tier_need(case, term)
        most = max(sums(pool.tiers[fabric.tier - 1], pool.gpu_counts).values())
        if need > most:
            name = (*TIER_NAMES, "group", "group")[fabric.tier - 1] if fabric.tier <= 4 else "group"
            text = f"{term.dim} needs {need} GPUs below one {name}, the largest has {most}"
            wider = [t for t in range(fabric.tier + 1, pool.depth + 1) if _largest(pool, t) >= need]
            legal = f"@{fabric.scope}{fabric.tier} -> @{fabric.scope}{wider[0]}" if wider else ""
            yield Finding(code="F6", severity=severity(fabric), part=part, text=text, legal=legal)


def f7(case: Case) -> Iterator[Finding]:
    """One communicator at most reduces in the switches."""
    asked = case.settings.sharp
    if len(set(asked)) > 1:
        text = f"SHARP for {' and '.join(asked)}: the switches serve one communicator of a job"
        yield Finding(
            code="F7", part=case.part(asked[-1]), text=text, legal=f"SHARP for {asked[0]} alone"
        )


def _largest(pool: Pool, tier: int) -> int:
    return max(sums(pool.tiers[tier - 1], pool.gpu_counts).values())


def _classes(case: Case) -> str:
    return ", ".join(sorted(each.name for each in case.classes))


def _listed(widths: set[int]) -> str:
    return ", ".join(map(str, sorted(widths)))
