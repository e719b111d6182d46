"""GPUs and adapters whose PCIe links use fewer lanes than the devices have, or a lower speed.

Why: a card that sits badly halves what a device can move, and nothing fails. How: a slot may have
fewer lanes than a card, so a device is named only beside others of its make on the same host that
use all of theirs. A GPU's link also falls to a lower speed when it idles, an adapter's does not: a
slow adapter is named, a slow GPU is asked for again under load.
"""

import re
from collections.abc import Sequence
from typing import Final

from nemesis.processors.attribution.findings import STRAGGLER, UNEXPLAINED, Finding
from nemesis.processors.attribution.report_rules import proofs_of, shown
from nemesis.processors.attribution.reports import Set, Told
from nemesis.schemas.codes import FaultClass

# producers write `x4 of x16: make of the device`
_LANES: Final = re.compile(r"x(\d+) of x(\d+): (.*)")
_SPEED: Final = re.compile(r"([\d.]+) of ([\d.]+) GT/s: (.*)")
_GPU: Final = re.compile(r"NVIDIA|3D controller")
_Link = tuple[Set, re.Match[str]]


def judge_narrow_links(told: Told) -> list[Finding]:
    """Links with fewer lanes than their devices, or, where there are none, with a lower speed."""
    narrow, alone = _below(told, "/pcie-link", _LANES)
    if narrow:
        return [_finding(told, alone or narrow, named=bool(alone))]
    return _slow(told)


def _below(
    told: Told, setting: str, pattern: re.Pattern[str]
) -> tuple[Sequence[_Link], Sequence[_Link]]:
    """Links that do not use what their devices have; and those of them beside one that does, of
    the same make on the same host."""
    links = [
        (each, match)
        for each in told.settings
        if each.component.endswith(setting) and (match := pattern.match(each.value))
    ]
    full = {(e.node, m[3]) for e, m in links if float(m[1]) >= float(m[2])}
    below = [(e, m) for e, m in links if float(m[1]) < float(m[2])]
    return below, [(e, m) for e, m in below if (e.node, m[3]) in full]


def _slow(told: Told) -> list[Finding]:
    """Links at a lower speed than that of others of the same make on their host."""
    _, slow = _below(told, "/pcie-speed", _SPEED)
    adapters = [(e, m) for e, m in slow if not _GPU.search(m[3])]
    if not slow:
        return []
    names = tuple(sorted(f"nic/{each.node}/{each.name}" for each, _ in adapters))
    return [
        Finding(
            verdict="attributed" if names else "insufficient",
            fault_class="nic" if names else "unknown",
            reason=f"{shown(names or sorted(each.name for each, _ in slow))}: PCIe at a lower speed"
            " than others of the same make"
            + ("" if names else ", as GPUs that idle or that sit badly show it"),
            confidence_ppm=700_000 if names else 0,
            level=STRAGGLER - 1 if names else UNEXPLAINED,
            culprits=names,
            proofs=proofs_of((e, f"{m[1]} of {m[2]} GT/s") for e, m in adapters or slow),
            jobs=(told.job,),
            missing=("the speed under load: lspci -vvv while the job runs",),
        )
    ]


def _finding(told: Told, narrow: Sequence[_Link], *, named: bool) -> Finding:
    gpus = all(_GPU.search(match[3]) for _, match in narrow)
    fault_class: FaultClass = "straggler.gpu" if gpus else "nic"
    kinds = ["gpu" if _GPU.search(match[3]) else "nic" for _, match in narrow]
    names = tuple(
        sorted(f"{kind}/{e.node}/{e.name}" for kind, (e, _) in zip(kinds, narrow, strict=True))
    )
    return Finding(
        verdict="attributed" if named else "class-only",
        fault_class=fault_class,
        reason=f"{shown(names)} use fewer PCIe lanes than they have"
        + (", others of the same make use all" if named else "; so may their slots"),
        confidence_ppm=700_000 if named else 500_000,
        level=STRAGGLER - 1,
        culprits=names if named else (),
        proofs=proofs_of((e, f"{m[1]} of {m[2]} lanes") for e, m in narrow),
        jobs=(told.job,),
        missing=("what the slot has: lspci -vvv of the bridge above it, dmidecode -t slot",),
    )
