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

SCATTERING: Final[Mapping[str, str]] = {
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "_reduce_scatter_base",
    "reduce_scatter_single": "_reduce_scatter_base",
}
"""What gloo has by summing the whole, with a work that is never said to be complete (torch 2.13):
who waits for it in slices waits for ever. So the whole is summed here."""

COALESCED: Final[Mapping[str, str]] = {
    "allgather_into_tensor_coalesced": "_allgather_base",
    "reduce_scatter_tensor_coalesced": "_reduce_scatter_base",
}
"""What DTensors are put together and apart with, and gloo has for one tensor at a time."""


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


def _first_tensor(given: Any) -> Any:
    """Of what an operation is given, which lies as all of it does; None where it has none."""
    if not isinstance(given, list | tuple):
        return given if hasattr(given, "device") else None
    return next((found for each in given if (found := _first_tensor(each)) is not None), None)


@lru_cache(maxsize=1)
def _group_class(torch: Any) -> Any:
    work_class = _work_class(torch)

    def forwarding(operation: str) -> Callable[..., Any]:
        def forwarded(self: Any, *given: Any, **named: Any) -> Any:
            members: Group = self.members
            start = getattr(members.backend_of(_first_tensor(given)), operation)
            made = work_class()
            made.members, made.given_up = members, self.given_up
            made.under_way = [members.started(lambda: start(*given, **named))]
            made.ended = []
            return made

        return forwarded

    def scattering(operation: str) -> Callable[..., Any]:
        forwarded = forwarding(operation)

        def scattered(self: Any, output: Any, given: Any, *options: Any) -> Any:
            if self.members.backend_of(_first_tensor(given)).name() != "gloo":
                return forwarded(self, output, given, *options)
            (own,), parts = (output, given[0]) if isinstance(output, list) else ([output], [given])
            whole = torch.cat([each.reshape(-1) for each in parts])
            summing = torch.distributed.AllreduceOptions()
            if options:
                summing.reduceOp = options[0].reduceOp
            made = forwarding("allreduce")(self, [whole], summing)
            made.ended = [lambda: own.copy_(whole.view(self.size(), *own.shape)[self.rank()])]
            return made

        return scattered

    def coalescing(operation: str) -> Callable[..., Any]:
        def coalesced(self: Any, outputs: Any, given: Any, *options: Any) -> Any:
            start = getattr(self, operation)
            first, *rest = [start(*each, *options) for each in zip(outputs, given, strict=True)]
            for each in rest:
                first.under_way += each.under_way
                first.ended += each.ended
            return first

        return coalesced

    methods = {name: forwarding(operation) for name, operation in FORWARDED.items()}
    methods |= {name: scattering(operation) for name, operation in SCATTERING.items()}
    methods |= {name: coalescing(operation) for name, operation in COALESCED.items()}
    named: dict[str, Any] = {"getBackendName": lambda self: self.members.backend.name()}
    return type("MembersGroup", (torch.distributed.ProcessGroup,), methods | named)


@lru_cache(maxsize=1)
def _work_class(torch: Any) -> Any:
    def wait(self: Any, timeout: timedelta | None = None) -> bool:
        for each in self.under_way:
            self.members.wait(each, self.given_up)
        while self.ended:
            self.ended.pop()()
        return True

    def get_future(self: Any) -> Any:
        # its callers chain what is to follow; who waits for it in C++ waits for the end of it
        return self.under_way[-1].get_future()

    def is_completed(self: Any) -> bool:
        return all(each.is_completed() for each in self.under_way)

    methods: dict[str, Any] = {"wait": wait, "get_future": get_future, "is_completed": is_completed}
    return type("MembersWork", (torch.distributed.Work,), methods)
