"""What settings of the network, releases and a scheduler prove with what failed for them.

Why: an interface that leads nowhere, a GID that is not the peer's, or a library of another release
look like a broken network. How: NCCL says which interface it took; one that only containers of a
host share cannot reach another host. A queue that could not be set up is a setting until the link
itself says otherwise. Releases that do not fit are named by whoever noticed. What a scheduler ended
is told of as that.
"""

import re
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import (
    CONFIGURED,
    LINK_DOWN,
    NODE_SILENT,
    SERVICE_DOWN,
    UNEXPLAINED,
    VERSION_DIFFERS,
    Finding,
)
from nemesis.processors.attribution.report_rules import HasProof, proofs, proofs_of, shown
from nemesis.processors.attribution.reports import Said, Told

# bridges and tunnels that end on their own host
_INNER: Final = re.compile(r"(?:docker|virbr|veth|br-|cni|flannel|cali|lxc|tun)\w*|lo\Z")
_INNER_ADDRESS: Final = re.compile(r"(?:127\.|172\.17\.|192\.168\.122\.)")
NODES_MAX: Final = 2
SOCKET: Final = "Socket"


def judge_network_settings(told: Told) -> list[Finding]:
    """What settings of the network and releases prove."""
    found = [
        _no_interface(told),
        _wrong_interface(told),
        _two_networks(told),
        _queue_failed(told),
        _unresolved(told),
        _versions(told),
        _node_failed(told),
        _time_over(told),
    ]
    return [each for each in found if each is not None]


def _no_interface(told: Told) -> Finding | None:
    missing = told.of("no_interface")
    if not missing:
        return None
    return Finding(
        verdict="attributed",
        fault_class="network.config",
        reason=f"NCCL found no interface to use on {shown(sorted({e.node for e in missing}))}",
        confidence_ppm=800_000,
        level=CONFIGURED,
        culprits=tuple(sorted({f"config/{each.node}/NCCL_SOCKET_IFNAME" for each in missing})),
        proofs=proofs(missing, "no interface fits what is asked for"),
    )


def _wrong_interface(told: Told) -> Finding | None:
    inner = [e for e in told.of("interface") if _is_inner(e)]
    failed = told.of("connect_failed")
    refused = [e for e in failed if _INNER_ADDRESS.match(e.message.device)]
    if inner or refused:
        hosts = sorted({each.node for each in inner or refused})
        broken = bool(failed or told.of("timeout"))
        if not broken and len({each.node for each in told.said}) < NODES_MAX:
            return None  # a job of one host needs no other interface
        return Finding(
            verdict="attributed" if broken else "class-only",
            fault_class="network.config",
            reason=f"NCCL on {shown(hosts)} took an interface that ends on its own host",
            confidence_ppm=850_000 if broken else 500_000,
            level=CONFIGURED,
            culprits=tuple(f"config/{host}/NCCL_SOCKET_IFNAME" for host in hosts) if broken else (),
            proofs=proofs_of(
                [(each, "this interface reaches no other host") for each in inner]
                + [(each, "an address that means another host on each host") for each in refused]
                + [(each, "nobody answered") for each in failed if each not in refused]
            ),
            jobs=(told.job,),
        )
    return _unreachable(told, failed)


def _two_networks(told: Told) -> Finding | None:
    """Hosts of one job of which some take their adapters and some plain sockets."""
    used = {each.node: each for each in told.of("network_used")}
    plain = [each for each in used.values() if each.message.what == SOCKET]
    if not plain or len(plain) == len(used):
        return None
    failed = told.of("timeout", "follower", "connect_failed", "peer_closed", "completion")
    return Finding(
        verdict="class-only",
        fault_class="network.config",
        reason=f"NCCL found no adapter on {shown(sorted(each.node for each in plain))} and takes"
        f" sockets there, other hosts of {told.job} take their adapters",
        confidence_ppm=650_000 if failed else 500_000,
        level=CONFIGURED - 2,
        proofs=proofs_of((each, f"{each.node} uses {each.message.what}") for each in used.values()),
        jobs=(told.job,),
        missing=(wanted.DEVICE_ACCESS,),
    )


def _is_inner(said: Said) -> bool:
    message = said.message
    return bool(_INNER.match(message.device) or _INNER_ADDRESS.match(message.what))


