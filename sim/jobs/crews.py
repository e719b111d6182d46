"""Who steps together, and whether they can: the ranks that were told one epoch and its members."""

from typing import Final

import msgspec
import numpy as np

from nemesis.sim.jobs.layout import KINDS, Kind, Layout, Ranks
from nemesis.sim.jobs.network import Network
from nemesis.sim.jobs.ranks import HELD, NEVER_NS, RUNNING, STARTING, RankTable
from nemesis.sim.jobs.rings import Place
from nemesis.sim.jobs.stall import WHOLE_KINDS, Broken, Flags, Use
from nemesis.sim.jobs.table import ProgramTable


class Crew(msgspec.Struct, frozen=True):
    """Those who are in one epoch and agree on its members."""

    number: int
    ranks: Ranks
    """Its members, all of them."""
    due_ns: int
    """When the step that they are in completes; NEVER_NS: it does not."""
    last_ns: int
    """How long the step's last collective of all takes."""


class Crews:
    """The crews of one job; what was worked out is kept until something changes."""

    def __init__(
        self,
        table: RankTable,
        layout: Layout,
        programs: ProgramTable,
        network: Network,
        last_ns: int,
    ) -> None:
        self.mended_ns = 0
        """When the network was last mended: what waited is sent again then."""
        self._table: Final = table
        self._layout: Final = layout
        self._uses: Final = programs.uses
        self._network: Final = network
        self._last_ns: Final = last_ns
        self._congestion: Final[dict[int, int]] = {}
        self._working: list[Crew] | None = None
        self._cut: Final[dict[int, dict[Use, Flags]]] = {}
        self._ranks: Final[dict[int, Ranks]] = {}

    def forget(self, *, places: bool = False) -> None:
        """A step began; `places`: ranks or the network changed as well."""
        self._working = None
        if places:
            self._cut.clear()
            self._congestion.clear()

    def working(self) -> list[Crew]:
        """The crews of those who run or are held."""
        if self._working is None:
            stage = self._table.stage
            crews = self._table.crew[(stage == RUNNING) | (stage == HELD)]
            alike = crews.size > 0 and (crews == crews[0]).all()
            numbers = [int(crews[0])] if alike else np.unique(crews).tolist()
            self._working = [self._crew(number) for number in numbers]
        return self._working

    def broken(self, crew: Crew) -> Broken:
        """What keeps a crew from finishing its step."""
        table = self._table
        there = (table.crew == crew.number) & (table.stage != STARTING)
        return Broken(
            member=self._member(crew.ranks),
            stopped_ns=np.where(there, table.stopped_ns, 0),
            halted_ns=table.halted_ns,
            strays_ns=table.strays_ns,
            inverts=table.inverts(),
            cut=self._cut_of(crew.number, crew.ranks),
        )

    def _crew(self, number: int) -> Crew:
        if number not in self._ranks:
            self._ranks[number] = np.array(sorted(self._table.crews[number][1]), np.int64)
        ranks = self._ranks[number]
        if number not in self._congestion:
            places = (self._table.places[rank] for rank in ranks.tolist())
            self._congestion[number] = self._network.congestion_per_mille(places)
        last_ns = self._last_ns * (1000 + self._congestion[number]) // 1000
        ready_ns = self._ready_ns(number, ranks)
        due_ns = NEVER_NS if ready_ns == NEVER_NS else ready_ns + last_ns
        if (self._table.strays_ns[ranks] < due_ns).any():
            due_ns = NEVER_NS
        return Crew(number, ranks, due_ns, last_ns)

    def _ready_ns(self, crew: int, ranks: Ranks) -> int:
        """When the last of them has computed and all can be reached."""
        table = self._table
        together = (
            (table.stage[ranks] == RUNNING).all()
            and (table.crew[ranks] == crew).all()
            and (table.step[ranks] == table.step[ranks[0]]).all()
        )
        ready_ns = int(table.ready_ns[ranks].max())
        if not together or ready_ns >= NEVER_NS or self._is_parted(crew, ranks):
            return NEVER_NS
        return max(ready_ns, self.mended_ns)

    def _is_parted(self, crew: int, ranks: Ranks) -> bool:
        """Whether a model is not whole, or a group of the crew cannot reach all of itself."""
        if not self._are_models_whole(ranks):
            return True
        if self._network.is_whole:
            return False
        return any(bool(flags.any()) for flags in self._cut_of(crew, ranks).values())

    def _are_models_whole(self, ranks: Ranks) -> bool:
        if len(ranks) == self._layout.world:
            return True
        member = self._member(ranks)
        used = {kind for kind, _ in self._uses}
        kinds: list[Kind] = [kind for kind in KINDS if kind in used and kind in WHOLE_KINDS]
        rows = [member[self._layout.members[kind]] for kind in kinds]
        return all(bool((each.all(axis=1) | ~each.any(axis=1)).all()) for each in rows)

    def _member(self, ranks: Ranks) -> Flags:
        member = np.zeros(self._layout.world, np.bool_)
        member[ranks] = True
        return member

    def _cut_of(self, crew: int, ranks: Ranks) -> dict[Use, Flags]:
        if crew not in self._cut:
            places: list[Place | None] = [None] * self._layout.world
            for rank in ranks.tolist():
                places[rank] = self._table.places[rank]
            self._cut[crew] = self._network.crossed(self._layout, self._uses, places)
        return self._cut[crew]
