"""Hosts of one job whose interfaces of one name take packets of different sizes.

Why: what one end may send the other drops: small messages pass and large ones never do. How:
interfaces are compared over hosts by their name, by the adapter's size of packets in use as well as
by the interface's. A difference counts only where something waits or failed; the one host that
differs from all others is named, of two nobody knows which one is right.

docs.nvidia.com/networking, RoCE: the MTU must be the same from end to end.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import RANK_LATE, Finding
from nemesis.processors.attribution.report_rules import HasProof, proofs_of, shown
from nemesis.processors.attribution.reports import Set, Told

OTHERS_MIN: Final = 2
_SIZES: Final = ("link.mtu", "active_mtu")
_WAITS: Final = ("timeout", "completion", "connect_failed", "trouble", "follower", "queue_failed")


def judge_packet_sizes(told: Told) -> list[Finding]:
    """What the sizes of packets prove together with what failed."""
    failed: list[HasProof] = [*told.of(*_WAITS)]
    failed += [each for each in told.trials if each.outcome in ("hung", "failed")]
    if not failed:
        return []
    groups: dict[tuple[str, str], list[Set]] = {}
    for each in told.settings:
        if each.component.startswith("nic/") and each.name in _SIZES:
            groups.setdefault((each.name, each.component.rpartition("/")[2]), []).append(each)
    found = [_differing(told, own, failed) for _, own in sorted(groups.items())]
    return [each for each in found if each is not None][:1]


def _differing(told: Told, own: Sequence[Set], failed: Sequence[HasProof]) -> Finding | None:
    count = Counter(_size(each) for each in own)
    if len(count) < 2 or len({each.node for each in own}) < 2:
        return None
    usual, others = count.most_common(1)[0]
    odd = [each for each in own if _size(each) != usual]
    certain = others >= OTHERS_MIN and len(odd) == 1
    device = own[0].component.rpartition("/")[2]
    return Finding(
        verdict="attributed" if certain else "class-only",
        fault_class="network.config",
        reason=f"{device} takes packets of {shown(sorted(count))} bytes on different hosts",
        confidence_ppm=800_000 if certain else 650_000,
        level=RANK_LATE,  # whatever tells what the ranks did says more
        culprits=tuple(f"config/{each.node}/{device}-mtu" for each in odd) if certain else (),
        proofs=proofs_of(
            [(each, f"{_size(each)} bytes on {each.node}") for each in (*odd, *own)]
            + [(each, "something failed or waits") for each in failed[:2]]
        ),
        jobs=(told.job,),
        missing=(wanted.PACKET_SIZES,),
    )


def _size(setting: Set) -> str:
    return setting.value.split()[0]
