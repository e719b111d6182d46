"""What faults of switches and of NICs' settings look like: many links at once, or one odd setting.

A pair of ends that disagree fails as the RoCE documentation says it does: another GID index never
connects, another MTU loses what is larger, another PFC priority drops where it should pause
(docs.nvidia.com/networking, "RoCE"; NCCL_IB_GID_INDEX and NCCL_IB_TC in the NCCL user guide).
"""

from random import Random
from typing import Final

from nemesis.sim.faults.course import Course
from nemesis.sim.faults.network import (
    give_up,
    link_line,
    nic_shows,
    port_shows,
    stalls,
)
from nemesis.sim.faults.planned_network import GidWrong, MtuWrong, PfcWrong, SpineDown, SwitchDown
from nemesis.sim.faults.scenario import BadScenarioError
from nemesis.sim.faults.symptoms import (
    NicMute,
    NicRises,
    NicSlowed,
    PortRises,
    RankPrints,
    SwitchLost,
    SwitchReturned,
)
from nemesis.sim.faults.target import MS, Target

SPREAD_MS: Final = 40  # ports of one switch go down within so long
LEAVES_SHOWN: Final = 8  # of so many ports the ledger says that they must be seen down
SLOWED: Final = 15  # NICs whose flows lay on the lost spine, besides the first


def switch_down(planned: SwitchDown, target: Target, random: Random) -> Course:
    """It says nothing any more; its nodes' kernels tell that links fell; ranks elsewhere abort."""
    switch = f"switch/{target.switch}"
    course = Course(node=target.node, component=switch)
    course.because(switch, "stops")
    below = target.on_switch()
    course.named({
        "switch_ports": [each.port for each in below],
        "switch_links": [name for each in below for name in (each.link_name, each.nic_name)],
    })  # fmt: skip
    course.at(0, SwitchLost(target.switch))
    course.shows("fabric", "", shows="silent", by=target.switch, component=switch)
    for each in below:
        at_ns = random.randrange(SPREAD_MS) * MS
        link_line(course, at_ns, each, up=False, decisive=False)
    nic_shows(course, target, "port_up", 0, shows="at_most", decisive=False)
    ranks = tuple(sorted({each.rank for each in below if each.rank >= 0}))
    course.stalls, course.lost_ranks = bool(ranks), ranks
    course.because(f"job/{target.job}", "all its ranks wait for those below that switch")
    others = target.others(random, planned.loud_count, away_from=target.switch)
    give_up(course, others, round(planned.loud_after_s * 1e9), random)
    if planned.lasts_s:
        course.ends_ns = round(planned.lasts_s * 1e9)
        course.at(course.ends_ns, SwitchReturned(target.switch))
        for each in below:
            link_line(course, course.ends_ns, each, up=True)
    return course


def spine_down(planned: SpineDown, target: Target, random: Random) -> Course:
    """Ports to it go down on every leaf of its pod; what hashes onto the same links is slow."""
    cluster = target.cluster
    wiring = cluster.wiring
    leaf = wiring.index[target.switch]
    spines = sorted({wiring.switch_of(int(wiring.peer[port])) for port in wiring.uplinks(leaf)})
    if len(spines) < 2:
        raise BadScenarioError(
            "fault.kind: 'spine-down': needs a cluster whose leaves have two spines or more"
        )
    name = wiring.switches[random.choice(spines)]
    course = Course(node=target.node, component=f"switch/{name}")
    course.because(course.component, "stops")
    course.at(0, SwitchLost(name))
    course.shows("fabric", "", shows="silent", by=name)
    ports = [port.peer for port in cluster.ports_of(name)]
    course.named({"spine": [course.component], "spine_ports": ports})
    for port in ports[:LEAVES_SHOWN]:
        leaf_name = port.split("/")[1]
        course.shows("fabric", "up", shows="at_most", by=leaf_name, component=port)
        course.because(port, "has no peer any more")
    slowed = [target, *target.others(random, SLOWED)]
    for each in slowed:
        course.at(0, NicSlowed(each.nic_index, planned.slowdown_per_mille), node=each.node)
    course.because(f"job/{target.job}", "collectives share the links that are left")
    course.blames_not([each.nic_name for each in slowed])
    if planned.lasts_s:
        course.ends_ns = round(planned.lasts_s * 1e9)
        course.at(course.ends_ns, SwitchReturned(name))
        for each in slowed:
            course.at(course.ends_ns, NicSlowed(each.nic_index, 0), node=each.node)
    return course


def gid_wrong(planned: GidWrong, target: Target, random: Random) -> Course:
    """From the next connect on nothing goes over it; NCCL names the GIDs of both ends."""
    course = _setting(target, "roce_gid_index", str(planned.gid_index))
    course.at(0, NicMute(target.nic_index))
    course.at(0, NicRises(target.nic_index, (("local_ack_timeout_count", 4),)))
    course.at(4_000 * MS, NicRises(target.nic_index, (("retries_exceeded_count", 1),)))
    nic_shows(course, target, "retries_exceeded_count", 4_000 * MS)
    for other in [target, *target.others(random, 2)]:
        if other.rank < 0:
            continue
        # nccl src/transport/net_ib: status 12 is IBV_WC_RETRY_EXC_ERR
        text = (
            "NET/IB: Got completion from peer 10.3.0.17<40123> with status=12 opcode=0 len=0 "
            f"vendor err 129 (Send) localGid fe80::{random.randrange(1 << 16):x} remoteGids"
            f"::ffff:10.3.0.{other.nic_index + 1} hca {other.nic.name}"
        )
        course.prints(
            5_000 * MS, RankPrints(other.rank, "nccl", text), node=other.node,
            decisive=other is target,
        )  # fmt: skip
        if other is not target:
            course.blames_not([other.rank_name, other.nic_name])
    stalls(course, target, 0)
    return course


def mtu_wrong(planned: MtuWrong, target: Target, random: Random) -> Course:
    """Small messages pass; large ones are dropped by the smaller end, and sent again."""
    course = _setting(target, "mtu", str(planned.mtu))
    again = (("packet_seq_err_count", 90), ("local_ack_timeout_count", 12), ("discard_count", 400))
    course.at(0, NicRises(target.nic_index, again))
    course.at(0, NicSlowed(target.nic_index, planned.slowdown_per_mille))
    nic_shows(course, target, "discard_count", 0)
    nic_shows(course, target, "packet_seq_err_count", 0, decisive=False)
    course.because(f"job/{target.job}", "collectives over it are sent again and take longer")
    return course


def pfc_wrong(planned: PfcWrong, target: Target, random: Random) -> Course:
    """The leaf pauses priority 3, the NIC heeds another: what comes meanwhile is dropped."""
    course = _setting(target, "pfc_priorities", "0")
    course.at(
        0, NicRises(target.nic_index, (("packet_seq_err_count", 140), ("cnp_handled_count", 900)))
    )
    course.at(0, PortRises(target.port, (("discard_count", 700), ("ecn_marked_count", 5_000))))
    course.at(0, NicSlowed(target.nic_index, planned.slowdown_per_mille))
    port_shows(course, target, "discard_count", 0)
    nic_shows(course, target, "packet_seq_err_count", 0, decisive=False)
    course.because(f"job/{target.job}", "collectives over it are sent again and take longer")
    return course


def _setting(target: Target, name: str, value: str) -> Course:
    course = Course(node=target.node, component=target.nic_name)
    course.because(target.nic_name, f"is set to {name} {value}, unlike all others")
    course.sets(0, target.nic_name, name, value)
    return course
