"""What NCCL, health agents and counters say of NICs, their ports and the paths between them.

Why: every peer of a broken path complains, and the one that complains most is seldom the broken
one. How: a counter that rose between two readings names its port, a lifetime count says only that
something happened once; a health agent that watched one device go down names it; a completion
error (status 12: nobody acknowledged) tells of a path and not of an end; ports that fail on many
hosts at once share what lies between them.
"""

import re
from collections.abc import Sequence
from statistics import median_low
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import (
    LINK_DOWN,
    LINK_LOST,
    PORTS_TROUBLED,
    UNEXPLAINED,
    Finding,
)
from nemesis.processors.attribution.report_rules import proofs, proofs_of, shown
from nemesis.processors.attribution.reports import Counted, Said, Set, Told

HOSTS_MIN: Final = 3  # as silences: two others and it is not about one host any more
FLUSHED: Final = 5  # IBV_WC_WR_FLUSH_ERR: the queue was torn down, by whatever came first
# linux Documentation/ABI/stable/sysfs-class-infiniband, mlx5 counters.c; perfquery(8)
_BROKEN: Final = frozenset(
    {
        "link_downed",
        "link_downed_counter",
        "link_error_recovery",
        "link_error_recovery_counter",
        "link_integrity_errors",
        "local_link_integrity_errors",
        "symbol_error",
        "symbol_error_counter",
        "port_rcv_errors",
        "link_down_events_phy",
        "rx_crc_errors_phy",
        "rx_symbol_err_phy",
        "rx_pcs_symbol_err_phy",
        "module_bus_stuck",
        "sai_port_stat_if_in_errors",
        "in_errors",  # OpenConfig, openconfig-interfaces and openconfig-if-ethernet
        "in_fcs_errors",
        "in_crc_errors",
        "carrier_transitions",
        "link_down_counter",  # ibdiagnet2.pm
        "sai_port_stat_if_in_fec_not_correctable_frames",
    }
)
# mlx5 hw_counters, rdma-core's EFA: whoever sent gave up or asked again, and where it was lost is
# not said. `out_of_sequence` and `packet_seq_err` also rise where a fabric routes adaptively.
_GIVEN_UP: Final = frozenset(
    {
        "req_transport_retries_exceeded",
        "local_ack_timeout_err",
        "roce_adp_retrans_to",
        "rnr_nak_retry_err",
        "retrans_timeout_events",
        "unresponsive_remote_events",
    }
)
_DOWN: Final = re.compile(r"\bDOWN\b|\bDown\b|PORT_DOWN|Polling|Disabled")
_LIT: Final = re.compile(r"Link_?Up", re.IGNORECASE)
_SUBNET_MANAGER: Final = "the subnet manager: systemctl status opensm, sminfo"
_FIRMWARE_HEALTH: Final = ("health.fw", "health.fw_fatal", "health.hw_fatal", "health.vnic")
_LOST: Final = frozenset(
    {
        "link_down_counter",
        "carrier_transitions",
        "link_downed",
        "link_downed_counter",
        "link_down_events_phy",
    }
)
_RATE: Final = re.compile(r"\((\d+)X (\w+)\)")  # 400 Gb/sec (4X NDR)


def judge_ports(told: Told) -> list[Finding]:
    """What was told of ports and paths."""
    found = [
        _risen(told),
        _watched(told),
        _down(told),
        _narrow_port(told),
        _port_errors(told),
        _device(told),
        _reported(told),
    ]
    known = [each for each in found if each is not None]
    if not known:
        known = [e for e in (_lost(told), _completions(told), _lifetime(told)) if e is not None]
    return known


def _is_of_port(counted: Counted) -> bool:
    return counted.component.startswith(("nic/", "port/")) and counted.name in _BROKEN


def _is_of_way(counted: Counted) -> bool:
    return counted.component.startswith("nic/") and counted.name in _GIVEN_UP


def _risen(told: Told) -> Finding | None:
    risen = [each for each in told.counters if _is_of_port(each) and each.last > each.first]
    names = tuple(sorted({each.component for each in risen}))
    if not names or len(names) > HOSTS_MIN:
        return None
    return Finding(
        verdict="attributed",
        fault_class="network.link",
        reason=f"errors of {shown(names)} rose between two readings",
        confidence_ppm=850_000,
        level=LINK_LOST,
        culprits=names,
        proofs=proofs_of((e, f"rose by {e.last - e.first} between two readings") for e in risen),
        missing=(wanted.TRANSCEIVERS,),
    )


def _lost(told: Told) -> Finding | None:
    """Operations that senders gave up between two readings: a way has two ends and a middle."""
    risen = [each for each in told.counters if _is_of_way(each) and each.last > each.first]
    if not risen:
        return None
    return Finding(
        verdict="class-only",
        fault_class="network.fabric",
        reason=f"{shown(sorted({e.component for e in risen}))} sent what nobody acknowledged:"
        " where it was lost is not said",
        confidence_ppm=550_000,
        level=PORTS_TROUBLED - 1,
        proofs=proofs_of((e, f"rose by {e.last - e.first} between two readings") for e in risen),
        jobs=(told.job,),
        missing=(wanted.SWITCH_COUNTERS, wanted.BOTH_ENDS),
    )


