"""What settings of hosts prove together with what failed for them.

Why: a limit, a route or a service that is down breaks a job without any part being broken. How: a
setting is at fault where something failed that it forbids: locked memory and a registration that
got none, a fabric manager that is down and GPUs that wait for it, access control on bridges and a
job that hangs in its first collectives. Two interfaces in one network and hosts that differ in a
plugin are told of as what they are. A setting alone, however odd, blames nothing.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import (
    CONFIGURED,
    SERVICE_DOWN,
    UNEXPLAINED,
    VERSION_DIFFERS,
    Finding,
)
from nemesis.processors.attribution.log_message import UNSAID
from nemesis.processors.attribution.report_rules import HasProof, proofs_of, shown
from nemesis.processors.attribution.reports import Said, Set, Told

FABRIC_MANAGER: Final = "nvidia-fabricmanager"
MEMLOCK_BYTES_MIN: Final = 1 << 30  # one registration of NCCL's buffers takes tens of MiB each
NOFILE_ENOUGH: Final = 65_536  # who opens more than this leaks, whatever the limit
EARLY_SEQ: Final = 16  # a path that never worked fails in the first collectives


def judge_host_settings(told: Told) -> list[Finding]:
    """What settings and what failed for them prove."""
    found = [
        _fabric_manager(told),
        *(_limited(told, limit) for limit in LIMITS),
        _access_control(told),
        _no_peer_access(told),
        _boot_option(told),
        _one_network_twice(told),
        _plugins(told),
    ]
    return [each for each in found if each is not None]


def _fabric_manager(told: Told) -> Finding | None:
    """NVSwitch machines start no CUDA without it (NVIDIA Fabric Manager User Guide)."""
    units = [
        e
        for e in told.settings
        if e.name == "active" and e.component.endswith(f"/{FABRIC_MANAGER}")
    ]
    down = [each for each in units if not each.value.startswith("active")]
    loaded = [
        e
        for e in told.settings
        if e.name == "loaded" and e.component in {d.component for d in down}
    ]
    waiting = [
        e
        for e in told.settings
        if e.name == "fabric.state" and e.value in ("In Progress", "Not Started")
    ]
    refused = [e for e in told.of("cuda_error") if "not yet initialized" in e.message.what]
    symptoms: list[tuple[HasProof, str]] = [
        (e, "this GPU waits for the fabric to be set up") for e in waiting
    ]
    symptoms += [(e, "CUDA waits for the fabric to be set up") for e in refused]
    failed = [each for each in down if each.value.startswith("failed")]
    if down and (symptoms or failed):
        return Finding(
            verdict="attributed",
            fault_class="host.service",
            reason=f"the fabric manager of {shown(sorted({e.node for e in down}))} is not running",
            confidence_ppm=930_000 if symptoms else 700_000,
            level=SERVICE_DOWN,
            culprits=tuple(sorted({each.component for each in down})),
            proofs=proofs_of(
                [(each, "the service is down") for each in down]
                + [(each, "what it says of it") for each in _of_fabric(told)[:4]]
                + symptoms[:6]
                + [(each, "whether it starts with the host") for each in loaded]
            ),
            missing=(wanted.FABRIC_MANAGER_LOG,),
        )
    if not symptoms or units:
        return None
    return Finding(
        verdict="class-only",
        fault_class="host.service",
        reason="GPUs wait for the fabric to be set up: its manager is down or cannot finish",
        confidence_ppm=700_000,
        level=SERVICE_DOWN,
        proofs=proofs_of(symptoms),
        missing=("the service: systemctl status nvidia-fabricmanager", wanted.FABRIC_MANAGER_LOG),
    )


def _of_fabric(told: Told) -> list[Said]:
    return [
        each
        for each in told.of("severe", "trouble")
        if "fabric" in each.message.what.lower() or "nvswitch" in each.message.what.lower()
    ]


def _boot_option(told: Told) -> Finding | None:
    """An option of the kernel that a library asks for, where its job hung or failed."""
    asked = told.of("boot_option")
    failed = told.of("timeout", "follower", "cuda_error", "severe")
    if not asked or not failed:
        return None
    return Finding(
        verdict="class-only",
        fault_class="host.config",
        reason=f"the kernel of {shown(sorted({e.node for e in asked}))} was started without"
        f" {shown(sorted({e.message.what for e in asked}))}, without which jobs may hang",
        confidence_ppm=500_000,
        level=UNEXPLAINED + 2,
        proofs=proofs_of(
            [(each, "an option that the library asks for is missing") for each in asked]
            + [(each, "and something failed") for each in failed[:2]]
        ),
        jobs=(told.job,),
        missing=("what it was started with: cat /proc/cmdline on every host",),
    )


class _Limit(NamedTuple):
    """A limit of processes, and the words of whoever was refused more."""

    name: str
    refusal: str
    enough: int
    on: str
    """What it limits."""
    refused: str
    reason: str
    confidence_ppm: int
    missing: str
    said_unit: int = 0
    """Of the limit that a refusal states itself; 0: it states none."""


LIMITS: Final = (
    _Limit(
        name="memlock",
        refusal="registration_failed",
        enough=MEMLOCK_BYTES_MIN,
        on="locked memory",
        refused="the kernel refused to lock memory",
        reason="memory could not be registered with the network adapter",
        confidence_ppm=930_000,
        missing=wanted.LOCKED_MEMORY,
        said_unit=1024,
    ),
    _Limit(
        name="nofile",
        refusal="files_spent",
        enough=NOFILE_ENOUGH,
        on="open files",
        refused="the kernel refused another open file",
        reason="a process may not open more files",
        confidence_ppm=850_000,
        missing=wanted.OPEN_FILES,
    ),
)


def _limited(told: Told, limit: _Limit) -> Finding | None:
    """A refusal, and where it is known, the limit of that host that is too low."""
    refused = told.of(limit.refusal)
    if not refused:
        return None
    hosts = {each.node for each in refused}
    low = [
        e
        for e in told.settings
        if e.component.endswith(f"/{limit.name}")
        and e.value.isdecimal()
        and int(e.value) < limit.enough
        and e.node in hosts
    ]
    said = [e for e in refused if limit.said_unit and 0 <= _stated(e, limit) < limit.enough]
    names = {e.component for e in low} | {f"config/{e.node}/{limit.name}" for e in said}
    if not names and all(each.message.device == UNSAID for each in refused):
        return None
    allowed = low[0].value if low else str(_stated(said[0], limit)) if said else ""
    return Finding(
        verdict="attributed" if names else "class-only",
        fault_class="host.config",
        reason=limit.reason
        + (f": the limit on {limit.on} is {allowed} ({shown(sorted(names))})" if names else ""),
        confidence_ppm=limit.confidence_ppm if names else 700_000,
        level=CONFIGURED,
        culprits=tuple(sorted(names)),
        proofs=proofs_of(
            [(each, limit.refused) for each in refused]
            + [(each, f"the limit on {limit.on}") for each in low]
        ),
        jobs=(told.job,),
        missing=() if names else (limit.missing,),
    )


def _stated(refusal: Said, limit: _Limit) -> int:
    return refusal.message.number * limit.said_unit


def _access_control(told: Told) -> Finding | None:
    """NVIDIA NCCL User Guide, Troubleshooting, PCI Access Control Services."""
    on = [
        e
        for e in told.settings
        if e.component.endswith("/pci-acs") and ("ReqRedir+" in e.value or "CmpltRedir+" in e.value)
    ]
    hung = [each for each in told.of("timeout") if 0 <= each.message.seq <= EARLY_SEQ]
    tried = [each for each in told.trials if each.outcome in ("hung", "failed")]
    if not on or not (hung or tried):
        return None
    return Finding(
        verdict="attributed",
        fault_class="host.config",
        reason="PCIe bridges redirect peer-to-peer traffic (ACS is on), and the job stood still in"
        " its first collectives",
        confidence_ppm=800_000,
        level=CONFIGURED,
        culprits=tuple(sorted({each.component for each in on})),
        proofs=proofs_of(
            [(each, f"bridge {each.name} redirects requests") for each in on]
            + [(each, "it never got beyond its first collectives") for each in hung]
            + [(each, "the test did not pass") for each in tried]
        ),
    )


def _no_peer_access(told: Told) -> Finding | None:
    """ACS is on where NCCL says that GPUs cannot reach each other directly."""
    said = told.of("p2p_disabled")
    nodes = {each.node for each in said}
    on = [e for e in told.settings if e.name == "pcie_acs" and e.value == "on" and e.node in nodes]
    if not on:
        return None
    hosts = sorted({each.node for each in on})
    return Finding(
        verdict="attributed",
        fault_class="host.config",
        reason=f"PCIe bridges of {shown(hosts)} redirect peer-to-peer traffic (ACS is on)",
        confidence_ppm=850_000,
        level=CONFIGURED,
        culprits=tuple(f"config/{host}/acs" for host in hosts),
        proofs=proofs_of(
            [(each, "access control of its bridges is on") for each in on]
            + [(each, "its GPUs cannot reach each other directly") for each in said]
        ),
    )


def _one_network_twice(told: Told) -> Finding | None:
    """Two interfaces in one network: which one a packet leaves by is the route's accident."""
    routes: dict[tuple[str, str], list[Set]] = {}
    for each in sorted(told.settings, key=lambda e: (e.component, e.name)):
        words = each.value.split()
        if each.component.endswith("/routes") and words[0] != "default" and "via -" in each.value:
            routes.setdefault((each.component, words[0]), []).append(each)
    doubled = {
        key: own
        for key, own in routes.items()
        # different metrics are somebody's decision
        if len({_dev(e) for e in own}) > 1 and len({e.value.split()[-1] for e in own}) == 1
    }
    if not doubled:
        return None
    names = sorted({network for _, network in doubled})
    return Finding(
        verdict="class-only",
        fault_class="network.config",
        reason=f"two interfaces of one host lie in the network {shown(names)}: traffic may leave by"
        " another one than it came in",
        confidence_ppm=600_000,
        level=CONFIGURED - 1,
        proofs=proofs_of(
            (each, f"{_dev(each)} is in this network") for own in doubled.values() for each in own
        ),
        missing=(wanted.ROUTE_TO_PEER,),
    )


