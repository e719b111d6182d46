"""How ranks share a model: who holds one copy of it together, and who reduces with whom.

Ranks are numbered as Megatron-LM numbers them, fastest first: tensor, context, data, pipeline
(github.com/NVIDIA/Megatron-LM, megatron/core/parallel_state.py, order "tp-cp-ep-dp-pp"). Experts
run over the combined context and data axis, and are tensor parallel as the rest is. What is closed
under all of these but data parallelism is a replica: losing one of its ranks loses all of it.

Whole replicas leave or come, so the members that are left are numbered, in their order, as those
of a smaller world of the same degrees: `groups_of` holds for them too.
"""

from collections.abc import Collection, Mapping
from math import lcm
from typing import Final, Literal

import msgspec

Kind = Literal["world", "peers", "dp", "tp", "cp", "pp", "mp", "ep", "edp"]
"""world: everybody. peers: who has the same part of the model, one a replica. dp: who sums the
gradients of one dense part, context parallel ranks too. mp: tp and pp together. ep: who has the
experts of one layer among them. edp: who sums the gradients of the same experts."""

KINDS: Final[tuple[Kind, ...]] = ("world", "peers", "dp", "tp", "cp", "pp", "mp", "ep", "edp")


class Degrees(msgspec.Struct, frozen=True):
    """Parallel degrees; what remains of a world is data parallel."""

    tp: int = 1
    cp: int = 1
    pp: int = 1
    ep: int = 1

    @property
    def replica_size(self) -> int:
        """Ranks of one replica."""
        return self.tp * self.pp * lcm(self.cp, self.ep)

    def replica_count(self, world: int) -> int:
        """Replicas of a world; 1 where the degrees do not divide it, so that nothing is split."""
        size = self.replica_size
        return world // size if size and world and world % size == 0 else 1

    def replica_of(self, rank: int, world: int) -> int:
        """The replica that a rank belongs to."""
        count = self.replica_count(world)
        if count == 1:
            return 0
        width = lcm(self.cp, self.ep)
        return rank // self.tp % (count * width) // width

    def data_place(self, rank: int, world: int) -> tuple[int, int]:
        """Which part of a step's samples is a rank's, and of how many.

        Ranks that work on the same samples (tensor, context, pipeline) have the same part.
        """
        stage_size = world // self.pp
        width = self.tp * self.cp
        return rank % stage_size // width, stage_size // width

    def without(self, lost: Collection[int], members: Collection[int], world: int) -> list[int]:
        """The members whose replica lost nobody; all numbered by their rank in this world."""
        touched = {self.replica_of(rank, world) for rank in lost}
        return sorted(rank for rank in members if self.replica_of(rank, world) not in touched)

    def groups_of(self, rank: int, world: int) -> Mapping[Kind, tuple[int, ...]]:
        """The group of each kind that a rank is in, in the order of their ranks.

        Raises:
            ValueError: the degrees do not divide the world.
        """
        if min(self.tp, self.cp, self.pp, self.ep) < 1 or world % self.replica_size:
            raise ValueError(
                f"tp {self.tp}, cp {self.cp}, pp {self.pp} and ep {self.ep} make replicas of"
                f" {self.replica_size} ranks, which do not divide {world}"
            )
        stage_size = world // self.pp
        stage, place = divmod(rank, stage_size)
        column, tensor = divmod(place, self.tp)
        columns = range(stage_size // self.tp)
        width = lcm(self.cp, self.ep)

        def across(chosen: range) -> tuple[int, ...]:
            return tuple(stage * stage_size + each * self.tp + tensor for each in chosen)

        first = rank - tensor
        in_stages = range(place, world, stage_size)
        return {
            "world": tuple(range(world)),
            "peers": across(columns[column % width :: width]),
            "dp": across(columns),
            "tp": tuple(range(first, first + self.tp)),
            "cp": across(_block(column, self.cp)),
            "pp": tuple(in_stages),
            "mp": tuple(each - tensor + t for each in in_stages for t in range(self.tp)),
            "ep": across(_block(column, self.ep)),
            "edp": across(columns[column % self.ep :: self.ep]),
        }


def _block(at: int, size: int) -> range:
    first = at - at % size
    return range(first, first + size)
