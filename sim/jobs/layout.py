"""How the ranks of a job are laid out over tensor, context, pipeline, data and expert parallelism.

Pure. The order is Megatron's default, tp-cp-ep-dp-pp: tensor parallel ranks are neighbours, stages
of the pipeline lie farthest apart (NVIDIA/Megatron-LM, megatron/core/parallel_state.py). For the
dense layers, rank = tp + TP (cp + CP (dp + DP pp)). Experts have a layout of their own inside a
stage, without tensor parallelism: ep runs over neighbours, so place = ep + EP edp.

Groups have the descriptions that Megatron gives them, and the names that torch gives in the order
in which they are made: a number that counts every group of the job. Groups of one rank are made
too, as Megatron does, but nothing runs in them.
"""

from functools import cached_property
from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.schemas.errors import NemesisError

Ranks = NDArray[np.int64]
Kind = Literal["world", "dp_cp", "cp", "mp", "tp", "pp", "ep", "edp"]

DESCRIPTIONS: Final[dict[Kind, str]] = {
    "world": "default_pg",
    "dp_cp": "DATA_PARALLEL_GROUP_WITH_CP",
    "cp": "CONTEXT_PARALLEL_GROUP",
    "mp": "MODEL_PARALLEL_GROUP",
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
    "edp": "EXPERT_DATA_PARALLEL_GROUP",
}
"""In the order in which they are made."""
KINDS: Final[tuple[Kind, ...]] = tuple(DESCRIPTIONS)
KIND_INDEX: Final[dict[Kind, int]] = {kind: at for at, kind in enumerate(KINDS)}


class BadLayoutError(NemesisError):
    """Degrees of parallelism that do not fit the world."""

    exit_code = 2


class Group(msgspec.Struct, frozen=True):
    """One process group."""

    name: str
    kind: Kind
    ranks: tuple[int, ...]

    @property
    def description(self) -> str:
        """As torch's `pg_config` says it."""
        return DESCRIPTIONS[self.kind]


class Layout:
    """Who is where: coordinates and process groups of every rank of a world."""

    def __init__(self, world: int, *, tp: int = 1, cp: int = 1, pp: int = 1, ep: int = 1) -> None:
        """Data parallelism is what remains of the world.

        Raises:
            BadLayoutError: the degrees do not multiply to a part of the world.
        """
        if min(world, tp, cp, pp, ep) < 1 or world % (tp * cp * pp):
            raise BadLayoutError(
                f"job: tp {tp} x cp {cp} x pp {pp} does not divide its {world} ranks"
            )
        stage = world // pp
        if stage % ep:
            raise BadLayoutError(f"job: ep {ep} does not divide the {stage} ranks of a stage")
        self.world: Final = world
        self.tp: Final = tp
        self.cp: Final = cp
        self.pp: Final = pp
        self.ep: Final = ep
        self.dp: Final = stage // (tp * cp)

    @property
    def is_plain(self) -> bool:
        """Data parallel and nothing else: one group, the world."""
        return self.tp == self.cp == self.pp == self.ep == 1

    @cached_property
    def stages(self) -> Ranks:
        """The pipeline stage of each rank."""
        return np.arange(self.world) // (self.world // self.pp)

    @cached_property
    def replicas(self) -> Ranks:
        """The data parallel replica of each rank: without one of them all of it is lost."""
        return np.arange(self.world) // (self.tp * self.cp) % self.dp

    @cached_property
    def members(self) -> dict[Kind, Ranks]:
        """For each kind a matrix: a row a group, its ranks in the order of their group ranks."""
        dense = np.arange(self.world).reshape(self.pp, self.dp, self.cp, self.tp)
        expert = np.arange(self.world).reshape(self.pp, -1, self.ep)

        def rows(matrix: Ranks, width: int) -> Ranks:
            return matrix.reshape(-1, width)

        return {
            "world": rows(dense, self.world),
            "dp_cp": rows(dense.transpose(0, 3, 1, 2), self.dp * self.cp),
            "cp": rows(dense.transpose(0, 1, 3, 2), self.cp),
            "mp": rows(dense.transpose(1, 2, 0, 3), self.pp * self.tp),
            "tp": rows(dense, self.tp),
            "pp": rows(dense.transpose(1, 2, 3, 0), self.pp),
            "ep": rows(expert, self.ep),
            "edp": rows(expert.transpose(0, 2, 1), expert.shape[1]),
        }

    @cached_property
    def group_index(self) -> Ranks:
        """(kind, rank) -> the row of its group in `members`."""
        index = np.zeros((len(KINDS), self.world), np.int64)
        for at, kind in enumerate(KINDS):
            matrix = self.members[kind]
            index[at, matrix.ravel()] = np.repeat(np.arange(len(matrix)), matrix.shape[1])
        return index

    @cached_property
    def first_names(self) -> dict[Kind, int]:
        """The number that names the first group of each kind."""
        names: dict[Kind, int] = {}
        made_count = 0
        for kind in KINDS:
            names[kind] = made_count
            made_count += len(self.members[kind])
        return names

    def group_of(self, rank: int, kind: Kind) -> Group:
        """The group of this kind that a rank belongs to."""
        row = int(self.group_index[KIND_INDEX[kind], rank])
        return self.group(kind, row)

    def name_of(self, rank: int, kind: Kind) -> str:
        """The name of the group of this kind that a rank belongs to."""
        return str(self.first_names[kind] + int(self.group_index[KIND_INDEX[kind], rank]))

    def group(self, kind: Kind, row: int) -> Group:
        """One group of a kind."""
        ranks = tuple(self.members[kind][row].tolist())
        return Group(str(self.first_names[kind] + row), kind, ranks)

    def groups_of(self, rank: int) -> tuple[Group, ...]:
        """All groups of a rank, in the order in which its process made them: torch's `pg_id`."""
        return tuple(self.group_of(rank, kind) for kind in KINDS)

    def size(self, kind: Kind) -> int:
        """Ranks in a group of this kind."""
        return int(self.members[kind].shape[1])