def _watched(told: Told) -> Finding | None:
    down = told.of("port_down")
    names = tuple(
        sorted(
            {
                f"nic/{each.node}/{device.strip()}"
                for each in down
                for device in each.message.device.split(",")
                if device.strip()
            }
        )
    )
    if not names:
        return None
    if len(names) > HOSTS_MIN and len({each.node for each in down}) >= HOSTS_MIN:
        return _many(told, down)
    up = [e for e in told.of("ports_ok") if e.at_ns >= max(each.at_ns for each in down)]
    return Finding(
        verdict="attributed",
        fault_class="network.link",
        reason=f"{shown(names)} lost the link" + ("; it is up again" if up else ""),
        confidence_ppm=850_000,
        level=LINK_LOST,
        signature="link_recovered" if up else "",
        culprits=names,
        proofs=proofs_of(
            [(each, "this port was down") for each in down]
            + [(each, "the ports are up again") for each in up[:1]]
        ),
        missing=(wanted.TRANSCEIVERS,),
    )


def _down(told: Told) -> Finding | None:
    """A port that is down, was up once, and whose neighbours are up.

    That it was up shows in its counters, or in operations that fail on the adapter of that name:
    rails join adapters of one name.
    """
    states = [e for e in told.settings if e.component.startswith("nic/") and e.name == "state"]
    down = [e for e in states if _DOWN.search(e.value)]
    waiting = [e for e in states if re.search(r"INIT|Initializing", e.value)]
    up = [e for e in states if re.search(r"ACTIVE|Active", e.value)]
    if waiting and not up:
        return Finding(
            verdict="class-only",
            fault_class="network.fabric",
            reason="ports are up and wait to be set up: no subnet manager answers",
            confidence_ppm=700_000,
            level=PORTS_TROUBLED,
            proofs=proofs(waiting, "the link is there, nobody has given it an address"),
            jobs=(told.job,),
            missing=(_SUBNET_MANAGER,),
        )
    lost = {e.component for e in told.counters if e.name in _LOST and e.last > 0}
    failed = told.of("completion", "port_error")
    used = {each.message.device for each in failed} - {""}
    fallen = [
        each
        for each in down
        if (each.component in lost or each.component.rpartition("/")[2] in used)
        and any(each.node == other.node for other in up)
    ]
    names = tuple(sorted({each.component for each in fallen}))
    if not names or len(names) >= HOSTS_MIN:
        return None if up else _none_up(told, down)
    return Finding(
        verdict="attributed",
        fault_class="network.link",
        reason=f"{shown(names)} is down and was in use, its neighbours are up",
        confidence_ppm=750_000,
        level=LINK_LOST,
        culprits=names,
        proofs=proofs_of(
            [(each, "this port is down") for each in fallen]
            + [
                (e, "so it was up once")
                for e in told.counters
                if e.name in _LOST and e.component in names
            ]
            + [
                (e, "operations on adapters of this name fail")
                for e in failed
                if any(name.endswith(f"/{e.message.device}") for name in names)
            ]
        ),
        missing=(wanted.TRANSCEIVERS,),
    )


def _none_up(told: Told, down: Sequence[Set]) -> Finding | None:
    """Ports that are down, and none is up.

    InfiniBand's link may be there while its subnet manager leaves the port down; that of a virtual
    function follows a policy of its own (ip-link(8), `vf state`).
    """
    lit = {e.component for e in told.settings if e.name == "phys_state" and _LIT.search(e.value)}
    waiting = [each for each in down if each.component in lit]
    if not down:
        return None
    return Finding(
        verdict="class-only" if waiting else "insufficient",
        fault_class="network.fabric" if waiting else "unknown",
        reason=f"{shown(sorted({each.component for each in waiting or down}))} is down"
        + (", and its link is there: nobody has set it up" if waiting else ", and no port is up"),
        confidence_ppm=600_000 if waiting else 0,
        level=PORTS_TROUBLED if waiting else UNEXPLAINED,
        proofs=proofs(waiting or down, "this port is down"),
        jobs=(told.job,),
        missing=(_SUBNET_MANAGER,),
    )


