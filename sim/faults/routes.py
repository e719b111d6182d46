"""What it looks like when a switch loses the packets of two NICs alone: a black hole.

Where an entry of a forwarding table is damaged, all packets of some sources and destinations are
lost and all others arrive; mostly the switch counts none of them, and a reload mends it ("Pingmesh:
A Large-Scale System for Data Center Network Latency Measurement and Analysis", SIGCOMM 2015,
section 5.1). Whoever sends sees only that nothing comes back: retries, then a completion in error
(NVIDIA/nccl, src/transport/net_ib; status 12 is IBV_WC_RETRY_EXC_ERR).
"""

from random import Random
from typing import Final

from nemesis.schemas.components import node as node_name
from nemesis.sim.faults.course import Course
from nemesis.sim.faults.network import nic_shows
from nemesis.sim.faults.planned_network import RouteLost
from nemesis.sim.faults.scenario import BadScenarioError
from nemesis.sim.faults.symptoms import NicRises, PairTurned, PortRises, RankPrints
from nemesis.sim.faults.target import MS, Target
from nemesis.sim.jobs.layout import Layout
from nemesis.sim.jobs.rings import Place, edges

GIVES_UP_NS: Final = 4_000 * MS  # as fabric.py has it of a GID that is wrong
DROPPED_PER_S: Final = 200


def route_lost(planned: RouteLost, target: Target, random: Random) -> Course:
    """Both ends send again and give up, and each names the other; the switch between says nothing.

    Raises:
        BadScenarioError: its rank exchanges nothing with another node.
    """
    target, peer = random.choice(_neighbours(target))
    way = target.cluster.path(target.nic_name, peer.nic_name)
    switch = random.choice([part for part in way if part.startswith("switch/")])
    course = Course(node=target.node, component=switch, stalls=True)
    course.named({"switch": [switch]})
    course.because(switch, "loses what two of its NICs send each other")
    course.at(0, PairTurned(target.nic_index, peer.node, peer.nic_index, up=False))
    for one, other in ((target, peer), (peer, target)):
        _gives_up(course, one, other, random)
    if planned.counted:
        name = switch.removeprefix("switch/")
        port = next(part for part in way if part.startswith(f"port/{name}/"))
        course.at(0, PortRises(port, (("discard_count", DROPPED_PER_S),)))
        course.shows("fabric", "discard_count", shows="rises", value=1, by=name, component=port)
    course.because(f"job/{target.job}", "all its ranks wait for those two", GIVES_UP_NS)
    if planned.lasts_s:
        course.ends_ns = round(planned.lasts_s * 1e9)
        turned = PairTurned(target.nic_index, peer.node, peer.nic_index, up=True)
        course.at(course.ends_ns, turned)
    return course


def _gives_up(course: Course, one: Target, other: Target, random: Random) -> None:
    """A NIC sends again until it may no more; its rank says to whom."""
    course.at(0, NicRises(one.nic_index, (("local_ack_timeout_count", 4),)), node=one.node)
    course.at(GIVES_UP_NS, NicRises(one.nic_index, (("retries_exceeded_count", 1),)), node=one.node)
    nic_shows(course, one, "retries_exceeded_count", GIVES_UP_NS, decisive=False)
    course.because(one.nic_name, "hears nothing from the other, and sends again", GIVES_UP_NS)
    text = (
        f"NET/IB: Got completion from peer 10.3.{one.nic_index}.{other.rank % 250 + 1}"
        f"<{random.randrange(32_768, 60_999)}> with status=12 opcode=0 len=0 vendor err 129 (Send) "
        f"hca {one.nic.name}"
    )
    course.prints(GIVES_UP_NS + 500 * MS, RankPrints(one.rank, "nccl", text), node=one.node)
    course.blames_not([one.rank_name, one.nic_name, node_name(one.node)])


def _neighbours(target: Target) -> list[tuple[Target, Target]]:
    """Places that exchange gradients over their NICs: of its rank where that one does, else of its
    node, else of its rank's group."""
    cluster, job = target.cluster, target.cluster.job_on(target.node)
    pairs: list[tuple[Place, Place]] = []
    if job is not None:
        layout = Layout(cluster.world_of(job), tp=job.tp, cp=job.cp, pp=job.pp, ep=job.ep)
        group = layout.group_of(target.rank, "world" if layout.is_plain else "dp_cp")
        nodes, width = cluster.nodes_of(job), cluster.ranks_per_node
        places = [(nodes[rank // width], rank % width) for rank in group.ranks]
        domains = [cluster.nvlink_of(node) for node, _ in places]
        pairs = list(edges("ring", places, domains))
    if not pairs:
        raise BadScenarioError(
            "fault.kind: 'route-lost': the rank there exchanges no gradients with another node"
        )
    here = (target.node, target.index)
    nearest = (
        [pair for pair in pairs if here in pair]
        or [pair for pair in pairs if target.node in (pair[0][0], pair[1][0])]
        or pairs
    )
    return [(Target(cluster, *one), Target(cluster, *two)) for one, two in nearest]
