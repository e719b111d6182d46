"""All groups of one epoch that a rank is in: everybody, and a group a kind of its job's layout."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from nemesis.schemas.layout import KINDS, Degrees, Kind
from nemesis.training.gloo_group import Grounds, Group
from nemesis.training.torch_group import process_group


class Groups:
    """The members of an epoch, whole and in parts; groups with the same members are one."""

    def __init__(self, parts: Mapping[Kind, Group]) -> None:
        self._parts: Final = parts
        self.world: Final[Group] = parts["world"]

    def __getitem__(self, kind: Kind) -> Group:
        return self._parts[kind]

    def all(self) -> list[Group]:
        """Each of them once."""
        return list({id(each): each for each in self._parts.values()}.values())

    def abort_lanes(self) -> None:
        """Whoever waits for the GPU does so no longer; from any thread."""
        for each in self.all():
            each.abort_lane()

    def close_lanes(self) -> None:
        """The job is at its end; nobody waits for the GPU."""
        for each in self.all():
            if each.lane is not None:
                each.lane.abort()

    def for_torch(self, torch: Any, given_up: Callable[[], bool]) -> dict[Kind, Any]:
        """Each kind as a torch ProcessGroup; what those wait for ends by the flag."""
        made = {id(each): process_group(torch, each, given_up) for each in self.all()}
        return {kind: made[id(each)] for kind, each in self._parts.items()}


def form(
    grounds: Grounds,
    name: str,
    members: tuple[int, ...],
    rank: int,
    *,
    degrees: Degrees,
    store: str,
    given_up: Callable[[], bool],
) -> Groups:
    """The groups of an epoch, once all their members have come; `rank`: as submitted.

    Raises:
        BrokenGroupError: somebody did not come, or the name has other members.
        GivenUpError: `given_up` became true.
        ValueError: the members are no whole replicas.
    """
    places = degrees.groups_of(members.index(rank), len(members))
    made: dict[tuple[int, ...], Group] = {}
    for kind in KINDS:
        among = places[kind]
        if among not in made:
            named = tuple(members[place] for place in among)
            part = name if kind == "world" else f"{name}/{kind}/{named[0]}"
            made[among] = grounds.form(part, named, rank, store=store, given_up=given_up)
    return Groups({kind: made[places[kind]] for kind in KINDS})