def _dev(route: Set) -> str:
    words = route.value.split()
    return words[words.index("dev") + 1]


def _plugins(told: Told) -> Finding | None:
    """NCCL's network plugins must be the same on all hosts (NCCL User Guide, net plugins)."""
    found, missing = told.of("plugin_found"), told.of("plugin_missing")
    with_it, without = {e.node for e in found}, {e.node for e in missing}
    lacking = sorted(without - with_it)
    if not found or not lacking:
        return None
    names = tuple(f"software/{node}/{missing[0].message.what}" for node in lacking)
    hung = [each for each in told.trials if _mixes(each.components, with_it, without)]
    hung = [each for each in hung if each.outcome in ("hung", "failed")]
    return Finding(
        verdict="attributed",
        fault_class="software.version",
        reason=f"{shown(lacking)} did not find the network plugin that"
        f" {shown(sorted(with_it))} uses",
        confidence_ppm=900_000 if hung else 750_000,
        level=VERSION_DIFFERS,
        culprits=names,
        proofs=proofs_of(
            [(each, "this host lacks the plugin") for each in missing]
            + [(each, "this host has it") for each in found]
            + [(each, "hosts with and without it do not work together") for each in hung]
        ),
    )


def _mixes(components: Sequence[str], some: set[str], others: set[str]) -> bool:
    nodes = {name.partition("/")[2] for name in components}
    return bool(nodes & some) and bool(nodes & others)
