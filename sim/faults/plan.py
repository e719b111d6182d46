"""What all kinds of faults share when they are planned: a time, a target, and the right answer."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec

from nemesis.schemas.codes import Action, FaultClass

Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)]
Index = Annotated[int, msgspec.Meta(ge=-1, le=999)]
PerMille = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Ppm = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Few = Annotated[int, msgspec.Meta(ge=1, le=20)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]

SPARE: Final = "spare"
"""In place of a node's name: one that the job does not use, drawn by the seed."""


class Right(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What is right to conclude and to decide.

    Components may hold {gpu} {nic} {link} {port} {switch} {node} {rank} {job}: names of the target.
    """

    classes: tuple[FaultClass, ...]
    components: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Any of these is the culprit; the first is what broke."""
    actions: tuple[Action, ...]
    harmless: tuple[str, ...] = ()
    """What else may be named without harm: what went down with the culprit."""


Answer = Right | Literal["nothing"]
"""nothing: a decoy, that must be neither blamed nor answered."""


class Planned(
    msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="kind"
):
    """One thing to break, or as many like it as `times` and `every_s` say."""

    RIGHT: ClassVar[Answer] = "nothing"
    """The right answer where a scenario gives none."""
    SEAT: ClassVar[str] = "node"
    """What of its target it sits in, by the name that stands in braces."""

    after_s: Seconds
    """From the start of the run."""
    right: Answer | None = None
    node: str = ""
    """A name, or a pattern such as `n0*`; of several that match one is drawn."""
    rack: str = ""
    """A pattern of racks; of nodes in them one is drawn."""
    switch: str = ""
    """A pattern of switches; of nodes on them one is drawn."""
    times: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """So many faults, each with what it leaves out drawn anew."""
    every_s: Seconds = 0.0
    """So long between two of them; 0: all at once."""
    per_node_day: Annotated[float, msgspec.Meta(ge=0.0, le=100_000.0)] = 0.0
    """In place of `times`: as many as come in the run at this rate, at times that are drawn."""

    repair_s: Seconds = 0.0
    """After so long somebody mends it: the node is taken out and boots again, or the switch does;
    0: not in this run."""

    @property
    def kind(self) -> str:
        """As in a file."""
        return str(type(self).__struct_config__.tag)

    @property
    def answer(self) -> Answer:
        """What is right to conclude: as the scenario says, or as the kind does."""
        return self.RIGHT if self.right is None else self.right


class OnGpu(Planned, kw_only=True, frozen=True):
    """A fault of one GPU, or of the rank that runs on it."""

    SEAT: ClassVar[str] = "gpu"

    gpu: Index = -1
    rank: Index = -1
    """Names node and GPU at once, by the job as it was submitted."""


class OnRank(OnGpu, kw_only=True, frozen=True):
    """A fault of the program or the process on a GPU."""

    SEAT: ClassVar[str] = "rank"


class OnNic(Planned, kw_only=True, frozen=True):
    """A fault of one NIC or of what it is plugged into."""

    SEAT: ClassVar[str] = "nic"

    nic: Index = -1
    port: str = ""
    """For example leaf03/17: names node and NIC at once."""