def _unreachable(told: Told, failed: list[Said]) -> Finding | None:
    routed = [e for e in failed if "refused" not in e.message.what]
    if not failed:
        return None
    what = shown(sorted({each.message.what for each in failed}), 2)
    return Finding(
        verdict="class-only" if routed else "insufficient",
        fault_class="network.config" if routed else "unknown",
        reason=f"hosts of {told.job} could not reach each other: {what}",
        confidence_ppm=500_000 if routed else 0,
        level=LINK_DOWN if not routed else UNEXPLAINED + 1,
        proofs=proofs(failed, "a connection to a peer failed"),
        jobs=(told.job,),
        missing=(wanted.ROUTE_TO_PEER, wanted.RANKS_OUTPUT),
    )


def _unresolved(told: Told) -> Finding | None:
    """A name that no address was found for; a job that ended well got over it."""
    ends_ns = max((each.at_ns for each in told.of("finished")), default=-1)
    failed = [each for each in told.of("unresolved") if each.at_ns > ends_ns]
    if not failed:
        return None
    return Finding(
        verdict="class-only",
        fault_class="network.config",
        reason=f"{shown(sorted({e.node for e in failed}))} found no address for the name of a peer:"
        f" {failed[0].message.what}",
        confidence_ppm=600_000,
        level=UNEXPLAINED + 2,
        proofs=proofs(failed, "this name has no address here"),
        jobs=(told.job,),
        missing=(wanted.NAME_OF_PEER,),
    )


def _queue_failed(told: Told) -> Finding | None:
    failed = told.of("queue_failed")
    if not failed:
        return None
    what = shown(sorted({each.message.what for each in failed}), 2)
    return Finding(
        verdict="class-only",
        fault_class="network.config",
        reason=f"queues between hosts of {told.job} could not be set up: {what}",
        confidence_ppm=550_000,
        level=UNEXPLAINED + 2,
        proofs=proofs(failed, "the addresses of both ends do not fit, or the port is not up"),
        jobs=(told.job,),
        missing=(wanted.GID_IN_USE, wanted.LINK_COUNTERS),
    )


def _versions(told: Told) -> Finding | None:
    differing = told.of("versions_differ")
    if not differing:
        return None
    names = tuple(sorted({f"software/{e.node}/{e.message.what}" for e in differing}))
    return Finding(
        verdict="attributed",
        fault_class="software.version",
        reason=f"releases on {shown(sorted({e.node for e in differing}))} do not fit:"
        f" {shown(sorted({e.message.what for e in differing}))}",
        confidence_ppm=850_000,
        level=max(VERSION_DIFFERS, SERVICE_DOWN + 1),
        culprits=names,
        proofs=proofs(differing, "two parts that must be of one release are not"),
    )


def _node_failed(told: Told) -> Finding | None:
    said = told.of("node_failed")
    named = {f"node/{each.message.device}" for each in said}
    taken = [
        e
        for e in told.settings
        if (e.name == "slurm.state" and "DOWN*" in e.value)  # `*`: it does not answer
        or (e.name == "slurm.reason" and "not responding" in e.value.lower())
    ]
    names = tuple(sorted(named | {each.component for each in taken}))
    failed: list[HasProof] = [*said, *taken]
    if not names:
        return None
    few = len(names) <= NODES_MAX
    return Finding(
        verdict="attributed" if few else "insufficient",
        fault_class="unknown",
        reason=f"the scheduler lost {shown(names)}",
        confidence_ppm=700_000 if few else 0,
        level=NODE_SILENT if few else UNEXPLAINED,
        culprits=names if few else (),
        proofs=proofs(failed, "the scheduler does not hear this node any more"),
        jobs=(told.job,),
        missing=(wanted.CONSOLE, wanted.KERNEL_LOG),
    )


def _time_over(told: Told) -> Finding | None:
    over = told.of("time_over")
    if not over:
        return None
    return Finding(
        verdict="class-only",
        fault_class="app.timeout",
        reason=f"the time that {told.job} was given is over",
        confidence_ppm=700_000,
        level=UNEXPLAINED + 1,
        proofs=proofs(over, "the scheduler ended it"),
        jobs=(told.job,),
    )