def _narrow_port(told: Told) -> Finding | None:
    """A port that trained with fewer lanes than its neighbours of the same name and speed.

    A lower speed alone says nothing: a host has adapters of several kinds.
    """
    links = [(e, m) for e in told.settings if (m := _RATE.search(e.value)) and e.name == "rate"]
    for node in sorted({each.node for each, _ in links}):
        kind = _stem(links[0][0])
        own = [(e, int(m[1])) for e, m in links if e.node == node and _stem(e) == kind]
        lanes = sorted(width for _, width in own)
        narrow = [each for each, width in own if width < lanes[len(lanes) // 2]]
        if narrow and len(narrow) * HOSTS_MIN <= len(own):
            return Finding(
                verdict="class-only",
                fault_class="network.link",
                reason=f"{shown(sorted({e.component for e in narrow}))} uses fewer lanes than the"
                " ports beside it",
                confidence_ppm=600_000,
                level=PORTS_TROUBLED,
                proofs=proofs(narrow, "fewer lanes than the other ports of this host"),
                jobs=(told.job,),
                missing=(wanted.TRANSCEIVERS,),
            )
    return None


def _stem(setting: Set) -> str:
    match = _RATE.search(setting.value)
    return setting.component.rstrip("0123456789") + (match[2] if match else "")


def _port_errors(told: Told) -> Finding | None:
    errors = told.of("port_error")
    if not errors:
        return None
    if len({each.node for each in errors}) >= HOSTS_MIN:
        return _many(told, errors)
    return Finding(
        verdict="class-only",
        fault_class="network.link",
        reason=f"ports of {shown(sorted({each.node for each in errors}))} reported errors: which"
        " end of the link is not said",
        confidence_ppm=600_000,
        level=PORTS_TROUBLED,
        proofs=proofs(errors, "the port told of an error"),
        jobs=(told.job,),
        missing=(wanted.LINK_COUNTERS, wanted.BOTH_ENDS),
    )


def _many(told: Told, errors: Sequence[Said]) -> Finding:
    hosts = sorted({each.node for each in errors})
    first = [next(each for each in errors if each.node == host) for host in hosts]
    return Finding(
        verdict="class-only",
        fault_class="network.fabric",
        reason=f"ports of {len(hosts)} hosts ({shown(hosts)}) failed together: what they share is"
        " at fault, and which part that is, is not said",
        confidence_ppm=700_000,
        level=PORTS_TROUBLED,
        proofs=proofs(first, "a port of this host told of an error"),
        jobs=(told.job,),
        missing=(wanted.SWITCH_COUNTERS, wanted.BOTH_ENDS),
    )


def _device(told: Told) -> Finding | None:
    fatal = [each for each in told.of("device_error") if each.message.device]
    broken = [each for each in fatal if "catastrophic" in each.message.what]
    names = tuple(sorted({f"nic/{each.node}/{each.message.device}" for each in broken}))
    if not names:
        return None
    return Finding(
        verdict="attributed",
        fault_class="nic",
        reason=f"{shown(names)} reported an error that it cannot recover from",
        confidence_ppm=850_000,
        level=LINK_LOST + 1,
        culprits=names,
        proofs=proofs(broken, "the adapter gave up"),
        missing=(wanted.KERNEL_LOG,),
    )


def _reported(told: Told) -> Finding | None:
    """An adapter whose firmware reported a fault of its own (devlink-health(8))."""
    failed = [e for e in told.settings if e.name in _FIRMWARE_HEALTH and e.value == "error"]
    names = tuple(sorted({each.component for each in failed}))
    if not names:
        return None
    return Finding(
        verdict="attributed",
        fault_class="nic",
        reason=f"the firmware of {shown(names)} reported a fault and was not recovered",
        confidence_ppm=850_000,
        level=LINK_LOST + 1,
        culprits=names,
        proofs=proofs(failed, "this reporter is in its error state"),
        missing=(wanted.KERNEL_LOG,),
    )


def _completions(told: Told) -> Finding | None:
    failed = told.of("completion")
    if not failed:
        return None
    first = [each for each in failed if each.message.number != FLUSHED]
    codes = sorted({each.message.number for each in first or failed})
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=f"network operations of {told.job} failed with status {shown(codes)}: either end,"
        " the path between them or a setting may be the cause",
        confidence_ppm=0,
        level=UNEXPLAINED,
        proofs=proofs_of(
            [(each, "an operation on a path to a peer failed") for each in first]
            + [(each, "a consequence: the queue was torn down") for each in failed]
        ),
        jobs=(told.job,),
        missing=(wanted.LINK_COUNTERS, wanted.GID_IN_USE, wanted.ROUTE_TO_PEER),
    )


def _lifetime(told: Told) -> Finding | None:
    """Counters that differ from those of the same host's other ports, read once."""
    odd: list[Counted] = []
    counted = [e for e in told.counters if e.readings == 1 and (_is_of_port(e) or _is_of_way(e))]
    for key in sorted({(each.node, each.name) for each in counted}):
        same = [each for each in counted if (each.node, each.name) == key]
        usual = median_low(each.last for each in same)
        odd += [e for e in same if e.last > (usual if len(same) > 1 else 0)]
    if not odd:
        return None
    odd.sort(key=lambda each: -each.last)
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=f"{shown(sorted({each.component for each in odd}))} counted errors since nobody"
        " knows when; one reading proves little",
        confidence_ppm=0,
        level=LINK_DOWN,
        proofs=proofs(odd, "a lifetime count, higher than on the ports beside it"),
        jobs=(told.job,),
        missing=(wanted.SECOND_READING,),
    )
