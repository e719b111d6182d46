"""A group of members as torch's own code wants it: a ProcessGroup that can be given up.

Wrappers (DDP) and functions that take `group=` wait for what they start in C++, without an
end. torch lets Python derive from ProcessGroup and from Work; so each wait of theirs comes back to
here, looks at the flag every few milliseconds, and ends with the error that a step ends with.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from nemesis.training.gloo_group import Group

FORWARDED: Final[Mapping[str, str]] = {
    "allreduce": "allreduce",
    "allreduce_coalesced": "allreduce_coalesced",
    "allgather": "allgather",
    "allgather_coalesced": "allgather_coalesced",
    "_allgather_base": "_allgather_base",
    "all_gather_single": "_allgather_base",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "_reduce_scatter_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "alltoall": "alltoall",
    "alltoall_base": "alltoall_base",
    "all_to_all_single": "alltoall_base",
    "barrier": "barrier",
    "broadcast": "broadcast",
    "gather": "gather",
    "recv": "recv",
    "reduce": "reduce",
    "scatter": "scatter",
    "send": "send",
}
"""Operation of a ProcessGroup: of its backend (torch 2.13 has two names for some)."""


def process_group(torch: Any, group: Group, given_up: Callable[[], bool]) -> Any:
    """A torch ProcessGroup over a group; what it waits for ends with GivenUpError by the flag."""
    made = _group_class(torch)(group.position, len(group.members))
    made.members, made.given_up = group, given_up
    return made


def failed_future(torch: Any, error: Exception) -> Any:
    """What a communication hook returns that cannot start."""
    future = torch.futures.Future()
    future.set_exception(error)
    return future


@lru_cache(maxsize=1)
def _group_class(torch: Any) -> Any:
    work_class = _work_class(torch)

    def forwarding(operation: str) -> Callable[..., Any]:
        def forwarded(self: Any, *given: Any, **named: Any) -> Any:
            members: Group = self.members
            start = getattr(members.backend, operation)
            made = work_class()
            made.members, made.given_up = members, self.given_up
            made.under_way = members.started(lambda: start(*given, **named))
            return made

        return forwarded

    methods = {name: forwarding(operation) for name, operation in FORWARDED.items()}
    named: dict[str, Any] = {"getBackendName": lambda self: self.members.backend.name()}
    return type("MembersGroup", (torch.distributed.ProcessGroup,), methods | named)


@lru_cache(maxsize=1)
def _work_class(torch: Any) -> Any:
    def wait(self: Any, timeout: timedelta | None = None) -> bool:
        self.members.wait(self.under_way, self.given_up)
        return True

    def get_future(self: Any) -> Any:
        # its callers chain what is to follow; who waits for it in C++ waits for the end of it
        return self.under_way.get_future()

    def is_completed(self: Any) -> bool:
        return bool(self.under_way.is_completed())

    methods: dict[str, Any] = {"wait": wait, "get_future": get_future, "is_completed": is_completed}
    return type("MembersWork", (torch.distributed.Work,), methods)
