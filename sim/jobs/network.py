"""What lies between the ranks of all jobs, and which collectives do not cross it any more.

Cut things belong to places, not to ranks: who moves away leaves them behind. A NIC or its link
takes out all that runs over it to other nodes, a broken NVLink domain all that runs inside its
node; places in separate parts of the fabric, and pairs of places between which traffic is lost,
reach each other no more, but everybody else. Inside an NVLink domain no NIC is used.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from nemesis.sim.jobs.layout import KIND_INDEX, Kind, Layout
from nemesis.sim.jobs.rings import Pattern, Place, edges
from nemesis.sim.jobs.stall import Flags

Use = tuple[Kind, Pattern]


class Network:
    """All that is cut."""

    def __init__(self, domain_of: Callable[[str], str] = str) -> None:
        """`domain_of`: the NVLink domain of a node's GPUs, by default the node itself."""
        self._domain_of: Final = domain_of
        self._nics: Final[set[Place]] = set()
        self._domains: Final[set[str]] = set()
        self._pairs: Final[set[frozenset[Place]]] = set()
        self._part_of: Final[dict[Place, int]] = {}
        self._congested: Final[dict[Place, int]] = {}

    @property
    def is_whole(self) -> bool:
        """Nothing is cut."""
        return not (self._nics or self._domains or self._pairs or self._part_of)

    def cut_nic(self, node: str, index: int) -> None:
        """The NIC of a place, its link or its switch port moves nothing."""
        self._nics.add((node, index))

    def mend_nic(self, node: str, index: int) -> None:
        """It does again."""
        self._nics.discard((node, index))

    def congest(self, node: str, index: int, per_mille: int) -> None:
        """What crosses the NIC of a place takes this much longer; 0: as ever."""
        self._congested[node, index] = per_mille

    def congestion_per_mille(self, places: Iterable[Place]) -> int:
        """By how much a collective between these places takes longer: as its slowest hop."""
        if not any(self._congested.values()):
            return 0
        return max((self._congested.get(place, 0) for place in places), default=0)

    def cut_domain(self, domain: str) -> None:
        """The GPUs of an NVLink domain do not reach each other: its NVSwitches are out."""
        self._domains.add(domain)

    def mend_domain(self, domain: str) -> None:
        """They do again."""
        self._domains.discard(domain)

    def cut_pair(self, one: Place, two: Place) -> None:
        """Traffic between two places is lost, for example by a wrong route."""
        self._pairs.add(frozenset((one, two)))

    def mend_pair(self, one: Place, two: Place) -> None:
        """It arrives again."""
        self._pairs.discard(frozenset((one, two)))

    def part(self, part_of: Mapping[Place, int]) -> None:
        """The fabric falls into parts; places that are not named stay together, in part 0."""
        self._part_of.clear()
        self._part_of.update({place: part for place, part in part_of.items() if part})

    def crossed(
        self, layout: Layout, uses: Iterable[Use], places: Sequence[Place | None]
    ) -> dict[Use, Flags]:
        """By use: whether each group's ring, tree or pairs cross what is cut.

        `places` by rank, None where it takes no part. Of exchanges by rank: whether it does not
        reach its next neighbour in the group.
        """
        touched = self._touched(places)
        return {use: self._crossed(layout, use, places, touched) for use in uses}

    def _touched(self, places: Sequence[Place | None]) -> list[int]:
        if self.is_whole:
            return []
        nodes = {node for node, _ in self._nics.union(*self._pairs)}
        return [
            rank
            for rank, place in enumerate(places)
            if place is not None
            and (
                place[0] in nodes
                or place in self._part_of
                or (self._domains and self._domain_of(place[0]) in self._domains)
            )
        ]

    def _crossed(
        self, layout: Layout, use: Use, places: Sequence[Place | None], touched: list[int]
    ) -> Flags:
        kind, pattern = use
        members = layout.members[kind]
        flags = np.zeros(layout.world if pattern == "exchange" else len(members), np.bool_)
        for row in sorted(set(layout.group_index[KIND_INDEX[kind], touched].tolist())):
            ranks = members[row].tolist()
            there = [place for rank in ranks if (place := places[rank]) is not None]
            if pattern != "exchange":
                flags[row] = self._row_crossed(pattern, there)
            elif len(there) == len(ranks):
                following = there[1:] + there[:1]
                for rank, one, two in zip(ranks, there, following, strict=True):
                    flags[rank] = not self.reaches(one, two)
        return flags

    def _row_crossed(self, pattern: Pattern, places: list[Place]) -> bool:
        domains = [self._domain_of(node) for node, _ in places]
        if any(domains.count(domain) > 1 for domain in self._domains.intersection(domains)):
            return True
        # also where a channel less would do: NCCL has built its channels at the start
        if len(set(domains)) > 1 and not self._nics.isdisjoint(places):
            return True
        apart = edges(pattern, places, domains)
        return any(not self.reaches(one, two) for one, two in apart)

    def reaches(self, one: Place, two: Place) -> bool:
        """Whether data gets from one place to the other."""
        domain = self._domain_of(one[0])
        if domain == self._domain_of(two[0]):
            return domain not in self._domains or one == two
        return (
            one not in self._nics
            and two not in self._nics
            and self._part_of.get(one, 0) == self._part_of.get(two, 0)
            and frozenset((one, two)) not in self._pairs
        )
